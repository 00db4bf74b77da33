"""What every request passes before its route: path spellings, CORS, the API key, a request id.

Knows nothing of what the endpoints do.
"""

from __future__ import annotations

import hashlib
import hmac

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.config import ServerSettings
from engine.errors import HeadTooLargeError, RequestError, UnauthorizedError
from engine.server.answers import error_response
from engine.server.ids import request_id
from engine.server.service import Host

MAX_HEADERS = 100
OPEN_PATHS = ("/health", "/healthz")
CORS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", b"*"),
]


class Doorway:
    """Wraps the application.  The request id is in the scope's state, and in a header of every response."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, host: Host) -> None:
        self.app = app
        self._host = host
        self._keys = tuple(_digest(key.encode()) for key in settings.keys)
        self._extra = CORS if settings.cors else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        name = request_id()
        extra = [(b"x-request-id", name.encode()), *self._extra]

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        path = scope["path"].rstrip("/") or "/"
        scope = {**scope, "path": path, "state": {"request_id": name, "tenant": ""}}
        await self._inner(scope)(scope, receive, send_with_id)

    def _inner(self, scope: Scope) -> ASGIApp:
        if (error := _ambiguous(scope)) is not None:
            answer = error_response(error, path=scope["path"], request_id=scope["state"]["request_id"])
            answer.headers["connection"] = "close"  # what follows on this connection may be part of the body
            return answer
        if scope["method"] == "OPTIONS":
            return Response(status_code=204)
        tenant = self._tenant(scope)
        if tenant is not None:
            scope["state"]["tenant"] = tenant
            return self.app
        if self._host.metrics is not None:
            self._host.metrics.reject("unauthorized")
        error = UnauthorizedError(
            "the API key is missing or wrong; send it as Authorization: Bearer KEY or as x-api-key: KEY"
        )
        return error_response(error, path=scope["path"], request_id=scope["state"]["request_id"])

    def _tenant(self, scope: Scope) -> str | None:
        """Who asks, by the key; None is let in nowhere.

        Every path but the health needs a key; all comparisons are made and take the same time.
        Where every key is accepted, everybody is the same tenant.
        """
        if not self._keys or scope["path"] in OPEN_PATHS:
            return ""
        headers = dict(scope["headers"])
        authorization = headers.get(b"authorization", b"").strip()
        scheme, _, rest = authorization.partition(b" ")
        bearer = rest.strip() if scheme.lower() == b"bearer" else authorization
        given = (_digest(bearer), _digest(headers.get(b"x-api-key", b"")))
        matches = [[hmac.compare_digest(key, sent) for sent in given] for key in self._keys]
        found = [key for key, same in zip(self._keys, matches, strict=True) if any(same)]
        return found[0].hex() if found else None


def _ambiguous(scope: Scope) -> RequestError | None:
    """What is wrong with a head that a proxy before us may have read in another way."""
    names = {name for name, _ in scope["headers"]}
    if len(scope["headers"]) > MAX_HEADERS:
        return HeadTooLargeError(f"the request has more than {MAX_HEADERS} header lines; send fewer")
    if {b"content-length", b"transfer-encoding"} <= names:
        return RequestError("the request has both content-length and transfer-encoding; send one of them")
    if scope["http_version"] not in ("1.0", "1.1"):
        return RequestError("the request is not HTTP/1.1; this server speaks nothing else")
    return None


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
