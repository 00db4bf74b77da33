"""Grammars over a vocabulary: which ids may come next so that a text follows a schema or our own grammar.

Wraps llguidance, the only place that knows it.
Bounds what a grammar may cost: its size, the work to build it and for each step, the states it keeps.
Knows nothing of chat.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from engine.errors import CapacityError, RequestError, RuleError
from engine.grammar_check import BusyError, GrammarCheck
from engine.tokenizer import Tokenizer

MAX_GRAMMAR_BYTES = 64 * 1024
MAX_MESSAGE = 160  # characters of the library's own words in a message
BLANKS = r"[\x20\n\t]{0,16}"  # between the parts of JSON: a model must not fill its answer with them
_PLACE = re.compile(r"^(at \d+\(\d+\): )?(failed to compile JSON schema: )?")
OPTIONS = {"whitespace_pattern": BLANKS}


@dataclass(frozen=True, slots=True)
class Grammar:
    """A checked grammar of one vocabulary; `path` begins a text that follows it."""

    text: str
    vocabulary: GrammarVocabulary

    def path(self) -> GrammarPath:
        """The beginning of a text."""
        return GrammarPath(self.vocabulary, self.vocabulary.matcher(self.text))


class GrammarVocabulary:
    """A vocabulary prepared for grammars; building it takes half a second for 129,280 tokens.

    `end` is the id that ends a text, which is allowed wherever the grammar is complete.
    """

    def __init__(self, tokenizer: Tokenizer, *, end: int) -> None:
        self.size = len(tokenizer)
        self.end = end
        self.encode = tokenizer.encode
        self._check = GrammarCheck()
        self._tokenizer = LLTokenizer(TokenizerWrapper(_Vocabulary(tokenizer, end)), n_vocab=self.size)
        # One step costs at most about 15 ms, the states of one text at most about 20 MB.
        self._limits = LLParserLimits(
            initial_lexer_fuel=1_000_000,
            step_lexer_fuel=200_000,
            step_max_items=50_000,
            max_lexer_states=10_000,
            max_grammar_size=200_000,
            verbose_errors=False,
        )

    def json(self, schema: str, *, param: str) -> Grammar:
        """JSON that follows a schema; raises RequestError for `param` when that cannot be had."""
        return self.compile(json_rule(schema), param=param, start=True)

    def follows(self, schema: str) -> bool:
        """Some JSON follows this schema, as far as the first step of its grammar tells."""
        try:
            self.compile(json_rule(schema, lenient=True), param="schema", start=True)
        except RequestError:
            return False
        return True

    def compile(self, text: str, *, param: str, start: bool = False) -> Grammar:
        """A grammar in the library's Lark dialect (`start`: only the body of its first rule).

        Raises RequestError for `param` when it is wrong or too large.
        May take seconds: not for the event loop.
        """
        whole = (f"start: {text}\n" if start else text).encode("utf-8", "replace").decode()  # half characters
        if len(whole.encode()) > MAX_GRAMMAR_BYTES:
            raise RequestError(
                f"{param} makes a grammar of {len(whole.encode())} bytes; allowed are {MAX_GRAMMAR_BYTES}; "
                "shorten it",
                param=param,
            )
        try:
            wrong = self._check.wrong(whole) or self._begin(whole)
        except BusyError:
            raise CapacityError("many grammars wait to be checked; try again soon") from None
        if wrong:
            raise RequestError(
                f"{param} cannot be followed: {_short(wrong)}; simplify it or leave it out", param=param
            )
        return Grammar(whole, self)

    def _begin(self, text: str) -> str:
        """What is wrong with the first step of a grammar; empty for nothing."""
        matcher = self.matcher(text)
        if not matcher.is_error():
            matcher.compute_bitmask()
        return matcher.get_error()

    def close(self) -> None:
        """Free what lies outside this process."""
        self._check.close()

    def matcher(self, text: str) -> LLMatcher:
        """The library's own object for one text."""
        return LLMatcher(self._tokenizer, LLMatcher.grammar_from_lark(text), log_level=0, limits=self._limits)


class GrammarPath:
    """One text in the making, and what may come next."""

    def __init__(self, vocabulary: GrammarVocabulary, matcher: LLMatcher) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher

    @property
    def over(self) -> bool:
        """The text is complete and nothing can follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def take(self, tokens: Sequence[int]) -> None:
        """Note the next ids; raises RuleError when they do not follow the grammar or a bound is reached."""
        if not self._matcher.consume_tokens(list(tokens)):
            raise self._broken()

    def forced(self) -> tuple[int, ...]:
        """The ids that must come next, if the grammar leaves no choice; the end itself when it is over."""
        if self.over:
            return (self._vocabulary.end,)
        return tuple(self._matcher.compute_ff_tokens())

    def allowed(self) -> NDArray[np.bool_]:
        """True for each id [V] that may come next; raises RuleError when a bound is reached."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            raise self._broken()
        return np.unpackbits(packed, count=self._vocabulary.size, bitorder="little").view(np.bool_)

    def _broken(self) -> RuleError:
        return RuleError(f"the answer can follow its grammar no longer: {_short(self._matcher.get_error())}")


def json_rule(schema: str, *, lenient: bool = False) -> str:
    """The expression for JSON that follows a schema; `lenient` passes over what the library does not know."""
    options = {"x-guidance": OPTIONS | ({"lenient": True} if lenient else {})}
    return f"%json {json.dumps(json.loads(schema) | options, ensure_ascii=False)}"


class _Vocabulary:
    """What the library asks of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        self.eos_token_id = end
        self.bos_token_id = None
        self.tokens = [tokenizer.token_bytes(token) for token in range(len(tokenizer))]
        self.special_token_ids = sorted(tokenizer.special_ids)
        self._encode = tokenizer.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)


def _short(message: str) -> str:
    """What the library says in one line, without places in our own text and not long."""
    lines = [line.strip() for line in _PLACE.sub("", message).splitlines() if line.strip()]
    line = lines[0] if lines else "it is not understood"
    if line.startswith("NoExtension"):
        return "no text follows it"
    reason = next((entry for entry in lines[1:] if entry.startswith("error: ")), "")
    line += reason.removeprefix("error:")
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 3] + "..."
