"""The tags of a tool block and the values in it, tolerant of the damage low-bit models do to them.

Owns tag spellings, value typing and repair against the declared types.  Knows nothing of streaming.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.chat.dsml import PARAMETER_END, dump, parse_arguments
from engine.chat.markers import DSML
from engine.chat.tools import Tool

BARS = (DSML, "DSML｜", "")  # a tag may lose its first bar or all of its marker
_BAR = f"(?:{'|'.join(BARS)})"
START = re.compile(f"<{_BAR}tool_calls>")
END = re.compile(f"</{_BAR}tool_calls>")
GUARD = "&lt;" + PARAMETER_END[1:]  # how a value spells the tag that would end it
_ATTRIBUTES = r"((?:\s+\w+=\"[^\"]*\")*)\s*>"
_ATTRIBUTE = re.compile(r"(\w+)=\"([^\"]*)\"")
_UNFINISHED = r"(?:\s+\w+=\"[^\"]*\")*\s*(?:\w+(?:=(?:\"[^\"]*)?)?)?"
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_JSON_TYPES: Mapping[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}


@dataclass(frozen=True, slots=True)
class OpeningTag:
    """An invoke or a parameter begins; `bar` is what is left of the marker in it, `stop` where it ends."""

    bar: str
    attributes: Mapping[str, str]
    stop: int


class TagKind:
    """One kind of opening tag: reads it, and says whether a text may still become one."""

    def __init__(self, name: str) -> None:
        self._whole = re.compile(rf"<({_BAR}){name}{_ATTRIBUTES}")
        self._begun = re.compile(rf"<{_BAR}{name}{_UNFINISHED}")
        self._heads = tuple(f"<{bar}{name}" for bar in BARS)

    def read(self, text: str, at: int) -> OpeningTag | None:
        """The tag that stands at a place."""
        found = self._whole.match(text, at)
        if found is None:
            return None
        attributes = {key: _unescape(value) for key, value in _ATTRIBUTE.findall(found[2])}
        return OpeningTag(found[1], attributes, found.end())

    def may_come(self, rest: str) -> bool:
        """More text could make this one."""
        return begins(rest, self._heads) or self._begun.fullmatch(rest) is not None


INVOKE = TagKind("invoke")
PARAMETER = TagKind("parameter")


def closings(name: str) -> tuple[str, ...]:
    """All spellings of a closing tag."""
    return tuple(f"</{bar}{name}>" for bar in BARS)


def begins(rest: str, tags: tuple[str, ...]) -> bool:
    """The text is a proper beginning of one of the tags."""
    return any(tag != rest and tag.startswith(rest) for tag in tags)


def _unescape(value: str) -> str:
    for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        value = value.replace(escaped, plain)
    return value


@dataclass(frozen=True, slots=True)
class Value:
    """What a parameter's text means; `repaired` when it is not what the text says by itself."""

    value: object
    repaired: bool


def is_raw(kind: str | None, types: tuple[str, ...]) -> bool:
    """The text is a string as it stands; decided by the `string` attribute, or by the schema without one."""
    return kind == "true" or (kind is None and (not types or "string" in types))


def read_value(body: str, kind: str | None, types: tuple[str, ...]) -> Value:
    """The value of a parameter's text, converted only where the schema excludes its type."""
    if is_raw(kind, types):
        said: object = body.replace(GUARD, PARAMETER_END)
        broken = False
    else:
        said, broken = _json(body)
    value = _repair(said, types)
    return Value(value, broken or kind is None or value is not said)


def _json(body: str) -> tuple[object, bool]:
    """JSON, and whether it took more than reading: Python's words are tolerated, the rest stays a string."""
    trimmed = body.strip()
    parsed = parse_arguments('{"v": ' + _PYTHON_WORDS.get(trimmed, trimmed) + "}")
    if parsed is None or parsed.keys() != {"v"}:
        return body, True
    return parsed["v"], trimmed in _PYTHON_WORDS


def _repair(value: object, types: tuple[str, ...]) -> object:
    """Convert only a value whose type the schema excludes, and only where the conversion is exact."""
    if not types or any(name in types for name in _JSON_TYPES.get(type(value), ())):
        return value
    if isinstance(value, str):
        converted, _ = _json(value)
        if any(name in types for name in _JSON_TYPES.get(type(converted), ())):
            return converted
    elif "string" in types and isinstance(value, int | float):
        return json.dumps(value)
    return value


def unwrap(key: str, value: object, tool: Tool | None) -> Mapping[str, object] | None:
    """The real arguments in a lone parameter that the model made up around them."""
    if tool is None or key not in ("arguments", "input") or key in tool.types:
        return None
    inner = parse_arguments(value) if isinstance(value, str) else value
    if isinstance(inner, dict) and inner and all(name in tool.types for name in inner):
        return inner
    return None


def required(tool: Tool) -> frozenset[str]:
    """The parameters that a call of this tool must have."""
    schema = parse_arguments(tool.schema) or {}
    parameters = schema.get("parameters")
    names = parameters.get("required") if isinstance(parameters, dict) else None
    return (
        frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()
    )


def dump_key(key: str) -> str:
    """A member's name and what stands before its value."""
    return dump(key) + ": "
