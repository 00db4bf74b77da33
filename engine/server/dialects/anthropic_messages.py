"""Reads the messages, system text and tools of an Anthropic-style request.

Owns content blocks and what becomes of each kind.  Every error names the member by its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.chat.conversation import Conversation, SystemText, assemble
from engine.chat.dsml import dump
from engine.chat.normalise import entries_of, kind_of
from engine.chat.request import AssistantTurn, ToolCall, ToolResult, Turn, UserText, UserTurn
from engine.errors import RequestError, shown

HEADER_PREFIX = "x-anthropic-"  # a client's billing line; it changes each time and would cost the prefix
ROLES = ("user", "assistant", "system")
CUSTOM_TOOLS = (None, "custom")  # any other type is hosted by the vendor, and cannot be run here


def read_conversation(body: Mapping[str, object]) -> Conversation:
    """The system text and the turns of a body."""
    entries = entries_of(body.get("messages"), "messages")
    head = SystemText(_system(body.get("system")))
    turns = (_message(entry, f"messages.{index}") for index, entry in enumerate(entries))
    return assemble([head, *turns], member="messages", knows_all_calls=True)


def openai_tools(body: Mapping[str, object]) -> list[dict[str, object]]:
    """The declared tools in OpenAI's shape; tools that the vendor would run are left out."""
    tools = body.get("tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise RequestError(f"tools must be a list of tools, found {kind_of(tools)}", param="tools")
    return [tool for index, entry in enumerate(tools) if (tool := _tool(entry, f"tools.{index}"))]


def openai_choice(body: Mapping[str, object]) -> object:
    """The tool choice in OpenAI's shape."""
    choice = body.get("tool_choice")
    if choice is None:
        return None
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or kind not in ("auto", "any", "tool", "none"):
        raise RequestError(
            f"tool_choice.type is {shown(kind)}; allowed are auto, any, tool, none", param="tool_choice.type"
        )
    if kind == "tool":
        name = _text(choice, "name", "tool_choice")
        return {"type": "function", "function": {"name": name}}
    return "required" if kind == "any" else kind


def _system(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise RequestError(
            f"system must be a string or a list of text blocks, found {kind_of(value)}", param="system"
        )
    text = ""
    for index, part in enumerate(value):
        more = _text(_block(part, f"system.{index}", allowed=("text",)), "text", f"system.{index}")
        if more.startswith(HEADER_PREFIX):
            continue
        text += ("\n" if text and not text.endswith("\n") else "") + more
    return text


def _message(entry: Mapping[str, object], path: str) -> SystemText | Turn:
    role = entry.get("role", "user")
    if role not in ROLES:
        raise RequestError(
            f"{path}.role is {shown(role)}; allowed are {', '.join(ROLES)}", param=f"{path}.role"
        )
    content = entry.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if blocks is None:
        blocks = []
    if not isinstance(blocks, list):
        raise RequestError(
            f"{path}.content must be a string or a list of blocks, found {kind_of(content)}",
            param=f"{path}.content",
        )
    named = [(block, f"{path}.content.{index}") for index, block in enumerate(blocks)]
    if role == "assistant":
        return _assistant(named)
    if role == "system":
        return SystemText("".join(_plain(block, at) for block, at in named))
    return UserTurn(tuple(_user_block(block, at) for block, at in named))


def _user_block(block: object, path: str) -> UserText | ToolResult:
    allowed = ("text", "tool_result", "document")
    entry = _block(block, path, allowed=allowed)
    if entry["type"] != "tool_result":
        return UserText(_plain(entry, path))
    call_id = entry.get("tool_use_id")
    if not isinstance(call_id, str):
        raise RequestError(
            f"{path}.tool_use_id must be a string, found {kind_of(call_id)}", param=f"{path}.tool_use_id"
        )
    return ToolResult(call_id, "\n\n".join(_result_parts(entry.get("content"), f"{path}.content")))


def _result_parts(content: object, path: str) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for index, part in enumerate(content):
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(part, str):
                yield part
            elif isinstance(part, dict) and kind == "text":
                yield _text(part, "text", f"{path}.{index}")
            else:
                yield f"[Unsupported {shown(kind).strip(chr(39))}]"
    elif content is not None:
        raise RequestError(
            f"{path} must be a string or a list of blocks, found {kind_of(content)}", param=path
        )


def _plain(block: object, path: str) -> str:
    """The text of a text block, or of a document whose source is plain text."""
    entry = _block(block, path, allowed=("text", "document"))
    if entry["type"] == "text":
        return _text(entry, "text", path)
    source = entry.get("source")
    if not isinstance(source, dict) or source.get("type") != "text":
        raise _unsupported(path, "document", ("text",))
    return _text(source, "data", f"{path}.source")


def _assistant(named: list[tuple[object, str]]) -> AssistantTurn:
    content, reasoning, calls = "", "", []
    for block, path in named:
        entry = _block(block, path, allowed=("text", "thinking", "redacted_thinking", "tool_use"))
        match entry["type"]:
            case "text":
                content += _text(entry, "text", path)
            case "thinking":
                reasoning += _text(entry, "thinking", path)
            case "tool_use":
                calls.append(_call(entry, path))
    return AssistantTurn(content, reasoning if reasoning.strip() else "", tuple(calls))


def _call(entry: Mapping[str, object], path: str) -> ToolCall:
    name, call_id = _text(entry, "name", path), _text(entry, "id", path)
    if not name:
        raise RequestError(f"{path}.name is empty; a call needs a name", param=f"{path}.name")
    value = entry.get("input", {})
    return ToolCall(call_id, name, value if isinstance(value, str) else dump(value))


def _block(block: object, path: str, *, allowed: tuple[str, ...]) -> Mapping[str, object]:
    """A block of one of the allowed types; a bare string is a text block."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if not isinstance(block, dict):
        raise RequestError(f"{path} must be an object, found {kind_of(block)}", param=path)
    if block.get("type") not in allowed:
        raise _unsupported(path, block.get("type"), allowed)
    return block


def _unsupported(path: str, kind: object, allowed: tuple[str, ...]) -> RequestError:
    return RequestError(
        f"{path} has type {shown(kind)}; this model reads text only: allowed are {', '.join(allowed)}",
        param=path,
        code="unsupported_parameter",
    )


def _text(entry: Mapping[str, object], member: str, path: str) -> str:
    value = entry.get(member)
    if isinstance(value, str):
        return value
    raise RequestError(f"{path}.{member} must be a string, found {kind_of(value)}", param=f"{path}.{member}")


def _tool(entry: object, path: str) -> dict[str, object] | None:
    if not isinstance(entry, dict):
        raise RequestError(f"{path} must be an object, found {kind_of(entry)}", param=path)
    if entry.get("type") not in CUSTOM_TOOLS:
        return None
    name, schema = entry.get("name"), entry.get("input_schema")
    if not isinstance(name, str) or not name:
        raise RequestError(f"{path}.name is missing; a tool needs a name", param=f"{path}.name")
    if schema is not None and not isinstance(schema, dict):
        raise RequestError(
            f"{path}.input_schema must be an object, found {kind_of(schema)}", param=f"{path}.input_schema"
        )
    description = {"description": entry["description"]} if entry.get("description") is not None else {}
    function = {"name": name, **description, "parameters": schema or {}}
    return {"type": "function", "function": function}
