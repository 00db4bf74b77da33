"""Turns the messages of an OpenAI-style request into a system text and alternating turns.

Owns the rules for roles, content parts, merging and the order of tool results.
Knows nothing of markers or ids.
Every error is a RequestError whose `param` is the path of the member that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.chat.dsml import dump
from engine.chat.request import AssistantTurn, ToolCall, ToolResult, Turn, UserText, UserTurn
from engine.errors import RequestError, shown

SYSTEM_ROLES = ("system", "developer")
TOOL_ROLES = ("tool", "function")
ROLES = (*SYSTEM_ROLES, "user", "assistant", *TOOL_ROLES)
TEXT_PARTS = ("text", "input_text", "output_text")
REASONING_MEMBERS = ("reasoning_content", "reasoning", "thinking")


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the messages say: a system text and turns; the last turn may be an assistant's to be continued."""

    system: str
    turns: tuple[Turn, ...]


def normalise(messages: object) -> Conversation:
    """Check and regroup the `messages` member of a request."""
    entries = _entries(messages)
    head = _leading_system(entries)
    system = "\n\n".join(filter(None, (_content(entries[i], f"messages.{i}") for i in range(head))))
    turns: list[Turn] = []
    for index in range(head, len(entries)):
        _append(turns, _turn(entries[index], f"messages.{index}"))
    _drop_empty_end(turns)
    _check_turns(turns)
    return Conversation(system, tuple(_order_results(turns)))


def _entries(messages: object) -> list[Mapping[str, object]]:
    if messages is None:
        raise RequestError(
            "messages is missing; send a list of messages",
            param="messages",
            code="missing_required_parameter",
        )
    if not isinstance(messages, list):
        raise RequestError(f"messages must be a list, found {_kind(messages)}", param="messages")
    if not messages:
        raise RequestError("messages is empty; send at least one message", param="messages")
    for index, entry in enumerate(messages):
        if not isinstance(entry, dict):
            raise RequestError(
                f"messages.{index} must be an object, found {_kind(entry)}", param=f"messages.{index}"
            )
    return messages


def _role(entry: Mapping[str, object], path: str) -> str:
    role = entry.get("role")
    if role is None:
        return "user"
    if role not in ROLES:
        raise RequestError(
            f"{path}.role is {shown(role)}; allowed are {', '.join(ROLES)}", param=f"{path}.role"
        )
    return str(role)


def _leading_system(entries: Sequence[Mapping[str, object]]) -> int:
    for index, entry in enumerate(entries):
        if _role(entry, f"messages.{index}") not in SYSTEM_ROLES:
            return index
    return len(entries)


def _turn(entry: Mapping[str, object], path: str) -> Turn:
    """One message as a turn of its own; a late system message is user text at its own place."""
    role = _role(entry, path)
    if role == "assistant":
        return AssistantTurn(_content(entry, path), _reasoning(entry, path), _calls(entry, path))
    if role in TOOL_ROLES:
        call_id = _optional_string(entry, "tool_call_id", path)
        return UserTurn((ToolResult(call_id, _content(entry, path, in_tool=True)),))
    return UserTurn((UserText(_content(entry, path)),))


def _append(turns: list[Turn], turn: Turn) -> None:
    """Add a turn, joining it with the last one when both are of the same side."""
    last = turns[-1] if turns else None
    if isinstance(last, UserTurn) and isinstance(turn, UserTurn):
        turns[-1] = UserTurn((*last.blocks, *turn.blocks))
    elif isinstance(last, AssistantTurn) and isinstance(turn, AssistantTurn):
        turns[-1] = AssistantTurn(
            last.content + turn.content, last.reasoning + turn.reasoning, (*last.calls, *turn.calls)
        )
    else:
        turns.append(turn)


def _drop_empty_end(turns: list[Turn]) -> None:
    if turns and turns[-1] == AssistantTurn():
        turns.pop()


def _check_turns(turns: Sequence[Turn]) -> None:
    if not any(isinstance(turn, UserTurn) for turn in turns):
        raise RequestError("messages hold no user or tool message; send at least one", param="messages")
    if isinstance(turns[-1], AssistantTurn) and turns[-1].calls:
        raise RequestError(
            "the last message is an assistant message with tool calls; send the tool results after it",
            param="messages",
        )


