"""Feeds a parser of answers with tokens: markers as markers, all others as the text that they decode to."""

from __future__ import annotations

from dataclasses import dataclass

from engine.chat.markers import END_THINK, THINK, Markers
from engine.chat.pieces import Output, Parser
from engine.tokenizer import TokenStream


@dataclass(frozen=True, slots=True)
class TokenReader:
    """One answer's tokens on their way from the model to its parser."""

    parser: Parser
    markers: Markers
    decoder: TokenStream

    def push(self, token: int) -> list[Output]:
        """What can be handed out with this token; bytes of an unfinished character wait for the next."""
        if token != self.markers.think and token != self.markers.end_think:
            return self.parser.push(self.decoder.push(token))
        name = THINK if token == self.markers.think else END_THINK
        return self.parser.push(self.decoder.flush()) + self.parser.push_marker(name)
