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


def read_tools(body: Mapping[str, object]) -> tuple[Tool, ...]:
    """The active tools in the client's order; empty when there are none or the choice is `none`.

    Raises RequestError for a wrong declaration, and for a choice that would have to be enforced.
    """
    tools, member = body.get("tools"), "tools"
    if tools is None and body.get("functions") is not None:
        tools, member = body.get("functions"), "functions"
    if tools is None:
        tools = []
    if not isinstance(tools, list):
        raise RequestError(f"{member} must be a list of tools", param=member)
    declared = [_tool(entry, f"{member}.{i}", flat=member == "functions") for i, entry in enumerate(tools)]
    return tuple(tool for tool in declared if tool) if _choice_allows(body, declared=bool(tools)) else ()


def read_response_schema(body: Mapping[str, object]) -> str | None:
    """JSON text of the schema the answer should follow, or None for free text."""
    form = body.get("response_format")
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if not isinstance(form, dict) or kind not in ("text", "json_object", "json_schema"):
        raise RequestError(
            f"response_format.type is {shown(kind)}; allowed are text, json_object, json_schema",
            param="response_format.type",
        )
    if kind == "text":
        return None
    if kind == "json_object":
        return dump({"type": "object"})
    wrapper = form.get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    if not isinstance(schema, dict):
        raise RequestError(
            "response_format.json_schema.schema must be an object", param="response_format.json_schema.schema"
        )
    return dump(schema)


def _choice_allows(body: Mapping[str, object], *, declared: bool) -> bool:
    choice = body.get("tool_choice", body.get("function_call"))
    if choice in (None, "auto"):
        return True
    if choice == "none":
        return False
    if not declared and choice == "required":
        raise RequestError("tool_choice is 'required' but there are no tools", param="tool_choice")
    if choice == "required" or isinstance(choice, dict):
        raise RequestError(
            "tool_choice cannot be enforced by this server; allowed are 'auto' and 'none'",
            param="tool_choice",
            code="unsupported_parameter",
        )
    raise RequestError(f"tool_choice is {shown(choice)}; allowed are 'auto' and 'none'", param="tool_choice")


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
