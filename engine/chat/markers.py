"""The marker texts of the chat format and their ids in a loaded vocabulary.

Knows nothing of messages; refuses a vocabulary that lacks a marker.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.tokenizer import Tokenizer

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
END_THINK = "</think>"
DSML = "｜DSML｜"


@dataclass(frozen=True, slots=True)
class Markers:
    """The ids of the seven markers."""

    bos: int
    eos: int
    user: int
    assistant: int
    think: int
    end_think: int
    dsml: int

    @property
    def stops(self) -> frozenset[int]:
        """Ids that end an answer: the end mark, and every mark that could only begin another turn."""
        return frozenset({self.eos, self.bos, self.user, self.assistant})

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Markers:
        """Look all of them up; raises ModelFileError naming the first that is missing."""
        texts = (BOS, EOS, USER, ASSISTANT, THINK, END_THINK, DSML)
        return cls(*map(tokenizer.special, texts))
