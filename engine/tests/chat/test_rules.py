"""Answers of a model that knows nothing keep the form that was asked for, at any temperature."""

from __future__ import annotations

import json
import queue
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.chat.call_grammar import CallGrammar
from engine.chat.markers import DSML, END_THINK, Markers
from engine.chat.output import OutputParser
from engine.chat.pieces import End
from engine.chat.rules import Form, Rules
from engine.chat.tools import Choice, Tool, read_tools
from engine.config import embedded_model
from engine.core import Event, Finished, FinishReason, Generated, Logits, Request, SamplingParams
from engine.errors import RequestError
from engine.gguf.file import GGUFFile
from engine.loop import Engine
from engine.scheduler.scheduler import SchedulerLimits
from engine.tests.fake_runner import FakeRunner
from engine.tokenizer import Tokenizer

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "size": {"enum": ["small", "large"]},
        "counts": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "deep": {"$ref": "#/$defs/deep"},
    },
    "required": ["name", "size", "deep"],
    "additionalProperties": False,
    "$defs": {"deep": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}},
}
WEATHER = {
    "name": "get_weather",
    "description": "Weather for a city",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "where": {"$ref": "#/$defs/place"},
        },
        "required": ["city", "days"],
        "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}}},
    },
}
NOW = {"name": 'now & "then"', "parameters": {"type": "object", "properties": {}}}
ODD = {"name": "odd", "parameters": {"type": "object", "properties": {"a": {"not": {"type": "null"}}}}}
TOOLS = read_tools({"tools": [{"type": "function", "function": entry} for entry in (WEATHER, NOW, ODD)]})


@cache
def tokenizer() -> Tokenizer:
    """The vocabulary of the embedded model."""
    return Tokenizer.from_gguf(GGUFFile.open(embedded_model()))


@pytest.fixture(scope="module")
def rules() -> Iterator[Rules]:
    found = Rules(tokenizer(), Markers.of(tokenizer()))
    yield found
    found.close()


@cache
def taste() -> Logits:
    vocabulary = tokenizer()
    found = np.zeros(len(vocabulary), dtype=np.float32)
    for token in range(len(vocabulary)):
        if vocabulary.token_bytes(token) in (b'"', b":", b"}", b"]", b"<", b"</", b"{", b"\n\n"):
            found[token] = 8.0
    markers = Markers.of(vocabulary)
    found[[markers.end_think, markers.dsml, *markers.stops]] = 9.0
    return found


