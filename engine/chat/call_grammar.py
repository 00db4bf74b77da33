"""The grammar of a tool block for given tools: the form in which `dsml` writes calls, and nothing else.

Owns the text of the grammar.  Parameters come in the order of their declaration, required ones always; a
parameter declared as a string holds any text, every other holds JSON by its own schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.chat.dsml import attribute
from engine.chat.tools import Tool
from engine.errors import RequestError
from engine.grammar import MAX_GRAMMAR_BYTES, json_rule

_JSON_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
_ANY_NAME = r"/[A-Za-z0-9_.\-]{1,64}/"


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """Writes rules; `dsml` is the id of the marker, `typed` keeps only the types of the declared schemas.

    `follows` says whether any JSON follows a schema: one that refers to itself may have none.
    """

    dsml: int
    follows: Callable[[str], bool]
    typed: bool = False

    def rules(self, tools: Sequence[Tool], *, parallel: bool) -> str:
        """The rule `block` and all it needs; without `parallel` it holds one call.

        Raises RequestError for schemas that make a grammar too large, before any of them is tried.
        """
        if not self.typed:
            _check_size(tools)
        more = f' ("\\n" {self._tag("")} call)*' if parallel else ""
        calls = " | ".join(f"call_{index}" for index in range(len(tools)))
        lines = [
            f'block: "\\n\\n" {self._tag("")} "tool_calls>\\n" {self._tag("")} call{more}'
            f' "\\n" {self._tag("/")} "tool_calls>"',
            f'call: "invoke name=" ({calls}) "\\n" {self._tag("/")} "invoke>"',
            r"TEXT: /(?s:.*)<\//",
        ]
        for index, tool in enumerate(tools):
            lines += self._call(f"call_{index}", tool)
        return "\n".join(lines) + "\n"

    def _call(self, rule: str, tool: Tool) -> list[str]:
        """One tool: its name, then its parameters."""
        schema = _parameters(tool)
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return self._free_call(rule, tool)
        required = schema.get("required")
        needed = set(required) if isinstance(required, list) and all(map(_is_name, required)) else set()
        parts, lines = [], []
        for number, (key, declared) in enumerate(properties.items()):
            name = f"{rule}_{number}"
            parts.append(name if key in needed else f"{name}?")
            lines.append(f'{name}: "\\n" {self._parameter(key, declared, schema)}')
        return [f"{rule}: {_quoted(_named(tool.name))} {' '.join(parts)}", *lines]

    def _free_call(self, rule: str, tool: Tool) -> list[str]:
        """A tool that declares no parameters may get any, or the empty line that stands for none."""
        value = f'("true\\">" TEXT | "false\\">" %json {{}} "</") {self._marker} "parameter>"'
        parameter = f'{self._tag("")} "parameter name=\\"" {_ANY_NAME} "\\" string=\\"" {value}'
        return [f'{rule}: {_quoted(_named(tool.name))} "\\n" ({parameter} ("\\n" {parameter})*)?']

    def _parameter(self, key: str, declared: object, root: Mapping[str, object]) -> str:
        head = f"{self._tag('')} {_quoted(f'parameter name={_attribute_text(key)}')}"
        tail = f'{self._marker} "parameter>"'
        if isinstance(declared, Mapping) and declared.get("type") == "string":
            listed = declared.get("enum")
            choices = [entry for entry in listed if _is_name(entry)] if isinstance(listed, list) else []
            text = f'({" | ".join(map(_quoted, choices))}) "</"' if choices else "TEXT"
            return f'{head} " string=\\"true\\">" {text} {tail}'
        value = json_rule(json.dumps(self._schema(declared, root)), lenient=True)
        return f'{head} " string=\\"false\\">" {value} "</" {tail}'

    def _schema(self, declared: object, root: Mapping[str, object]) -> Mapping[str, object]:
        """The schema of one parameter with the definitions it may refer to."""
        if not isinstance(declared, Mapping):
            return {}
        whole = _whole(declared, root)
        if not self.typed and ("$ref" not in declared or self.follows(json.dumps(whole))):
            return whole
        named = declared.get("type")
        listed = named if isinstance(named, list) else [named]
        known = [entry for entry in listed if entry in _JSON_TYPES]
        return {"type": known} if known else {}

    def _tag(self, slash: str) -> str:
        return f'"<{slash}" {self._marker}'

    @property
    def _marker(self) -> str:
        return f"<[{self.dsml}]>"


def _check_size(tools: Sequence[Tool]) -> None:
    """Every parameter brings the definitions along: many that refer to many would be tried for minutes."""
    size = 0
    for tool in tools:
        schema = _parameters(tool)
        properties = schema.get("properties")
        for declared in properties.values() if isinstance(properties, Mapping) else ():
            if isinstance(declared, Mapping) and declared.get("type") != "string":  # else any text follows
                size += len(json.dumps(_whole(declared, schema)))
            if size > MAX_GRAMMAR_BYTES:
                raise RequestError(
                    f"tools make a grammar of more than {MAX_GRAMMAR_BYTES} bytes; shorten their schemas",
                    param="tools",
                )


def _whole(declared: Mapping[str, object], root: Mapping[str, object]) -> dict[str, object]:
    """The schema of a parameter with the definitions of the whole one."""
    return {**{name: root[name] for name in ("$defs", "definitions") if name in root}, **declared}


def _parameters(tool: Tool) -> Mapping[str, object]:
    found = json.loads(tool.schema).get("parameters")
    return found if isinstance(found, Mapping) else {}


def _is_name(entry: object) -> bool:
    return isinstance(entry, str)


def _named(name: str) -> str:
    return f"{_attribute_text(name)}>"


def _attribute_text(value: str) -> str:
    return f'"{attribute(value)}"'


def _quoted(value: str) -> str:
    """A literal of the grammar; its lexer wants the delete character escaped, which JSON leaves bare."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