def _order_results(turns: Sequence[Turn]) -> list[Turn]:
    """Sort the results after two or more calls into the order of the calls; texts keep their slots."""
    ordered = list(turns)
    for index in range(1, len(ordered)):
        before, turn = ordered[index - 1], ordered[index]
        if isinstance(before, AssistantTurn) and len(before.calls) > 1 and isinstance(turn, UserTurn):
            ordered[index] = replace(turn, blocks=_sort_results(turn.blocks, before.calls))
    return ordered


def _sort_results(
    blocks: Sequence[UserText | ToolResult], calls: Sequence[ToolCall]
) -> tuple[UserText | ToolResult, ...]:
    places = {call.id: place for place, call in reversed(list(enumerate(calls))) if call.id is not None}
    results = sorted(
        (block for block in blocks if isinstance(block, ToolResult)),
        key=lambda result: places.get(result.call_id or "", 0),
    )
    queue = iter(results)
    return tuple(next(queue) if isinstance(block, ToolResult) else block for block in blocks)


def _content(entry: Mapping[str, object], path: str, *, in_tool: bool = False) -> str:
    content = entry.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(
            f"{path}.content must be a string or a list of parts, found {_kind(content)}",
            param=f"{path}.content",
        )
    joint = "\n\n" if in_tool else ""
    return joint.join(_part(part, f"{path}.content.{i}", in_tool=in_tool) for i, part in enumerate(content))


def _part(part: object, path: str, *, in_tool: bool) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise RequestError(f"{path} must be an object or a string, found {_kind(part)}", param=path)
    kind = part.get("type")
    member = "refusal" if kind == "refusal" else "text"
    if kind in (*TEXT_PARTS, "refusal") or (kind is None and "text" in part):
        value = part.get(member)
        if value is None or isinstance(value, str):
            return value or ""
        raise RequestError(
            f"{path}.{member} must be a string, found {_kind(value)}", param=f"{path}.{member}"
        )
    if in_tool:
        return f"[Unsupported {kind}]"
    raise RequestError(
        f"{path} has type {shown(kind)}; this model reads text only: allowed are {', '.join(TEXT_PARTS)}",
        param=path,
        code="unsupported_parameter",
    )


def _reasoning(entry: Mapping[str, object], path: str) -> str:
    """Reasoning a client sends back; only blanks counts as none, because some clients pad it."""
    for member in REASONING_MEMBERS:
        value = entry.get(member)
        if isinstance(value, str):
            return value if value.strip() else ""
        if value is not None and member == REASONING_MEMBERS[0]:
            raise RequestError(
                f"{path}.{member} must be a string, found {_kind(value)}", param=f"{path}.{member}"
            )
    return ""


def _calls(entry: Mapping[str, object], path: str) -> tuple[ToolCall, ...]:
    calls = entry.get("tool_calls")
    if calls is None:
        legacy = entry.get("function_call")
        calls = [] if legacy is None else [{"function": legacy}]
    if not isinstance(calls, list):
        raise RequestError(
            f"{path}.tool_calls must be a list, found {_kind(calls)}", param=f"{path}.tool_calls"
        )
    return tuple(_call(call, f"{path}.tool_calls.{index}") for index, call in enumerate(calls))


def _call(call: object, path: str) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise RequestError(
            f"{path}.function.name is missing; a call needs a name", param=f"{path}.function.name"
        )
    arguments = function.get("arguments")
    if arguments is None:
        arguments = "{}"
    if not isinstance(arguments, str):
        arguments = dump(arguments)
    return ToolCall(_optional_string(call, "id", path), name, arguments)


def _optional_string(entry: Mapping[str, object], member: str, path: str) -> str | None:
    value = entry.get(member)
    if value is None or isinstance(value, str):
        return value
    raise RequestError(f"{path}.{member} must be a string, found {_kind(value)}", param=f"{path}.{member}")


def _kind(value: object) -> str:
    names = {bool: "a boolean", dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")
