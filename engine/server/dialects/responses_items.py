"""Reads the input items and tools of an OpenAI Responses request.

Owns what each kind of item means for the conversation.  Every error names the item by its path.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.chat.conversation import Conversation, SystemText, assemble
from engine.chat.dsml import dump
from engine.chat.normalise import SYSTEM_ROLES, entries_of, kind_of
from engine.chat.request import AssistantTurn, ToolCall, ToolResult, Turn, UserText, UserTurn
from engine.errors import RequestError, shown

TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")
HOSTED_CALLS = ("local_shell_call", "web_search_call", "tool_search_call", "image_generation_call")
IGNORED_ITEMS = ("compaction", "context_compaction", "compaction_summary")
SEAL = "plain:"  # what marks reasoning that this server handed out as encrypted content


@dataclass(frozen=True, slots=True)
class ToolNames:
    """How the names that the model sees are spelled for the client."""

    custom: frozenset[str]
    namespaces: Mapping[str, tuple[str, str]]  # flat name to namespace and name


def read_conversation(body: Mapping[str, object]) -> Conversation:
    """Instructions and input as a system text and turns."""
    instructions, value = body.get("instructions"), body.get("input")
    if instructions is not None and not isinstance(instructions, str):
        raise RequestError(
            f"instructions must be a string, found {kind_of(instructions)}", param="instructions"
        )
    entries: list[SystemText | Turn] = [SystemText(instructions or "")]
    if isinstance(value, str):
        entries.append(UserTurn((UserText(value),)))
    else:
        entries += _entries(entries_of(value, "input"))
    return assemble(entries, member="input", knows_all_calls=True)


def seal(reasoning: str) -> str:
    """Reasoning as the opaque text that a client keeps and sends back."""
    return base64.b64encode(f"{SEAL}{reasoning}".encode()).decode()


def _entries(items: list[Mapping[str, object]]) -> Iterator[SystemText | Turn]:
    """One entry an item; reasoning waits for the assistant's item that follows it."""
    reasoning = ""
    for index, item in enumerate(items):
        path = f"input.{index}"
        if item.get("status") not in (None, "completed"):
            raise RequestError(
                f"{path}.status is {shown(item['status'])}; only completed items can be sent back",
                param=f"{path}.status",
            )
        if item.get("type") == "reasoning":
            reasoning += _reasoning(item, path)
            continue
        entry = _entry(item, path)
        if isinstance(entry, AssistantTurn):
            entry = AssistantTurn(entry.content, reasoning if reasoning.strip() else "", entry.calls)
        if entry is not None:
            reasoning = ""
            yield entry


def _entry(item: Mapping[str, object], path: str) -> SystemText | Turn | None:
    kind = item.get("type", "message")
    if kind == "message":
        return _message(item, path)
    if kind == "function_call":
        return _called(item, path, _optional(item, "arguments", path) or "{}")
    if kind == "custom_tool_call":
        return _called(item, path, dump({"input": _optional(item, "input", path) or ""}))
    if kind in HOSTED_CALLS:
        name = str(kind).removesuffix("_call")
        return AssistantTurn(calls=(ToolCall(_id(item, path), name, dump(item.get("action") or {})),))
    if isinstance(kind, str) and kind.endswith("_output"):
        output = _texts(item.get("output", item.get("result")), f"{path}.output", joint="\n\n", in_tool=True)
        return UserTurn((ToolResult(_id(item, path), output),))
    if kind in IGNORED_ITEMS:
        return None
    raise RequestError(
        f"{path}.type is {shown(kind)}, which this server does not know or would need a stored conversation "
        "for; send messages, calls, outputs and reasoning",
        param=f"{path}.type",
        code="unsupported_parameter",
    )


def _message(item: Mapping[str, object], path: str) -> SystemText | Turn:
    role = item.get("role", "user")
    text = _texts(item.get("content"), f"{path}.content")
    if role in SYSTEM_ROLES:
        return SystemText(text)
    if role == "assistant":
        return AssistantTurn(text)
    if role == "user":
        return UserTurn((UserText(text),))
    allowed = ", ".join((*SYSTEM_ROLES, "user", "assistant"))
    raise RequestError(f"{path}.role is {shown(role)}; allowed are {allowed}", param=f"{path}.role")


def _called(item: Mapping[str, object], path: str, arguments: str) -> AssistantTurn:
    name = _optional(item, "name", path)
    if not name:
        raise RequestError(f"{path}.name is missing; a call needs a name", param=f"{path}.name")
    name = (_optional(item, "namespace", path) or "") + name
    return AssistantTurn(calls=(ToolCall(_id(item, path), name, arguments),))


