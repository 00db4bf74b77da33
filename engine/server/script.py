"""A runner that writes recorded model output instead of computing: for tests of clients, never for users.

Everything else is real: tokenizer, scheduler, sampler, parser and API.
Knows the format of a script; what it writes follows from the prompt alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.cache.pages import Ledger, PageTable
from engine.cache.view import ROWS
from engine.chat.dsml import split_markers
from engine.chat.markers import DSML, END_THINK, EOS, THINK, Markers
from engine.config import Settings
from engine.core import Logits
from engine.errors import SettingError, shown
from engine.gguf.file import GGUFFile
from engine.server.loading import assemble
from engine.server.service import Service
from engine.tokenizer import Tokenizer

CONTEXT = 131_072  # tokens: agents begin with tens of kilobytes of tool schemas
PAGE_TOKENS = 128
CERTAIN = 50.0  # the logit of the recorded token; all others are at 0


@dataclass(frozen=True, slots=True)
class Line:
    """One recorded answer: `write` is raw model output, with its marks spelled out.

    It is taken for the first prompt whose last user turn `when` matches and that has `turn` assistant turns
    before it; absent conditions match everything.
    """

    write: str
    when: re.Pattern[str] | None = None
    turn: int | None = None

    def fits(self, last: str, turn: int) -> bool:
        """This line answers a prompt with that last user turn."""
        return (self.turn is None or self.turn == turn) and (
            self.when is None or bool(self.when.search(last))
        )


def read_script(path: Path) -> tuple[Line, ...]:
    """The lines of a script file: a JSON list of objects; SettingError for anything else."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"script {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SettingError(f"script {path} is not JSON: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise SettingError(f"script {path} must be a list of answers that is not empty")
    return tuple(_line(entry, f"{path}, answer {index}") for index, entry in enumerate(entries))


def _line(entry: object, where: str) -> Line:
    members = entry if isinstance(entry, dict) else {}
    unknown = members.keys() - {"write", "when", "turn"}
    write, when, turn = (members.get(name) for name in ("write", "when", "turn"))
    if unknown or not isinstance(write, str):
        raise SettingError(
            f"{where}: needs a text `write`, and may have `when` and `turn`; found {shown(entry)}"
        )
    if turn is not None and (isinstance(turn, bool) or not isinstance(turn, int)):
        raise SettingError(f"{where}: turn must be a whole number, found {shown(turn)}")
    if when is not None and not isinstance(when, str):
        raise SettingError(f"{where}: when must be a pattern, found {shown(when)}")
    try:
        return Line(write, re.compile(when) if when is not None else None, turn)
    except re.error as error:
        raise SettingError(f"{where}: when is no pattern: {error}") from None


@dataclass(frozen=True, slots=True)
class _Frozen:
    tokens: tuple[int, ...]
    nbytes: int = 0

    @property
    def length(self) -> int:
        """Tokens in it."""
        return len(self.tokens)


@dataclass(slots=True)
class ScriptCache:
    """A sequence that is just its tokens, and the answer that was found for its prompt."""

    table: PageTable
    tokens: list[int] = field(default_factory=list)
    prompt: int = -1  # tokens before the answer that is being written
    answer: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Tokens seen."""
        return len(self.tokens)

    @property
    def own_bytes(self) -> int:
        """None worth counting."""
        return 0

    def snapshot(self) -> _Frozen:
        """These tokens."""
        return _Frozen(tuple(self.tokens))

    def arrays(self, _: Mapping[int, _Frozen]) -> dict[str, NDArray[Any]]:
        """The tokens, of which all snapshots are heads."""
        return {f"{ROWS}0": np.array(self.tokens, np.int32)}

    def fill(
        self, length: int, anchors: Sequence[int], arrays: Mapping[str, NDArray[Any]]
    ) -> dict[int, _Frozen]:
        """The same tokens again."""
        self.tokens, self.prompt = arrays[f"{ROWS}0"].tolist()[:length], -1
        return {at: _Frozen(tuple(self.tokens[:at])) for at in anchors}

    def resume(self, snapshot: _Frozen, _: tuple[int, int] | None) -> None:
        """Begin with the tokens of a snapshot."""
        self.tokens, self.prompt = list(snapshot.tokens), -1


class ScriptRunner:
    """Writes the lines of a script."""

    def __init__(self, lines: Sequence[Line], tokenizer: Tokenizer) -> None:
        self._lines = lines
        self._tokenizer = tokenizer
        self._markers = Markers.of(tokenizer)
        self.ledger = Ledger(pages=2**14, page_tokens=PAGE_TOKENS, page_bytes=PAGE_TOKENS)
        self.device_bytes = 0

    def new_cache(self, table: PageTable) -> ScriptCache:
        """Nothing seen yet."""
        return ScriptCache(table)

    def step(self, slices: Sequence[tuple[ScriptCache, Sequence[int]]]) -> Logits:
        """See more tokens; the recorded token of each is certain, [B, V]."""
        logits = np.zeros((len(slices), len(self._tokenizer)), np.float32)
        for row, (cache, tokens) in zip(logits, slices, strict=True):
            cache.tokens.extend(tokens)
            row[self._next(cache)] = CERTAIN
        return logits

    def _next(self, cache: ScriptCache) -> int:
        """The token after what was seen; the end where no chat was asked or the answer is over."""
        seen, assistant = cache.tokens, self._markers.assistant
        opening = len(seen) - 1
        while opening >= 0 and seen[opening] != assistant:
            opening -= 1
        done = len(seen) - (opening + 2)  # the thinking mark belongs to the prompt
        if opening < 0 or done < 0:
            return self._markers.eos
        if cache.prompt != opening:
            cache.prompt, cache.answer = opening, self._answer(seen[: opening + 2])
        return cache.answer[done] if done < len(cache.answer) else self._markers.eos

    def _answer(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """The ids of the first line that fits; nothing where none does."""
        user = max((at for at, token in enumerate(prompt) if token == self._markers.user), default=0)
        last = self._tokenizer.decode(prompt[user + 1 : -2])
        turn = sum(token == self._markers.assistant for token in prompt) - 1
        line = next((line for line in self._lines if line.fits(last, turn)), None)
        text = line.write if line else ""
        if prompt[-1] == self._markers.end_think and END_THINK in text:
            text = text.split(END_THINK, 1)[1]  # recorded with thinking, asked without
        ids: list[int] = []
        for piece in split_markers(text, (DSML, THINK, END_THINK, EOS)):
            special = piece.is_marker
            ids += [self._tokenizer.special(piece.text)] if special else self._tokenizer.encode(piece.text)
        return tuple(ids)


def load_scripted(path: Path, script: Path, settings: Settings) -> Service:
    """A service that follows a script, with the vocabulary of a model file."""
    lines = read_script(script)
    tokenizer = Tokenizer.from_gguf(GGUFFile.open(path))
    context = settings.engine.context or CONTEXT
    return assemble(
        ScriptRunner(lines, tokenizer), tokenizer, settings=settings, context=context, name="Scripted"
    )
