"""A real server on the loopback whose model says what a test wants it to say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine.cache.pages import Ledger
from engine.chat.markers import ASSISTANT, BOS, DSML, END_THINK, EOS, THINK, USER
from engine.config import EngineSettings, ServerSettings, Settings
from engine.server.loading import assemble
from engine.server.serve import Server
from engine.server.service import Service
from engine.tests.fake_pages import ledger
from engine.tests.fake_runner import FakeRunner
from engine.tokenizer import Tokenizer, TokenType, byte_symbols

CONTEXT = 4000
MARKERS = (BOS, EOS, "<｜▁pad▁｜>", USER, ASSISTANT, THINK, END_THINK, DSML)


def byte_tokenizer() -> Tokenizer:
    """One token a byte, and the markers."""
    tokens = [*MARKERS[:3], *byte_symbols(), *MARKERS[3:]]
    types = [int(TokenType.CONTROL)] * 3 + [int(TokenType.NORMAL)] * 256
    return Tokenizer(tokens, types + [int(TokenType.CONTROL)] * (len(tokens) - len(types)), [])


@dataclass(slots=True)
class Script:
    """What the model writes after a chat, or after the text of one; marker texts in it become markers.

    After a prompt without chat format it writes the alphabet: again and again, or `once`.
    One that is not `certain` has no script: its logits are noise, so that what is drawn depends on seeds.
    """

    answer: str | Callable[[str], str] = "Hello there."
    tokenizer: Tokenizer = field(default_factory=byte_tokenizer)
    before_step: Callable[[list[list[int]]], object] | None = None
    ledger: Ledger = field(default_factory=ledger)
    certain: bool = True
    once: bool = False
    _written: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def runner(self) -> FakeRunner:
        """A runner that follows the script."""
        following = self._next if self.certain else None
        return FakeRunner(len(self.tokenizer), following, self.before_step, ledger=self.ledger)

    def _next(self, tokens: tuple[int, ...]) -> int:
        if self.tokenizer.special(ASSISTANT) not in tokens:
            letter = len(tokens) % 26
            if self.once and letter == 25:
                return self.tokenizer.special(EOS)
            return self.tokenizer.encode(chr(ord("a") + letter))[0]
        opening = len(tokens) - 1 - tokens[::-1].index(self.tokenizer.special(ASSISTANT))
        done = len(tokens) - (opening + 2)  # the thinking marker belongs to the prompt
        written = self._answer_to(tokens[:opening])
        return written[done] if 0 <= done < len(written) else self.tokenizer.special(EOS)

    def _answer_to(self, prompt: tuple[int, ...]) -> list[int]:
        if prompt not in self._written:
            fixed = isinstance(self.answer, str)
            self._written[prompt] = self._ids("" if fixed else self.tokenizer.decode(prompt))
        return self._written[prompt]

    def _ids(self, prompt: str) -> list[int]:
        ids: list[int] = []
        rest = self.answer if isinstance(self.answer, str) else self.answer(prompt)
        while rest:
            found = next((name for name in (THINK, END_THINK, DSML) if rest.startswith(name)), None)
            piece = found or rest[0]
            ids += [self.tokenizer.special(piece)] if found else self.tokenizer.encode(piece)
            rest = rest[len(piece) :]
        return ids


@dataclass(frozen=True, slots=True)
class Live:
    """A running server."""

    server: Server
    base_url: str

    @property
    def service(self) -> Service:
        """What is loaded."""
        return self.server.host.service

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.server.port


@contextmanager
def live_server(
    script: Script | None = None,
    *,
    wait: bool = True,
    before_load: Callable[[], object] | None = None,
    engine: EngineSettings | None = None,
    grace_s: float = 0.0,
    **server_settings: object,
) -> Iterator[Live]:
    """Start a server on a free port and stop it afterwards; `wait` for the model to be loaded."""
    script = script or Script()
    settings = Settings(
        engine=engine or EngineSettings(),
        server=ServerSettings(port=0, grace_s=grace_s, default_temperature=0.0, **server_settings),  # type: ignore[arg-type]
    )

    def load() -> Service:
        if before_load is not None:
            before_load()
        return assemble(
            script.runner(), script.tokenizer, settings=settings, context=CONTEXT, name="Script Model"
        )

    server = Server(settings, load)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        if wait:
            until(lambda: server.host.status == "ok")
        yield Live(server, f"http://127.0.0.1:{server.port}")
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something to become true; AssertionError when it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)