def _reasoning(item: Mapping[str, object], path: str) -> str:
    """The reasoning that we sealed, else what the client shows of it."""
    sealed = _optional(item, "encrypted_content", path)
    if sealed:
        try:
            plain = base64.b64decode(sealed, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            plain = ""  # another server's secret
        if plain.startswith(SEAL):
            return plain.removeprefix(SEAL)
    parts = [_texts(item.get(member), f"{path}.{member}", joint="\n") for member in ("summary", "content")]
    return "\n".join(filter(None, parts))


def _texts(value: object, path: str, *, joint: str = "", in_tool: bool = False) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise RequestError(f"{path} must be a string or a list of parts, found {kind_of(value)}", param=path)
    return joint.join(_part(part, f"{path}.{index}", in_tool=in_tool) for index, part in enumerate(value))


def _part(part: object, path: str, *, in_tool: bool) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else kind_of(part)
    if isinstance(part, dict) and kind in TEXT_PARTS:
        return _optional(part, "refusal" if kind == "refusal" else "text", path) or ""
    if in_tool:
        return f"[Unsupported {kind}]"
    raise RequestError(
        f"{path} has type {shown(kind)}; this model reads text only: allowed are {', '.join(TEXT_PARTS)}",
        param=path,
        code="unsupported_parameter",
    )


def _id(item: Mapping[str, object], path: str) -> str | None:
    return _optional(item, "call_id", path) or _optional(item, "id", path)


def _optional(item: Mapping[str, object], member: str, path: str) -> str | None:
    value = item.get(member)
    if value is None or isinstance(value, str):
        return value
    raise RequestError(f"{path}.{member} must be a string, found {kind_of(value)}", param=f"{path}.{member}")


def openai_tools(body: Mapping[str, object]) -> tuple[list[dict[str, object]], ToolNames]:
    """The declared tools in the shape of chat requests, and how their names are spelled for the client."""
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise RequestError(f"tools must be a list of tools, found {kind_of(tools)}", param="tools")
    found: list[dict[str, object]] = []
    custom: set[str] = set()
    namespaces: dict[str, tuple[str, str]] = {}
    for entry, path, space in _flat(tools or [], "tools", ""):
        kind = entry.get("type", "function")
        if kind not in ("function", "custom"):
            continue  # hosted by a provider; this server cannot run it
        name = _optional(entry, "name", path)
        if not name:
            raise RequestError(f"{path}.name is missing; a tool needs a name", param=f"{path}.name")
        flat = space + name
        if space:
            namespaces[flat] = (space, name)
        if kind == "custom":
            custom.add(flat)
        found.append({"type": "function", "function": _function(entry, flat, custom=kind == "custom")})
    return found, ToolNames(frozenset(custom), namespaces)


def _flat(tools: list[object], path: str, space: str) -> Iterator[tuple[Mapping[str, object], str, str]]:
    """All tools with their paths; those of a namespace with its name."""
    for index, entry in enumerate(tools):
        at = f"{path}.{index}"
        if not isinstance(entry, dict):
            raise RequestError(f"{at} must be an object, found {kind_of(entry)}", param=at)
        inner = entry.get("tools")
        if entry.get("type") == "namespace" and not space:
            if not isinstance(inner, list):
                raise RequestError(f"{at}.tools must be a list of tools", param=f"{at}.tools")
            yield from _flat(inner, f"{at}.tools", _optional(entry, "name", at) or "")
        else:
            yield entry, at, space


def _function(entry: Mapping[str, object], name: str, *, custom: bool) -> dict[str, object]:
    if custom:
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        return {"name": name, "description": str(entry.get("description") or ""), "parameters": schema}
    kept = ("description", "parameters", "strict")
    return {"name": name, **{key: entry[key] for key in kept if entry.get(key) is not None}}


def openai_choice(body: Mapping[str, object]) -> object:
    """The tool choice in the shape of chat requests."""
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return choice
    kind = choice.get("type")
    if kind in ("function", "custom"):
        return {"type": "function", "function": {"name": choice.get("name")}}
    if kind == "allowed_tools":
        return choice.get("mode", "auto")
    raise RequestError(
        f"tool_choice.type is {shown(kind)}; allowed are function, custom, allowed_tools",
        param="tool_choice.type",
        code="unsupported_parameter",
    )
