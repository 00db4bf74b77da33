"""What the scheduler knows of one running request.

Owns token counts and where slices must end.  No tensor, no state of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.core import FinishReason, Request, Slice
from engine.scheduler.records import MAX_ANCHORS, thinned


@dataclass(frozen=True, slots=True)
class Progress:
    """The new tokens up to a stop id or the limit, and why the request is over, if it is."""

    tokens: tuple[int, ...]
    reason: FinishReason | None


@dataclass(slots=True)
class Sequence:
    """A running request: all its tokens so far and how many of them are in the cache.

    `served` is when it last got a share of a prefill chunk.
    `alone` means that it shares no step, because one that it was part of failed.
    """

    request: Request
    computed: int
    anchor_every: int
    budget: int
    served: int
    tokens: list[int] = field(init=False)
    alone: bool = False
    failures: int = 0
    anchors: list[int] = field(default_factory=list)  # kept positions

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)

    @property
    def generated(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def remaining(self) -> int:
        """Known tokens that are not in the cache yet."""
        return len(self.tokens) - self.computed

    @property
    def live(self) -> bool:
        """Its caller already sees tokens."""
        return self.generated > 0

    def slice(self, chunk: int) -> Slice:
        """The next tokens to compute: at most `chunk`, cut at the next anchor."""
        anchor = self._next_anchor()
        stop = min(self.computed + chunk, len(self.tokens), anchor or len(self.tokens))
        samples = stop == len(self.tokens) and self.budget > self.generated
        return Slice(self.request.id, self.computed, stop, samples=samples, anchors=stop == anchor)

    def advance(self, done: Slice, tokens: tuple[int, ...]) -> Progress:
        """Record that a slice was computed and what came of it."""
        self.computed = done.stop
        if done.anchors:
            self.anchors = thinned([*self.anchors, done.stop], MAX_ANCHORS)
        if tokens and self.failures == 1:
            self.alone = False  # it went on by itself, so it was not the cause
        room = self.budget - self.generated
        stop = next((at for at, token in enumerate(tokens) if token in self.request.stop_ids), room)
        kept = tokens[: min(stop, room)]
        self.tokens += kept
        if stop < room:
            return Progress(kept, FinishReason.STOP)
        full = self.computed >= len(self.request.prompt) and self.generated >= self.budget
        return Progress(kept, FinishReason.LENGTH if full else None)

    def restart(self) -> None:
        """Forget the cache and share no step for now, because a step it was part of failed."""
        self.computed = 0
        self.anchors = []
        self.failures += 1
        self.alone = True

    def _next_anchor(self) -> int | None:
        """The next position to keep: the coarse grid and the last but one position of the prompt.

        The prompt's last token is left out because a repeated prompt must compute at least one.
        """
        end = len(self.request.prompt) - 1
        if not self.request.reuse or self.computed >= end:
            return None
        grid = (self.computed // self.anchor_every + 1) * self.anchor_every
        return min(grid, end)