class Babbler(FakeRunner):
    """Random logits, with a taste for what closes things, so that answers end."""

    def logits(self, tokens: tuple[int, ...]) -> Logits:
        noise = np.random.default_rng(zlib.crc32(repr(tokens).encode())).standard_normal(self.vocab)
        logits: Logits = noise.astype(np.float32) + taste()
        dsml = tokenizer().special(DSML)
        follows = {"<": tokenizer().encode("/")[0], "/": dsml, "</": dsml}
        if after := follows.get(tokenizer().decode(tokens[-1:])):
            logits[after] += 9.0
        return logits


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: its parsed form, its text, and why it ended."""

    parser: OutputParser
    text: str
    finished: Finished


def answer(
    rules: Rules, form: Form, *, thinking: bool = False, seed: int = 0, temperature: float = 1.0
) -> Said:
    """What the babbler answers under a form."""
    vocabulary, markers = tokenizer(), Markers.of(tokenizer())
    request = Request(
        id="a",
        prompt=(markers.bos, markers.user, seed, markers.assistant),
        max_tokens=600,
        sampling=SamplingParams(temperature=temperature),
        seed=seed,
        stop_ids=markers.stops,
        banned_ids=() if form.tools else (markers.dsml,),
        rule=rules.rule(form, thinking=thinking),
    )
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = Engine(Babbler(len(vocabulary)), SchedulerLimits(context=1000))
    engine.submit(request, events.put)
    ids: list[int] = []
    while not isinstance(event := events.get(timeout=60), Finished):
        ids += [event.token] if isinstance(event, Generated) else []
    engine.close()
    parser = OutputParser(thinking=thinking, tools=form.tools, parallel=form.parallel)
    parser.push(vocabulary.decode(ids))
    parser.finish(End.STOP)
    return Said(parser, vocabulary.decode(ids), event)


def check_schema(value: object) -> None:
    assert isinstance(value, dict)
    assert {"name", "size", "deep"} <= value.keys() <= set(SCHEMA["properties"])  # type: ignore[call-overload]
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 30
    assert value["size"] in ("small", "large")
    assert isinstance(value["deep"]["x"], bool)
    counts = value.get("counts", [])
    assert len(counts) <= 3
    assert all(isinstance(count, int) for count in counts)


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_an_answer_follows_its_schema(rules: Rules, thinking: bool, temperature: float) -> None:
    form = Form(schema=json.dumps(SCHEMA))
    for seed in range(5):
        said = answer(rules, form, thinking=thinking, seed=seed, temperature=temperature)

        assert said.finished.reason is FinishReason.STOP
        check_schema(json.loads(said.parser.content))
        assert thinking or not said.parser.reasoning


@pytest.mark.parametrize("thinking", [False, True])
def test_a_required_call_is_made_and_typed(rules: Rules, thinking: bool) -> None:
    names = set()
    for seed in range(8):
        said = answer(rules, Form(TOOLS, Choice(required=True)), thinking=thinking, seed=seed)

        assert said.parser.end is End.TOOL_CALLS, said.text
        assert not said.parser.content
        for call in said.parser.calls:
            names.add(call.name)
            check_call(call.name, json.loads(call.arguments))
    assert {tool.name for tool in TOOLS} == names


def check_call(name: str, arguments: dict[str, object]) -> None:
    if name == "get_weather":
        assert {"city", "days"} <= arguments.keys() <= {"city", "days", "unit", "where"}
        assert isinstance(arguments["city"], str)
        assert isinstance(arguments["days"], int)
        assert arguments.get("unit", "C") in ("C", "F")
        assert isinstance(arguments.get("where", {}), dict)


def test_a_named_tool_is_the_one_that_is_called_once_without_parallel_calls(rules: Rules) -> None:
    form = Form(TOOLS, Choice(required=True, name="get_weather"), parallel=False)
    calls = [answer(rules, form, seed=seed).parser.calls for seed in range(5)]

    assert [["get_weather"]] * 5 == [[call.name for call in entry] for entry in calls]


def test_with_tools_and_a_schema_an_answer_is_one_or_the_other(rules: Rules) -> None:
    form = Form(TOOLS[:1], schema=json.dumps(SCHEMA))
    said = [answer(rules, form, seed=seed, temperature=1.2) for seed in range(8)]
    for entry in said:
        if entry.parser.calls:
            assert not entry.parser.content
        else:
            check_schema(json.loads(entry.parser.content))

    assert {True, False} == {bool(entry.parser.calls) for entry in said}


def test_the_syntax_of_a_call_is_encoded_as_the_prompt_would_encode_it(rules: Rules) -> None:
    rule = rules.rule(Form(TOOLS[:1], Choice(required=True)), thinking=False)
    assert rule is not None
    vocabulary = tokenizer()
    dsml = vocabulary.special(DSML)
    texts = (
        "\n\n<",
        "tool_calls>\n<",
        'invoke name="get_weather">\n<',
        'parameter name="city" string="true">',
    )
    expected = [token for text in texts for token in (*vocabulary.encode(text), dsml)][:-1]
    forced = list(rule.next(()).forced)

    assert expected[: len(forced)] == forced
    assert len(expected) - len(forced) <= 1  # the last token may go on into the value


def test_an_open_block_is_reluctant_to_end_and_its_syntax_is_the_likeliest(rules: Rules) -> None:
    vocabulary, markers = tokenizer(), Markers.of(tokenizer())
    rule = rules.rule(Form(TOOLS), thinking=False)
    assert rule is not None
    before = rule.next(tuple(vocabulary.encode("Well.\n\n<")))
    marker = rule.next((markers.dsml,))
    tags = rule.next(tuple(vocabulary.encode("tool_calls>\n<")))
    after_name = (markers.dsml, *vocabulary.encode('invoke name="odd">\n<'), markers.dsml)
    value = rule.next((*after_name, *vocabulary.encode('parameter name="a" string="true">x')))

    assert (False, True, True, False) == (before.greedy, marker.greedy, tags.greedy, value.greedy)
    assert (frozenset(), markers.stops, markers.stops) == (before.reluctant, tags.reluctant, value.reluctant)


def test_reasoning_under_a_form_cannot_end_the_answer(rules: Rules) -> None:
    rule = rules.rule(Form(schema='{"type": "object"}'), thinking=True)
    assert rule is not None
    allowed = rule.next(()).allowed
    closed = rule.next((tokenizer().special(END_THINK),))

    assert allowed is not None
    assert set(Markers.of(tokenizer()).stops) == set(np.flatnonzero(~allowed))
    assert closed.allowed is not None
    assert {"{"} == {tokenizer().decode([int(token)])[0] for token in np.flatnonzero(closed.allowed)}


def test_an_answer_that_the_prompt_began_is_gone_on_with(rules: Rules) -> None:
    begun = '{"name": "Ann'
    said = answer(rules, Form(schema=json.dumps(SCHEMA), begun=begun), seed=3)

    check_schema(json.loads(begun + said.text))
    with pytest.raises(RequestError, match="last assistant message"):
        rules.rule(Form(schema=json.dumps(SCHEMA), begun="1, 2,"), thinking=False)


def test_without_tools_and_form_there_is_no_rule(rules: Rules) -> None:
    assert rules.rule(Form(), thinking=True) is None


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        pytest.param({"type": "string", "pattern": "+a"}, "repetition operator", id="bad_pattern"),
        pytest.param({"type": "string", "pattern": "(?<=a)b"}, "look", id="look_behind"),
        pytest.param({"type": "string", "pattern": "(" * 60_000 + ")" * 60_000}, "65536", id="large"),
        pytest.param({"type": "string", "pattern": "[" * 5000}, "character class", id="brackets"),
        pytest.param({"$ref": "#/nowhere"}, "nowhere", id="no_definition"),
        pytest.param({"$ref": "http://127.0.0.1:9/x"}, "does not fetch", id="definition_elsewhere"),
        pytest.param({"$ref": "#"}, "no text", id="endless"),
        pytest.param({"type": "strin"}, "strin", id="unknown_type"),
        pytest.param({"not": {"type": "string"}}, "not", id="unknown_word"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_in_one_line(
    rules: Rules, schema: dict[str, object], says: str
) -> None:
    with pytest.raises(RequestError, match="response_format") as caught:
        rules.rule(Form(schema=json.dumps(schema)), thinking=False)

    assert says in str(caught.value)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)
    assert rules.rule(Form(schema='{"type": "object"}'), thinking=False) is not None


def test_a_schema_that_grows_too_large_on_the_way_ends_only_its_answer(rules: Rules) -> None:
    said = answer(rules, Form(schema=json.dumps({"type": "string", "pattern": ".*a.{40}b.{40}c"})))

    assert FinishReason.FAILED is said.finished.reason
    assert "grammar" in (said.finished.message or "")


def test_schemas_that_are_too_many_together_are_reduced_before_any_is_tried(rules: Rules) -> None:
    """Each parameter has the definitions of all, so that trying 160 of them took 6 s, and 5,000 minutes."""
    numbers = range(200)
    defs = {f"d{n}": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {}}]} for n in numbers}
    properties = {f"p{n}": {"$ref": f"#/$defs/d{n}"} for n in numbers}
    schema = {"type": "object", "properties": properties, "$defs": defs, "required": ["p0"]}
    entry = {"type": "function", "function": {"name": "f", "parameters": schema}}
    tools = read_tools({"tools": [entry]})
    tried: list[str] = []

    def follows(one: str) -> bool:
        tried.append(one)
        return True

    with pytest.raises(RequestError, match="grammar of more than 65536 bytes"):
        CallGrammar(7, follows).rules(tools, parallel=True)
    typed = CallGrammar(7, follows, typed=True).rules(tools, parallel=True)

    assert [] == tried
    assert 'parameter name=\\"p199\\"' in typed
    assert rules.rule(Form(tools=tools, choice=Choice(required=True)), thinking=False) is not None


def test_a_tool_named_like_a_tag_is_called_by_its_name(rules: Rules) -> None:
    tool = Tool('a"><b', json.dumps({"name": 'a"><b', "parameters": {}}), {})
    said = answer(rules, Form((tool,), Choice(required=True)))

    assert ['a"><b'] == [call.name for call in said.parser.calls][:1]


@pytest.mark.parametrize(
    "odd", ["\x00", "\x1f", "\x7f", "\x9f", "\u2028", "\ufeff", "\U0010ffff", '\\"/', "i"]
)
def test_a_call_may_hold_any_character_in_its_names_and_values(rules: Rules, odd: str) -> None:
    parameters = {"properties": {odd: {"type": "string", "enum": [odd]}}, "required": [odd]}
    tool = Tool(odd, json.dumps({"name": odd, "parameters": parameters}), {})
    [call] = answer(rules, Form((tool,), Choice(required=True), parallel=False)).parser.calls

    assert (odd, {odd: odd}) == (call.name, json.loads(call.arguments))


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.text(min_size=1, max_size=8),
    keys=st.lists(st.text(max_size=8), max_size=3, unique=True),
    odd=st.sampled_from([{"type": "x"}, {"anyOf": []}, {"type": []}, {"$ref": "#"}, True, None, {"not": {}}]),
)
def test_any_names_and_schemas_make_calls_that_are_read_back(
    rules: Rules, name: str, keys: list[str], odd: object
) -> None:
    properties: dict[str, object] = {key: {"enum": [1, "x"]} for key in keys}
    parameters = {"type": "object", "properties": {**properties, "odd one": odd}, "required": keys}
    [tool] = read_tools(
        {"tools": [{"type": "function", "function": {"name": name, "parameters": parameters}}]}
    )
    said = answer(rules, Form((tool,), Choice(required=True), parallel=False), temperature=0.0)
    [call] = said.parser.calls

    assert tool.name == call.name
    assert set(keys) <= json.loads(call.arguments).keys() <= {*keys, "odd one"}
