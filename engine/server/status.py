"""GET /health and /v1/models: what is loaded, and whether it can be used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.errors import NotFoundError, shown
from engine.server.answers import json_response
from engine.server.openapi import describe
from engine.server.service import Host

ALIASES = ("deepseek-chat", "deepseek-reasoner")  # other names of whatever is loaded; they set thinking
PARAMETERS = (
    *("tools", "tool_choice", "max_tokens", "temperature", "top_p", "top_k", "min_p"),
    *("stop", "seed", "stream", "reasoning_effort", "response_format"),
)


@dataclass(frozen=True, slots=True)
class StatusEndpoint:
    """Answers about the loaded model."""

    host: Host
    fingerprint: str

    async def description(self, _: Request) -> Response:
        """What can be asked, in the OpenAPI form."""
        return json_response(describe(self.fingerprint))

    async def health(self, _: Request) -> Response:
        """200 when requests are taken, else 503; never waits for the engine."""
        if self.host.status != "ok":
            return json_response({"status": self.host.status}, status=503, headers={"Retry-After": "1"})
        body = {
            "status": "ok",
            "model": self.host.service.model_id,
            "uptime_s": round(self.host.uptime_s, 3),
        }
        return json_response(body)

    async def models(self, _: Request) -> Response:
        """Exactly one model: the loaded one."""
        model = self._model()
        listing = {"object": "list", "data": [model], "has_more": False}
        return json_response({**listing, "first_id": model["id"], "last_id": model["id"]})

    async def model(self, request: Request) -> Response:
        """The loaded model by its id or an alias."""
        wanted = request.path_params["model"]
        model = self._model()
        if wanted not in (model["id"], *ALIASES):
            raise NotFoundError(
                f"model {shown(wanted)} is not loaded; {model['id']!r} is",
                param="model",
                code="model_not_found",
            )
        return json_response(model)

    def _model(self) -> dict[str, Any]:
        service = self.host.service
        context = service.context
        limits = {"context_length": context, "max_completion_tokens": context, "is_moderated": False}
        return {
            "id": service.model_id,
            "object": "model",
            "type": "model",
            "created": self.host.created,
            "created_at": datetime.fromtimestamp(self.host.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "owned_by": "sparkgate",
            "display_name": service.display_name,
            "name": service.display_name,
            "context_length": context,
            "max_model_len": context,
            "context_window": context,
            "max_output_tokens": context,
            "top_provider": limits,
            "supported_parameters": list(PARAMETERS),
        }
