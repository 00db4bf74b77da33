"""Reads a finished tool block back into calls, tolerant of the damage low-bit models do to it.

Owns tag spellings, value typing and repair against the declared types.  Knows nothing of streaming.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.chat.dsml import PARAMETER_END, dump, parse_arguments
from engine.chat.markers import DSML
from engine.chat.tools import Tool

_BAR = f"(?:{DSML}|DSML｜|)"  # a tag may lose its first bar or all of its marker
START = re.compile(f"<{_BAR}tool_calls>")
END = re.compile(f"</{_BAR}tool_calls>")
_INVOKE = re.compile(rf"\s*<({_BAR})invoke((?:\s+\w+=\"[^\"]*\")*)\s*>")
_INVOKE_END = re.compile(rf"\s*</{_BAR}invoke>")
_PARAMETER = re.compile(rf"\s*<({_BAR})parameter((?:\s+\w+=\"[^\"]*\")*)\s*>")
_ATTRIBUTE = re.compile(r"(\w+)=\"([^\"]*)\"")
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
class ParsedCall:
    """One call as the model meant it; `arguments` is always the JSON text of an object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """The complete calls of a block and what text is left behind them."""

    calls: tuple[ParsedCall, ...]
    rest: str


def parse_block(block: str, tools: Sequence[Tool]) -> ParsedBlock:
    """Parse text that begins with a start tag or an invoke: calls up to the first damage, then `rest`."""
    position = len(block) - len(block.lstrip())
    if start := START.match(block, position):
        position = start.end()
    declared = {tool.name: tool for tool in tools}
    calls: list[ParsedCall] = []
    while found := _invoke(block, position, declared):
        call, position = found
        calls.append(call)
    rest = block[position:].lstrip()
    closing = END.match(rest)
    return ParsedBlock(tuple(calls), rest[closing.end() :] if closing else rest)


def _invoke(block: str, position: int, declared: Mapping[str, Tool]) -> tuple[ParsedCall, int] | None:
    """One invoke from `position` and the position behind it; None when it is not complete."""
    head = _INVOKE.match(block, position)
    name = _attributes(head[2]).get("name") if head else None
    if head is None or not name:
        return None
    tool = declared.get(name)
    arguments: dict[str, object] = {}
    position = head.end()
    while parameter := _PARAMETER.match(block, position):
        end = re.compile(re.escape(f"</{parameter[1]}parameter>")).search(block, parameter.end())
        key = _attributes(parameter[2]).get("name")
        if end is None or key is None:
            return None
        kind = _attributes(parameter[2]).get("string")
        types = tool.types.get(key, ()) if tool else ()
        arguments[key] = _value(block[parameter.end() : end.start()], kind, types)
        position = end.end()
    tail = _INVOKE_END.match(block, position)
    if tail is None:
        return None
    return ParsedCall(name, dump(_unwrap(arguments, tool))), tail.end()


def _attributes(text: str) -> dict[str, str]:
    return {key: _unescape(value) for key, value in _ATTRIBUTE.findall(text)}


def _unescape(value: str) -> str:
    for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        value = value.replace(escaped, plain)
    return value


def _value(body: str, kind: str | None, types: tuple[str, ...]) -> object:
    raw_string = kind == "true" or (kind is None and (not types or "string" in types))
    if raw_string:
        value: object = body.replace("&lt;" + PARAMETER_END[1:], PARAMETER_END)
    else:
        value = _json(body)
    return _repair(value, types)


def _json(body: str) -> object:
    """JSON, with Python's words for constants tolerated; what is neither stays a string."""
    trimmed = body.strip()
    parsed = parse_arguments('{"v": ' + _PYTHON_WORDS.get(trimmed, trimmed) + "}")
    return body if parsed is None or len(parsed) != 1 else parsed.get("v", body)


def _repair(value: object, types: tuple[str, ...]) -> object:
    """Convert only a value whose type the schema excludes, and only where the conversion is exact."""
    if not types or any(name in types for name in _JSON_TYPES.get(type(value), ())):
        return value
    if isinstance(value, str):
        converted = _json(value)
        if any(name in types for name in _JSON_TYPES.get(type(converted), ())):
            return converted
    elif "string" in types and isinstance(value, int | float):
        return json.dumps(value)
    return value


def _unwrap(arguments: dict[str, object], tool: Tool | None) -> dict[str, object]:
    """Undo a wrapper parameter the model made up around the real arguments."""
    if tool is None or len(arguments) != 1:
        return arguments
    ((key, value),) = arguments.items()
    if key not in ("arguments", "input") or key in tool.types:
        return arguments
    inner = parse_arguments(value) if isinstance(value, str) else value
    if isinstance(inner, dict) and inner and all(name in tool.types for name in inner):
        return inner
    return arguments
