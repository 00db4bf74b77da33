"""Reads a request body within its limits and decodes its JSON strictly.

Owns the limits of size, time and nesting.  Knows nothing of what the members mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from starlette.requests import ClientDisconnect, Request

from engine.chat.strict import read_json
from engine.errors import BodyEncodingError, BodyTimeoutError, BodyTooLargeError, RequestError, shown
from engine.server.stream import ClientGoneError
from engine.server.traffic import Traffic

MAX_DEPTH = 256
MAX_VALUES = 2**20  # more than any context holds; reading so many takes a third of a second
PATIENCE = 10  # a whole body may take this many times the longest silence


async def read_body(request: Request, *, limit: int, timeout_s: float, traffic: Traffic) -> bytes:
    """All bytes of the body; `timeout_s` is the longest silence in it, and `PATIENCE` times that the whole.

    What was read so far stands in `traffic` meanwhile.

    Raises RequestError for a body outside the limits, ClientGoneError when the client leaves before its end.
    """
    encodings = ", ".join(request.headers.getlist("content-encoding"))
    if encodings.lower() not in ("", "identity"):
        raise BodyEncodingError(f"content-encoding is {shown(encodings)}; send the body uncompressed")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    total = 0
    try:
        async for part in _parts(request, timeout_s):
            total += len(part)
            traffic.body_bytes += len(part)
            if total > limit:
                raise _too_large(limit)
            parts.append(part)
        return b"".join(parts)
    finally:
        traffic.body_bytes -= total


async def _parts(request: Request, timeout_s: float) -> AsyncIterator[bytes]:
    stream = aiter(request.stream())
    clock = asyncio.get_running_loop().time
    end = clock() + PATIENCE * timeout_s
    while True:
        if clock() > end:
            raise BodyTimeoutError(
                f"the body was not whole after {PATIENCE * timeout_s:g} s, which is all that it may take; "
                "send it faster, or a shorter one"
            )
        try:
            yield await asyncio.wait_for(anext(stream), timeout_s)
        except StopAsyncIteration:
            return
        except ClientDisconnect:
            raise ClientGoneError from None
        except TimeoutError:
            raise BodyTimeoutError(
                f"no byte of the body came for {timeout_s:g} s, which is the longest pause allowed; "
                "send all of it at once"
            ) from None


def decode_object(body: bytes) -> Mapping[str, object]:
    """The JSON object of a body in UTF-8; raises RequestError for anything else.

    JSON of other encodings is refused: its marks could not be counted before it is decoded.
    """
    if not body.strip():
        raise _invalid("the body is empty")
    if _too_many_values(body):
        raise _invalid(f"the body holds more than {MAX_VALUES} values")
    try:
        value = read_json(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise _invalid(f"the body is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise _invalid(f"the body is a JSON {type(value).__name__}")
    if _deeper_than(value, MAX_DEPTH):
        raise _invalid(f"the body nests deeper than {MAX_DEPTH} levels")
    return value


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body exceeds {limit} bytes; send a shorter conversation")


def _invalid(what: str) -> RequestError:
    return RequestError(f"{what}; send one JSON object", code="invalid_json")


def _too_many_values(body: bytes) -> bool:
    """Whether decoding would hold up everybody: it cannot be interrupted, and many tiny lists take seconds.

    Each value but the first follows a bracket, a brace or a comma.  Where those in texts do not settle it,
    texts are taken out.
    """
    if _marks(body) < MAX_VALUES:
        return False
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(b'"') > 2 * MAX_VALUES:
        return True
    return _marks(b"".join(bare.split(b'"')[::2])) >= MAX_VALUES


def _marks(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{") + body.count(b",")


def _deeper_than(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [child for entry in level for child in _children(entry)]
        if not level:
            return False
    return True


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return [child for child in value.values() if isinstance(child, dict | list)]
    return [child for child in value if isinstance(child, dict | list)] if isinstance(value, list) else []
