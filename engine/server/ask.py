"""The neutral request behind all dialects, and the members that several dialects spell alike.

Knows nothing of bodies, of answers or of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.chat.pieces import call_id
from engine.chat.request import Prompt
from engine.chat.tools import Choice, Tool
from engine.core import SamplingParams
from engine.server.fields import Fields

MAX_MODEL_LENGTH = 1024  # it is repeated in every chunk of a stream
MAX_CHOICES = 128  # as the OpenAI API has it; the model's own bound is how many it answers side by side
MAX_SALT_LENGTH = 1024
MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_TOP_K = 2**31 - 1
MAX_TOP_LOGPROBS = 20
SEED_BOUND = 2**63


@dataclass(frozen=True, slots=True)
class CacheWish:
    """What a client wants of the prefix cache.

    `reuse`: take and leave prefixes.  `pin`: keep what is left longer than the rest; None means not said.
    `salt`: only requests of the same salt share prefixes.
    """

    reuse: bool = True
    pin: bool | None = None
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a client wants, whatever dialect it spoke; None means not said.

    `plain`: the answer is text as it stands, without thinking or tools.
    `count`: how many answers the prompt gets, each with a random stream of its own.
    `include_usage` and `return_token_ids` change only what a dialect writes.
    `format_member` is what errors about the form of the answer name.
    """

    prompt: Prompt
    plain: bool = False
    count: int = 1
    tools: tuple[Tool, ...] = ()
    choice: Choice = field(default_factory=Choice)
    sampling: SamplingParams = field(default_factory=SamplingParams)
    model: str | None = None
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    seed: int | None = None
    stops: tuple[str, ...] = ()
    cache: CacheWish = field(default_factory=CacheWish)
    parallel_calls: bool = True
    return_token_ids: bool = False
    top_logprobs: int | None = None
    new_call_id: Callable[[], str] = call_id
    format_member: str = "response_format"


def read_cache(fields: Fields) -> CacheWish:
    """What is said of the prefix cache."""
    return CacheWish(
        reuse=flag(fields, "cache_prompt", default=True),
        pin=fields.boolean("pin_cache"),
        salt=fields.string("cache_salt", longest=MAX_SALT_LENGTH) or "",
    )


def read_model(fields: Fields) -> str | None:
    """The model's name, which is only repeated."""
    return fields.string("model", longest=MAX_MODEL_LENGTH) or None


def read_sampling(fields: Fields, defaults: SamplingParams) -> SamplingParams:
    """How tokens are drawn; what the client does not say comes from the server's settings."""
    temperature = fields.number("temperature", low=0.0, high=2.0)
    top_p = fields.number("top_p", low=0.0, high=1.0, above=True)
    top_k = fields.integer("top_k", low=0, high=MAX_TOP_K)
    min_p = fields.number("min_p", low=0.0, high=1.0)
    return SamplingParams(
        temperature=defaults.temperature if temperature is None else temperature,
        top_p=defaults.top_p if top_p is None else top_p,
        top_k=defaults.top_k if top_k is None else top_k,
        min_p=defaults.min_p if min_p is None else min_p,
    )


def read_budget(fields: Fields, *names: str) -> int | None:
    """The first budget that is said; one larger than the room is no error and is clamped later."""
    found = [fields.integer(name, low=0) for name in names]
    return next((budget for budget in found if budget is not None), None)


def read_seed(fields: Fields) -> int | None:
    """The key of the random stream."""
    return fields.integer("seed", low=-SEED_BOUND, high=2 * SEED_BOUND - 1)


def read_count(fields: Fields) -> int:
    """How many answers are asked for."""
    return fields.integer("n", low=1, high=MAX_CHOICES) or 1


def read_stops(fields: Fields, name: str) -> tuple[str, ...]:
    """Texts that end an answer."""
    return fields.strings(name, most=MAX_STOPS, longest=MAX_STOP_LENGTH)


def flag(fields: Fields, name: str, *, default: bool) -> bool:
    """A switch."""
    found = fields.boolean(name)
    return default if found is None else found
