"""Writes tool calls in the model's own markup.

Owns tags, attribute escaping and the typed spelling of arguments.
Knows nothing of schemas or of conversations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from engine.chat.markers import DSML
from engine.chat.request import ToolCall
from engine.chat.segments import Segment, marker, text
from engine.chat.strict import read_json

PARAMETER_END = f"</{DSML}parameter>"


def split_markers(value: str, markers: tuple[str, ...]) -> list[Segment]:
    """Cut text of our own at the given marker texts; never use it on text that came from a client."""
    pieces = re.split("(" + "|".join(map(re.escape, markers)) + ")", value)
    return [marker(piece) if piece in markers else text(piece) for piece in pieces if piece]


def render_calls(calls: Iterable[ToolCall]) -> list[Segment]:
    """The whole block with two line feeds before it; nothing for no calls."""
    rendered = [_invoke(call) for call in calls]
    if not rendered:
        return []
    body = [segment for invoke in rendered for segment in invoke]
    return [text("\n\n"), *_tag("", "tool_calls>\n"), *body, *_tag("/", "tool_calls>")]


def parse_arguments(arguments: str) -> dict[str, object] | None:
    """The object a call's arguments spell, or None when they are anything else."""
    try:
        value = read_json(arguments)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def dump(value: object) -> str:
    """JSON as the model was trained on: blanks after separators, no escapes for non-ASCII."""
    return json.dumps(value, ensure_ascii=False)


def _tag(slash: str, rest: str) -> list[Segment]:
    return [text(f"<{slash}"), marker(DSML), text(rest)]


def _invoke(call: ToolCall) -> list[Segment]:
    arguments = parse_arguments(call.arguments)
    if arguments is None:
        parameters = [_parameter("arguments", call.arguments)]
    else:
        parameters = [_parameter(key, value) for key, value in arguments.items()]
    lines: list[Segment] = []
    for index, parameter in enumerate(parameters):
        lines += [text("\n")] * (index > 0) + parameter
    head = _tag("", f'invoke name="{attribute(call.name)}">\n')
    return [*head, *lines, text("\n"), *_tag("/", "invoke>\n")]


def _parameter(key: str, value: object) -> list[Segment]:
    if isinstance(value, str):
        kind, body = "true", value.replace(PARAMETER_END, "&lt;" + PARAMETER_END[1:])
    else:
        kind, body = "false", dump(value).replace(PARAMETER_END, "\\u003c" + PARAMETER_END[1:])
    head = _tag("", f'parameter name="{attribute(key)}" string="{kind}">')
    return [*head, text(body), *_tag("/", "parameter>")]


def attribute(value: str) -> str:
    escapes = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"))
    for plain, escaped in escapes:
        value = value.replace(plain, escaped)
    return value
