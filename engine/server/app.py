"""The ASGI application: every path of this server, and what becomes of errors.

Knows nothing of what the endpoints do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.config import ServerSettings
from engine.errors import EngineError, MethodError, NotFoundError, RequestError
from engine.server.answers import UNEXPECTED, error_response
from engine.server.dialects.anthropic import AnthropicMessages
from engine.server.dialects.completions import OpenAICompletions
from engine.server.dialects.openai import OpenAIChat
from engine.server.dialects.responses import OpenAIResponses
from engine.server.doorway import Doorway
from engine.server.endpoint import AnswerEndpoint, Intake
from engine.server.service import Host
from engine.server.stats import StatsEndpoint
from engine.server.status import StatusEndpoint
from engine.server.stream import ClientGoneError
from engine.server.tokens import TokenEndpoint

log = logging.getLogger("engine.server")
CLIENT_GONE = 499  # nobody reads it; it only marks the log


def build_app(host: Host, settings: ServerSettings, *, fingerprint: str) -> Doorway:
    """The whole server as one ASGI application."""
    app = Starlette(
        routes=build_routes(host, settings, fingerprint=fingerprint),
        exception_handlers={
            EngineError: _engine_error,
            HTTPException: _http_error,
            ClientGoneError: _client_gone,
            Exception: _unexpected,
        },
    )
    app.router.redirect_slashes = False
    return Doorway(app, settings, host)


def build_routes(host: Host, settings: ServerSettings, *, fingerprint: str) -> list[Route]:
    """All paths; every one but the health asks for the key, where there is one."""
    intake, status = Intake(host, settings, fingerprint), StatusEndpoint(host, fingerprint)
    tokens, stats = TokenEndpoint(intake), StatsEndpoint(host, settings, fingerprint)
    message = AnswerEndpoint(intake, AnthropicMessages()).answer
    return [
        *_both("/v1/chat/completions", AnswerEndpoint(intake, OpenAIChat()).answer, "POST"),
        *_both("/v1/completions", AnswerEndpoint(intake, OpenAICompletions()).answer, "POST"),
        *_both("/v1/responses", AnswerEndpoint(intake, OpenAIResponses()).answer, "POST"),
        Route("/v1/messages", message, methods=["POST"]),
        Route("/anthropic/v1/messages", message, methods=["POST"]),
        Route("/v1/messages/count_tokens", tokens.count, methods=["POST"]),
        Route("/anthropic/v1/messages/count_tokens", tokens.count, methods=["POST"]),
        *_both("/v1/models", status.models, "GET"),
        *_both("/v1/models/{model:path}", status.model, "GET"),
        Route("/tokenize", tokens.tokenize, methods=["POST"]),
        Route("/detokenize", tokens.detokenize, methods=["POST"]),
        Route("/openapi.json", status.description, methods=["GET"]),
        Route("/metrics", stats.metrics, methods=["GET"]),
        *_both("/v1/stats", stats.stats, "GET"),
        Route("/health", status.health, methods=["GET"]),
        Route("/healthz", status.health, methods=["GET"]),
    ]


def _both(path: str, endpoint: Callable[..., Any], method: str) -> list[Route]:
    """The path itself and the same without its version, which some clients leave out."""
    return [Route(spelling, endpoint, methods=[method]) for spelling in (path, path.removeprefix("/v1"))]


def _answer_error(request: Request, error: EngineError) -> Response:
    return error_response(error, path=request.url.path, request_id=request.state.request_id)


async def _engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    return _answer_error(request, error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path[:200]}"
    if error.status_code == 404:
        missing = NotFoundError(f"there is no {where}; chat lives at POST /v1/chat/completions")
        return _answer_error(request, missing)
    if error.status_code == 405:
        allowed = tuple(sorted((error.headers or {}).get("Allow", "").split(", ")))  # GET before HEAD
        return _answer_error(
            request, MethodError(f"{where} is not possible; use {allowed[0]}", allowed=allowed)
        )
    return _answer_error(request, RequestError(str(error.detail)))


async def _client_gone(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("event=request_failed request=%s error=%s", request.state.request_id, type(error).__name__)
    return _answer_error(request, EngineError(UNEXPECTED))
