"""Reads the messages of an OpenAI-style request.

Owns the rules for roles and content parts.  Knows nothing of markers or ids.
Every error is a RequestError whose `param` is the path of the member that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.chat.conversation import Conversation, SystemText, assemble
from engine.chat.dsml import dump
from engine.chat.request import AssistantTurn, ToolCall, ToolResult, Turn, UserText, UserTurn
from engine.errors import RequestError, shown

SYSTEM_ROLES = ("system", "developer")
TOOL_ROLES = ("tool", "function")
ROLES = (*SYSTEM_ROLES, "user", "assistant", *TOOL_ROLES)
TEXT_PARTS = ("text", "input_text", "output_text")
REASONING_MEMBERS = ("reasoning_content", "reasoning", "thinking")


def normalise(messages: object) -> Conversation:
    """Check and regroup the `messages` member of a request."""
    entries = entries_of(messages, "messages")
    return assemble(
        (_turn(entry, f"messages.{index}") for index, entry in enumerate(entries)), member="messages"
    )


def entries_of(value: object, member: str) -> list[Mapping[str, object]]:
    """The objects of a list that must not be empty; RequestError naming the first that is none."""
    if value is None:
        raise RequestError(
            f"{member} is missing; send a list of messages", param=member, code="missing_required_parameter"
        )
    if not isinstance(value, list):
        raise RequestError(f"{member} must be a list, found {kind_of(value)}", param=member)
    if not value:
        raise RequestError(f"{member} is empty; send at least one message", param=member)
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise RequestError(
                f"{member}.{index} must be an object, found {kind_of(entry)}", param=f"{member}.{index}"
            )
    return value


def _role(entry: Mapping[str, object], path: str) -> str:
    role = entry.get("role")
    if role is None:
        return "user"
    if role not in ROLES:
        raise RequestError(
            f"{path}.role is {shown(role)}; allowed are {', '.join(ROLES)}", param=f"{path}.role"
        )
    return str(role)


def _turn(entry: Mapping[str, object], path: str) -> SystemText | Turn:
    """One message as a turn of its own."""
    role = _role(entry, path)
    if role in SYSTEM_ROLES:
        return SystemText(_content(entry, path))
    if role == "assistant":
        return AssistantTurn(_content(entry, path), _reasoning(entry, path), _calls(entry, path))
    if role in TOOL_ROLES:
        call_id = _optional_string(entry, "tool_call_id", path)
        return UserTurn((ToolResult(call_id, _content(entry, path, in_tool=True)),))
    return UserTurn((UserText(_content(entry, path)),))


def _content(entry: Mapping[str, object], path: str, *, in_tool: bool = False) -> str:
    content = entry.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(
            f"{path}.content must be a string or a list of parts, found {kind_of(content)}",
            param=f"{path}.content",
        )
    joint = "\n\n" if in_tool else ""
    return joint.join(_part(part, f"{path}.content.{i}", in_tool=in_tool) for i, part in enumerate(content))


def _part(part: object, path: str, *, in_tool: bool) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise RequestError(f"{path} must be an object or a string, found {kind_of(part)}", param=path)
    kind = part.get("type")
    member = "refusal" if kind == "refusal" else "text"
    if kind in (*TEXT_PARTS, "refusal") or (kind is None and "text" in part):
        value = part.get(member)
        if value is None or isinstance(value, str):
            return value or ""
        raise RequestError(
            f"{path}.{member} must be a string, found {kind_of(value)}", param=f"{path}.{member}"
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
                f"{path}.{member} must be a string, found {kind_of(value)}", param=f"{path}.{member}"
            )
    return ""


def _calls(entry: Mapping[str, object], path: str) -> tuple[ToolCall, ...]:
    calls = entry.get("tool_calls")
    if calls is None:
        legacy = entry.get("function_call")
        calls = [] if legacy is None else [{"function": legacy}]
    if not isinstance(calls, list):
        raise RequestError(
            f"{path}.tool_calls must be a list, found {kind_of(calls)}", param=f"{path}.tool_calls"
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
    raise RequestError(f"{path}.{member} must be a string, found {kind_of(value)}", param=f"{path}.{member}")


def kind_of(value: object) -> str:
    """The JSON type of a value, for a message."""
    names = {bool: "a boolean", dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")
