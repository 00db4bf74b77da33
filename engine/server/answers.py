"""Whole answers: JSON bodies, and errors in the shape of the API family that a path belongs to."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from engine.errors import CapacityError, EngineError, MethodError, UnauthorizedError
from engine.server.dialects import anthropic, openai

UNEXPECTED = "the server failed on this request; it is not the request's fault"
ANTHROPIC_PATHS = ("/v1/messages", "/anthropic")


def json_response(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def error_response(error: EngineError, *, path: str, request_id: str) -> Response:
    """An error as the clients of that path expect it, with the headers that they act on."""
    headers = {}
    if isinstance(error, CapacityError):
        headers["Retry-After"] = str(error.retry_after_s)
        if not error.retryable:
            headers["x-should-retry"] = "false"
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, MethodError):
        headers["Allow"] = ", ".join(error.allowed)
    if path.startswith(ANTHROPIC_PATHS):
        body = anthropic.error_body(error, request_id=request_id)
    else:
        body = openai.error_body(error)
    return json_response(body, status=error.status, headers=headers)
