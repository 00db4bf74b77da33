"""A small chat on the terminal, against any server that speaks the OpenAI chat dialect.

Owns the commands and what is shown.  Speaks HTTP with the standard library alone.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from engine.errors import EngineError, SettingError, shown

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
CONNECT_S = 10
TIMEOUT_S = 600  # a long prompt takes minutes before its first token; comments come meanwhile
HELP = (
    "/new begins again, /system TEXT, /think on|off, /help, /quit; Ctrl-C stops an answer;"
    " a text that begins with / is sent when it is typed with //"
)


class TalkError(EngineError):
    """The server cannot be reached or refused the request; the message is for the person."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where the server is; `base` is the path before /chat/completions."""

    secure: bool
    host: str
    base: str
    key: str = field(default="", repr=False)

    @classmethod
    def at(cls, url: str, *, key: str = "") -> Server:
        """From a base URL such as http://127.0.0.1:8000/v1."""
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # of brackets or of a port that make no address
            usable = False
        if not usable or "@" in parts.netloc or re.search(r"\s", url):
            raise SettingError(f"--base-url is {shown(url)}; it must look like http://127.0.0.1:8000/v1")
        if not (key.isascii() and key.isprintable()):
            raise SettingError("the API key holds a character that no header can carry; use plain ASCII")
        return cls(parts.scheme == "https", parts.netloc, parts.path.rstrip("/"), key)

    def check(self) -> None:
        """TalkError where nobody listens, before anything is typed."""
        connection = self._connection(CONNECT_S)
        try:
            connection.connect()
        except (OSError, ValueError) as error:
            raise self._out_of_reach(error) from None
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        connect = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        return connect(self.host, timeout=timeout_s)

    def _out_of_reach(self, error: Exception) -> TalkError:
        why = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        hint = "`engine serve` starts one here, --base-url names another"
        return TalkError(f"the server at {self.host} cannot be reached: {why}; {hint}")

    def stream(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """All events of one streamed answer; TalkError when there is none."""
        connection = self._connection(TIMEOUT_S)
        headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {self.key}"} if self.key else {}
        )
        try:
            connection.request("POST", f"{self.base}/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise TalkError(_reason(answer.read(), answer.status))
            yield from _events(answer)
        except (
            OSError,
            ValueError,
            http.client.HTTPException,
        ) as error:  # ValueError: a name that is no host
            raise self._out_of_reach(error) from None
        finally:
            connection.close()


def _events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in answer:
        data = line.strip().removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        try:
            event = json.loads(data)
        except ValueError:
            raise TalkError("the server sent something that is no JSON") from None
        if isinstance(event, dict):
            if "error" in event:
                raise TalkError(_reason(data, 500))
            yield event


def _reason(body: bytes, status: int) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {status}"


@dataclass(slots=True)
class Talk:
    """One conversation; `show` puts text on the screen, `colour` allows dim text for reasoning."""

    server: Server
    show: Callable[[str], None]
    options: dict[str, Any] = field(default_factory=dict)
    system: str = ""
    colour: bool = False
    messages: list[dict[str, str]] = field(default_factory=list)

    def run(self, read: Callable[[], str]) -> bool:
        """Talk until the end of the input; whether the last text got an answer."""
        self.show(f"{self.server.host}; {HELP}\n")
        answered = True
        while True:
            try:
                line = read().strip()
            except EOFError:
                self.show("\n")
                return answered
            except KeyboardInterrupt:
                self.show("\n")
                continue
            except UnicodeDecodeError:
                self.show("this line is not in the encoding of the terminal; it is not sent\n")
                continue
            if line == "/quit":
                return answered
            if line.startswith("/") and not line.startswith("//"):
                self._command(line)
            elif line:
                answered = self._ask(line.removeprefix("/"))

    def _command(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word, rest.strip():
            case "/new", _:
                self.messages.clear()
                self.show("a new conversation\n")
            case "/system", text:
                self.system = text
                self.show("the system text is set\n" if text else "there is no system text\n")
            case "/think", ("on" | "off") as state:
                self.options["enable_thinking"] = state == "on"
                self.show(f"thinking is {state}\n")
            case "/help", _:
                self.show(f"{HELP}\n")
            case _:
                self.show(_harmless(f"{line[:40]} is no command, and nothing is sent\n{HELP}\n"))

    def _ask(self, text: str) -> bool:
        self.messages.append({"role": "user", "content": text})
        try:
            content = self._answer()
        except TalkError as error:
            self.messages.pop()
            self.show(_harmless(f"{error}\n"))
            return False
        self.messages.append({"role": "assistant", "content": content})
        return True

    def _answer(self) -> str:
        """Show one answer while it comes; what there is of it when Ctrl-C stops it."""
        head = [{"role": "system", "content": self.system}] if self.system else []
        body = {"messages": [*head, *self.messages], "stream": True, **self.options}
        body["stream_options"] = {"include_usage": True}
        content, closing = "", ""
        screen = _Screen(self.show, self.colour)
        try:
            for event in self.server.stream(body):
                for choice in event.get("choices") or []:
                    delta = choice.get("delta") or {}
                    screen.put(delta.get("reasoning_content") or "", dim=True)
                    screen.put(delta.get("content") or "", dim=False)
                    content += delta.get("content") or ""
                closing = _closing(event) or closing
        except (AttributeError, TypeError, ValueError):  # it is JSON, but of another shape
            raise TalkError("the server sent an event that is no chunk of a chat") from None
        except KeyboardInterrupt:
            closing = "[stopped]"
        screen.put(f"\n{closing}\n" if closing else "\n", dim=True)
        screen.end()
        return content


@dataclass(slots=True)
class _Screen:
    """Text in two shades; a line break stands between them."""

    show: Callable[[str], None]
    colour: bool
    _dim: bool | None = None

    def put(self, text: str, *, dim: bool) -> None:
        """Show text in one shade."""
        if not text:
            return
        text = _harmless(text)
        if dim != self._dim:
            self.show(("\n" if self._dim else "") + ((DIM if dim else PLAIN) if self.colour else ""))
            self._dim = dim
        self.show(text)

    def end(self) -> None:
        """Leave the screen as it was."""
        if self.colour:
            self.show(PLAIN)


def _harmless(text: str) -> str:
    """Text without what commands a terminal: a model, or a server, may write anything."""
    return _COMMANDS.sub("\ufffd", text.replace("\r", ""))


def _closing(event: Mapping[str, Any]) -> str:
    """Counts and rates of an answer, as far as the server tells them."""
    usage, times = event.get("usage") or {}, event.get("timings") or {}
    found = [f"{usage['completion_tokens']} tokens"] if "completion_tokens" in usage else []
    if "ttft_ms" in times:
        found.append(f"first after {times['ttft_ms'] / 1000:.2f} s")
    if "decode_tok_s" in times:
        found.append(f"{times['decode_tok_s']:.1f} tok/s")
    if times.get("prefill_cached"):
        found.append(f"{times['prefill_cached']} of {times['prefill_tokens']} prompt tokens cached")
    return f"[{', '.join(found)}]" if found else ""
