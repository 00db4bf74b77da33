"""The ASGI application: routes, errors in the clients' own shape, request ids.

Every path of this server is listed here.  Knows nothing of what the endpoints do.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.config import ServerSettings
from engine.errors import (
    CapacityError,
    EngineError,
    MethodError,
    NotFoundError,
    RequestError,
    UnauthorizedError,
)
from engine.server.chat import ChatEndpoint, json_response
from engine.server.ids import request_id
from engine.server.openai import error_body
from engine.server.service import Host
from engine.server.status import StatusEndpoint
from engine.server.stream import ClientGoneError

log = logging.getLogger("engine.server")
OPEN_PATHS = ("/health", "/healthz")
CLIENT_GONE = 499  # nobody reads it; it only marks the log


def build_app(host: Host, settings: ServerSettings, *, fingerprint: str) -> Doorway:
    """The whole server as one ASGI application."""
    chat, status = ChatEndpoint(host, settings, fingerprint), StatusEndpoint(host)
    routes = [
        *_both("/v1/chat/completions", chat.complete, "POST"),
        *_both("/v1/models", status.models, "GET"),
        *_both("/v1/models/{model:path}", status.model, "GET"),
        Route("/tokenize", chat.tokenize, methods=["POST"]),
        Route("/health", status.health, methods=["GET"]),
        Route("/healthz", status.health, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            EngineError: _engine_error,
            HTTPException: _http_error,
            ClientGoneError: _client_gone,
            Exception: _unexpected,
        },
    )
    app.router.redirect_slashes = False
    return Doorway(app, settings.api_key)


class Doorway:
    """Wraps the application: tolerates a trailing slash, asks for the key, gives every response an id."""

    def __init__(self, app: Starlette, api_key: str) -> None:
        self.app = app
        self._key = _digest(api_key.encode()) if api_key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        name = request_id().encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), (b"x-request-id", name)]
                message = {**message, "headers": headers}
            await send(message)

        path = scope["path"].rstrip("/") or "/"
        inner: ASGIApp = self.app
        if not self._allows(scope, path):
            inner = error_response(
                UnauthorizedError("the API key is missing or wrong; send it as Authorization: Bearer KEY")
            )
        await inner({**scope, "path": path}, receive, send_with_id)

    def _allows(self, scope: Scope, path: str) -> bool:
        """Every path but the health needs the key; all comparisons take the same time."""
        if self._key is None or path in OPEN_PATHS:
            return True
        headers = dict(scope["headers"])
        bearer = headers.get(b"authorization", b"").removeprefix(b"Bearer ").strip()
        by_bearer = hmac.compare_digest(self._key, _digest(bearer))
        by_header = hmac.compare_digest(self._key, _digest(headers.get(b"x-api-key", b"")))
        return by_bearer or by_header


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _both(path: str, endpoint: Callable[..., Any], method: str) -> list[Route]:
    """The path itself and the same without its version, which some clients leave out."""
    return [Route(spelling, endpoint, methods=[method]) for spelling in (path, path.removeprefix("/v1"))]


def error_response(error: EngineError) -> Response:
    """An error in the shape and with the headers that clients act on."""
    headers = {}
    if isinstance(error, CapacityError):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, MethodError):
        headers["Allow"] = ", ".join(error.allowed)
    return json_response(error_body(error), status=error.status, headers=headers)


async def _engine_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    return error_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path[:200]}"
    if error.status_code == 404:
        return error_response(NotFoundError(f"there is no {where}; chat lives at POST /v1/chat/completions"))
    if error.status_code == 405:
        allowed = tuple((error.headers or {}).get("Allow", "").split(", "))
        return error_response(MethodError(f"{where} is not possible; use {allowed[0]}", allowed=allowed))
    return error_response(RequestError(str(error.detail)))


async def _client_gone(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)


async def _unexpected(_: Request, error: Exception) -> Response:
    log.error("event=request_failed error=%s", type(error).__name__)
    return error_response(EngineError("the server failed on this request; it is not the request's fault"))
