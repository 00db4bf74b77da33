"""The HTTP client of the gates: the OpenAI chat dialect over `httpx2`, with timings and deadlines.

Owns how one request is sent; no other module imports the HTTP library. What can become of it is in
`reply.py`, how an answer is read in `dialect.py`. Knows nothing of histories and verdicts.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import httpx2

from gates.harness.dialect import (
    StreamedReply,
    json_object,
    model_of,
    no_stream,
    raise_for_status,
    whole_reply,
)
from gates.harness.reply import NOTHING, ClientError, DeadlinePassed, Gone, Malformed, Model, Refused, Reply
from gates.harness.sse import EventParser

Message = Mapping[str, Any]
LOADING = 503
POLL_S = 0.2
SMALL_REPLY_S = 30.0  # for a whole reply that takes no computing
MOST_BYTES = 64 << 20  # of one answer: some hundred for each of 131,072 tokens, four times over
NO_STREAM = ("application/json", "text/html")  # what an error or a page before the server comes as
NO_SUCH_PATH = (404, 405)  # `/health` is a custom, not part of the dialect
# Members of no dialect that many servers know; others skip them, or refuse a request that has them.
OPTIONAL: Final = ("think", "thinking", "chat_template_kwargs", "return_token_ids", "cache_prompt")
UNKNOWN_MEMBER = (400, 422)


@cache
def _trusted() -> ssl.SSLContext:
    """Whose certificates are believed, read once: 50 ms of a processor, which each client would take anew."""
    return httpx2.create_ssl_context(trust_env=False)


class Client:
    """Talks to one server; safe for several threads, one connection each."""

    def __init__(
        self,
        base_url: str,
        *,
        deadline_s: float = 600.0,
        api_key: str | None = None,
        model: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self.deadline_s = deadline_s
        self.model = model  # the name that requests carry; some servers want one, empty leaves it out
        self.left_out: frozenset[str] = frozenset()  # optional members that the server has refused
        self._api_key = api_key
        self._clock = clock
        headers = {"accept-encoding": "identity", **self.credentials}  # bodies are read as they come
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        # trust_env off: a proxy of the host must not come between the gates and the server under test.
        self._http = httpx2.Client(
            base_url=self.base_url, headers=headers, limits=limits, trust_env=False, verify=_trusted()
        )

    @property
    def credentials(self) -> Mapping[str, str]:
        """The headers that open the server; empty for one without a key."""
        return {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}

    def fresh(self) -> Client:
        """A client of its own for the same server: it shares no connection with this one."""
        return Client(
            self.base_url,
            deadline_s=self.deadline_s,
            api_key=self._api_key,
            model=self.model,
            clock=self._clock,
        )

    def healthy(self, *, timeout_s: float = 5.0) -> bool:
        """Whether `/health` answers 200 within the time; without such a path, whether `/v1/models` does."""
        return self._health(timeout_s) == 200

    def ready(self, *, within_s: float) -> bool:
        """The same, but a server that says 503 (it loads, or is full) is asked again within the time."""
        end = self._clock() + within_s
        while (status := self._health(max(POLL_S, end - self._clock()))) == LOADING and self._clock() < end:
            time.sleep(POLL_S)
        return status == 200

    def _health(self, timeout_s: float) -> int | None:
        try:
            status, _ = self._get("/health", within_s=timeout_s)
            if status in NO_SUCH_PATH:
                status, _ = self._get("/v1/models", within_s=timeout_s)
        except (httpx2.HTTPError, ClientError):
            return None
        return status

    def listening(self) -> bool:
        """Whether a connection can be made at all; a server that hangs still listens."""
        try:
            self._get("/health", within_s=5.0)
        except (httpx2.ReadTimeout, httpx2.WriteTimeout, ClientError):
            return True
        except httpx2.HTTPError:
            return False
        return True

    def models(self) -> tuple[Model, ...]:
        """What `/v1/models` lists."""
        body = self._get_json("/v1/models")
        entries = body.get("data")
        if not isinstance(entries, list):
            raise Malformed(f"/v1/models: 'data' is {type(entries).__name__}, not a list")
        return tuple(model_of(entry) for entry in entries)

    def metrics(self) -> str:
        """The text of `/metrics`."""
        with _translated():
            status, content = self._get("/metrics", within_s=SMALL_REPLY_S)
        raise_for_status(status, content)
        return content.decode(errors="replace")

    def chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        seed: int | None = None,
        stream: bool = True,
        deadline_s: float | None = None,
        extra: Mapping[str, Any] = NOTHING,
    ) -> Reply:
        """Ask for one chat reply; `extra` members are added to the body. Raises a ClientError otherwise.

        Optional members that the server refuses are left out, from then on at once; the reply names them.
        """
        body: dict[str, Any] = {
            "messages": list(messages),
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        if self.model:
            body["model"] = self.model
        if seed is not None:
            body["seed"] = seed
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= extra
        deadline = self._clock() + (self.deadline_s if deadline_s is None else deadline_s)
        with _translated():
            return self._known(self._streamed if stream else self._whole, body, deadline)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get_json(self, path: str) -> Mapping[str, Any]:
        with _translated():
            status, content = self._get(path, within_s=SMALL_REPLY_S)
        raise_for_status(status, content)
        return json_object(content)

    def _get(self, path: str, *, within_s: float) -> tuple[int, bytes]:
        """Status and body; all of the body must come within the time, see `_chunks`."""
        deadline = self._clock() + within_s
        with self._http.stream("GET", path, timeout=within_s) as answer:
            return answer.status_code, b"".join(self._chunks(answer, deadline))

    def _known(
        self, send: Callable[[Mapping[str, Any], float], Reply], body: Mapping[str, Any], deadline: float
    ) -> Reply:
        """Send what the server knows of this body: not what it refused by name, if it takes the rest."""
        left_out = self.left_out
        while True:
            sent = {name: value for name, value in body.items() if name not in left_out}
            try:
                reply = send(sent, deadline)
            except Refused as error:
                refused = _named(error, sent)
                if not refused:
                    raise
                left_out |= refused
            else:
                self.left_out |= left_out
                return replace(reply, left_out=tuple(sorted(left_out & body.keys())))

    def _whole(self, body: Mapping[str, Any], deadline: float) -> Reply:
        start = self._clock()
        with self._http.stream("POST", "/v1/chat/completions", json=body, timeout=deadline - start) as answer:
            content = b"".join(self._chunks(answer, deadline))
            status, retry_after = answer.status_code, answer.headers.get("retry-after")
        raise_for_status(status, content, retry_after=retry_after)
        return whole_reply(json_object(content), self._clock() - start)

    def _streamed(self, body: Mapping[str, Any], deadline: float) -> Reply:
        start = self._clock()
        reply = StreamedReply()
        parser = EventParser()
        with self._http.stream("POST", "/v1/chat/completions", json=body, timeout=deadline - start) as answer:
            if answer.status_code != 200:
                content = b"".join(self._chunks(answer, deadline))
                raise_for_status(answer.status_code, content, retry_after=answer.headers.get("retry-after"))
            if answer.headers.get("content-type", "").startswith(NO_STREAM):
                raise no_stream(b"".join(self._chunks(answer, deadline)))
            for chunk in self._chunks(answer, deadline):
                now = self._clock() - start
                for event in parser.push(chunk):
                    reply.take(event, now)
        return reply.finish(self._clock() - start)

    def _chunks(self, answer: httpx2.Response, deadline: float) -> Iterator[bytes]:
        """The body as it comes; the library limits each read alone, which a body in drips never passes."""
        taken = 0
        for chunk in answer.iter_raw():
            if self._clock() > deadline:
                raise DeadlinePassed("the reply had not ended when its deadline passed")
            taken += len(chunk)
            if taken > MOST_BYTES:
                raise Malformed(f"the answer has more than {MOST_BYTES >> 10} KiB and does not end")
            yield chunk


def _named(error: Refused, sent: Mapping[str, Any]) -> frozenset[str]:
    """The optional members among those sent that a refusal names as its cause."""
    if error.status not in UNKNOWN_MEMBER:
        return frozenset()
    return frozenset(name for name in OPTIONAL if name in sent and re.search(rf"\b{name}\b", str(error)))


class _translated:  # noqa: N801  used like a function: `with _translated():`
    """Turns the HTTP library's exceptions into ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, httpx2.TimeoutException):
            raise DeadlinePassed(f"no answer in time ({type(error).__name__})") from error
        if isinstance(error, httpx2.RemoteProtocolError):
            raise Gone(f"the connection was cut: {error}") from error
        if isinstance(error, httpx2.HTTPError):
            raise Gone(f"no connection: {error}") from error
