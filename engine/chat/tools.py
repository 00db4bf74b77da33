"""Reads the tool declarations and the tool choice of an OpenAI-style request.

Owns which tools are active and how one schema line is spelled.  Knows nothing of parsing calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.chat.dsml import dump
from engine.errors import RequestError, shown


@dataclass(frozen=True, slots=True)
class Tool:
    """One declared function: the JSON text shown to the model and the declared type of each parameter."""

    name: str
    schema: str
    types: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Choice:
    """What calls an answer must hold: none has to, some call, or a call of the tool `name`."""

    required: bool = False
    name: str | None = None


def read_tools(body: Mapping[str, object]) -> tuple[Tool, ...]:
    """The active tools in the client's order; empty when there are none or the choice is `none`.

    Raises RequestError for a wrong declaration.
    """
    tools, member = body.get("tools"), "tools"
    if tools is None and body.get("functions") is not None:
        tools, member = body.get("functions"), "functions"
    if tools is None:
        tools = []
    if not isinstance(tools, list):
        raise RequestError(f"{member} must be a list of tools", param=member)
    declared = [_tool(entry, f"{member}.{i}", flat=member == "functions") for i, entry in enumerate(tools)]
    return () if _choice(body)[1] == "none" else tuple(tool for tool in declared if tool)


def read_choice(body: Mapping[str, object], tools: tuple[Tool, ...]) -> Choice:
    """Which of the active tools must be called; raises RequestError for a choice that cannot be kept."""
    member, choice = _choice(body)
    if choice in (None, "auto", "none"):
        return Choice()
    if choice == "required":
        name = None
    elif isinstance(choice, dict):
        function = choice if member == "function_call" else choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise RequestError(f"{member} names no function; give its name", param=member)
    else:
        raise RequestError(
            f"{member} is {shown(choice)}; allowed are 'auto', 'none', 'required' and a named function",
            param=member,
        )
    if not tools:
        raise RequestError(f"{member} asks for a call but there are no tools to call", param=member)
    if name is not None and name not in {tool.name for tool in tools}:
        raise RequestError(f"{member} names {shown(name)}, which is not among the tools", param=member)
    return Choice(required=True, name=name)


def _choice(body: Mapping[str, object]) -> tuple[str, object]:
    """The member that holds the tool choice, and its value."""
    choice = body.get("tool_choice")
    return ("function_call", body.get("function_call")) if choice is None else ("tool_choice", choice)


def read_response_schema(form: object, member: str, *, flat: bool = False) -> str | None:
    """JSON text of the schema the answer should follow, or None for free text.

    `member` is where the form stands in the body; where it is `flat` it holds the schema itself.
    """
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if not isinstance(form, dict) or kind not in ("text", "json_object", "json_schema"):
        raise RequestError(
            f"{member}.type is {shown(kind)}; allowed are text, json_object, json_schema",
            param=f"{member}.type",
        )
    if kind == "text":
        return None
    if kind == "json_object":
        return dump({"type": "object"})
    wrapper, where = (form, member) if flat else (form.get("json_schema"), f"{member}.json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    if not isinstance(schema, dict):
        raise RequestError(f"{where}.schema must be an object", param=f"{where}.schema")
    return dump(schema)


def _tool(entry: object, path: str, *, flat: bool) -> Tool | None:
    """One declaration; None for a tool hosted by a provider, which this server cannot run."""
    if not isinstance(entry, dict):
        raise RequestError(f"{path} must be an object", param=path)
    if not flat and entry.get("type", "function") != "function":
        return None
    function = entry if flat else entry.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise RequestError(
            f"{path}.function.name is missing; a tool needs a name", param=f"{path}.function.name"
        )
    parameters = function.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError(
            f"{path}.function.parameters must be an object", param=f"{path}.function.parameters"
        )
    return Tool(name, dump(function), _types(parameters))


def _types(parameters: Mapping[str, object]) -> Mapping[str, tuple[str, ...]]:
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {str(key): _declared(value) for key, value in properties.items()}


def _declared(schema: object) -> tuple[str, ...]:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, str):
        return (kind,)
    return tuple(str(entry) for entry in kind) if isinstance(kind, list) else ()
