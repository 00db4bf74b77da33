"""What the scheduler knows of one running request.

Owns token counts and where slices must end.  No tensor, no state of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.core import FinishReason, Request, Slice


@dataclass(slots=True)
class Sequence:
    """A running request: all its tokens so far and how many of them are in the cache."""

    request: Request
    computed: int
    anchor_every: int
    tokens: list[int] = field(init=False)
    served: int = 0  # when it last got a prefill chunk, for round robin
    alone: bool = False  # shares no step: it was part of a step that failed

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)

    @property
    def generated(self) -> int:
        """Tokens drawn so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def remaining(self) -> int:
        """Known tokens that are not in the cache yet."""
        return len(self.tokens) - self.computed

    def slice(self, chunk: int) -> Slice:
        """The next tokens to compute: at most `chunk`, cut at the next anchor."""
        anchor = self._next_anchor()
        stop = min(self.computed + chunk, len(self.tokens), anchor or len(self.tokens))
        samples = stop == len(self.tokens) and self.request.max_tokens > self.generated
        return Slice(self.request.id, self.computed, stop, samples=samples, anchors=stop == anchor)

    def advance(self, done: Slice, token: int | None) -> FinishReason | None:
        """Record that a slice was computed and what it drew; a reason when the request is over."""
        self.computed = done.stop
        if token is not None:
            if token in self.request.stop_ids:
                return FinishReason.STOP
            self.tokens.append(token)
        if self.computed < len(self.request.prompt) or self.generated < self.request.max_tokens:
            return None
        return FinishReason.LENGTH

    def restart(self) -> None:
        """Forget the cache and share no further step, because a step it was part of failed."""
        self.computed = 0
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
