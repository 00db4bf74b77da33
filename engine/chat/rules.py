"""Token rules of chat answers: calls that must be made, formats that must be kept, syntax left to no chance.

Owns when a rule begins (after the reasoning) and what it allows.  Knows nothing of HTTP or of sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.chat.blocks import BlockTracker
from engine.chat.call_grammar import CallGrammar
from engine.chat.markers import END_THINK, Markers
from engine.chat.tools import Choice, Tool
from engine.core import Allowance, TokenRule
from engine.errors import RequestError, RuleError
from engine.grammar import Grammar, GrammarPath, GrammarVocabulary, json_rule
from engine.tokenizer import Tokenizer, TokenStream

BUILDERS = 16  # nearly all of them wait for the one process that checks grammars, which bounds that wait


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer must look like: which calls it makes, and the JSON schema of its content, if any.

    `begun` is content that the prompt holds already.
    `member` and `begun_member` are what errors about the schema and about that content name.
    """

    tools: tuple[Tool, ...] = ()
    choice: Choice = field(default_factory=Choice)
    parallel: bool = True
    schema: str | None = None
    begun: str = ""
    member: str = "response_format"
    begun_member: str = "messages"

    @property
    def demanding(self) -> bool:
        """A grammar must be made for it, which may take seconds."""
        return self.choice.required or self.schema is not None


class Rules:
    """Makes the rules of one loaded model's answers; building the vocabulary's grammar takes a moment.

    Those of demanding forms are best made on `builders`, threads that hold up nothing else.
    """

    def __init__(self, tokenizer: Tokenizer, markers: Markers) -> None:
        self.builders: Executor = ThreadPoolExecutor(BUILDERS, "grammar")
        self._tokenizer = tokenizer
        self._markers = markers
        self._vocabulary = GrammarVocabulary(tokenizer, end=markers.eos)
        self._unending = np.ones(len(tokenizer), dtype=np.bool_)
        self._unending[list(markers.stops)] = False

    def close(self) -> None:
        """Free what lies outside this process."""
        self._vocabulary.close()

    def rule(self, form: Form, *, thinking: bool) -> TokenRule | None:
        """The rule for an answer whose prompt ends within the reasoning or not; None when all is free.

        Raises RequestError when the form cannot be kept.  May take seconds: not for the event loop.
        """
        return self.several(form, 1, thinking=thinking)[0]

    def several(self, form: Form, count: int, *, thinking: bool) -> list[TokenRule | None]:
        """The same for each of several answers to one prompt, at the cost of one grammar.

        A form that is not demanding takes no time.
        """
        grammar = self._grammar(form)
        if grammar is None and not form.tools:
            return [None] * count
        return [self._rule(form, grammar, thinking=thinking) for _ in range(count)]

    def _rule(self, form: Form, grammar: Grammar | None, *, thinking: bool) -> TokenRule:
        path = grammar.path() if grammar else None
        if path is not None and form.begun:
            _continue(path, self._vocabulary.encode(form.begun), form.begun_member)
        return AnswerRule(
            text=self._tokenizer.stream(),
            think=self._markers.think,
            end_think=self._markers.end_think,
            stop_ids=self._markers.stops,
            unending=self._unending,
            thinking=thinking,
            path=path,
            blocks=BlockTracker() if form.tools else None,
        )

    def _grammar(self, form: Form) -> Grammar | None:
        if form.choice.required:
            tools = [tool for tool in form.tools if form.choice.name in (None, tool.name)]
            return self._calls(tools, form, "start: block\n", "tools")
        if form.schema is None:
            return None
        if not form.tools:
            return self._vocabulary.json(form.schema, param=form.member)
        head = f"start: block | json\njson: {json_rule(form.schema)}\n"
        self._vocabulary.json(form.schema, param=form.member)  # so that an error names the right member
        return self._calls(form.tools, form, head, form.member)

    def _calls(self, tools: Sequence[Tool], form: Form, head: str, param: str) -> Grammar:
        """The grammar with the declared schemas; only with their types when these cannot be followed."""
        dsml, follows = self._markers.dsml, self._vocabulary.follows
        try:
            rules = CallGrammar(dsml, follows).rules(tools, parallel=form.parallel)
            return self._vocabulary.compile(head + rules, param=param)
        except RequestError:
            rules = CallGrammar(dsml, follows, typed=True).rules(tools, parallel=form.parallel)
            return self._vocabulary.compile(head + rules, param=param)


@dataclass(slots=True)
class AnswerRule:
    """The rule of one answer.

    Reasoning is free, but when a form must be kept, the answer cannot end in it.
    Content follows the grammar, if there is one.
    In a tool block, syntax is the likeliest, and the answer is reluctant to end before the block does.
    """

    text: TokenStream
    think: int
    end_think: int
    stop_ids: frozenset[int]
    unending: NDArray[np.bool_]
    thinking: bool
    path: GrammarPath | None
    blocks: BlockTracker | None
    _tail: str = field(default="", init=False)

    def next(self, taken: tuple[int, ...]) -> Allowance:
        """Note the ids just added and say what may follow."""
        for token in taken:
            self._note(token)
        if self.thinking:
            return Allowance() if self.path is None else Allowance(allowed=self.unending)
        syntax = self.blocks is not None and self.blocks.syntax
        if self.path is not None:
            forced = self.path.forced()
            return Allowance(forced) if forced else Allowance(allowed=self.path.allowed(), greedy=syntax)
        inside = self.blocks is not None and self.blocks.open
        return Allowance(greedy=syntax, reluctant=self.stop_ids if inside else frozenset())

    def _note(self, token: int) -> None:
        text = self.text.push(token)
        if self.thinking:
            self._tail = (self._tail + text)[-2 * len(END_THINK) :]
            if token == self.end_think or END_THINK in self._tail:
                self.thinking, self._tail = False, ""
            return
        if self.path is not None:
            self.path.take((token,))
        elif token == self.think and not (self.blocks and self.blocks.open):
            self.thinking = True
            return
        if self.blocks is not None:
            self.blocks.push(text)


def _continue(path: GrammarPath, tokens: Sequence[int], member: str) -> None:
    """Go on behind content that stands in the prompt; RequestError when it does not fit."""
    try:
        path.take(tokens)
    except RuleError:
        raise RequestError(
            "the last assistant message is not the beginning of an answer in the form that is asked for; "
            "change it or leave it out",
            param=member,
        ) from None
