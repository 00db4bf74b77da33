"""One prompt on the terminal, and the rates of this machine.

Owns what is measured and how it is worded.  Uses the engine through its door, as the server does.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.chat.output import OutputParser
from engine.chat.pieces import End, Output, Piece
from engine.chat.request import ChatRequest, Effort, UserText, UserTurn
from engine.chat.tokens import TokenReader
from engine.config import Settings
from engine.core import Event, Finished, FinishReason, Generated, Request, SamplingParams, Timings
from engine.errors import EngineError, SettingError
from engine.server.loading import load_service
from engine.server.service import Service

MOST_DECODED = 2**20


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt and how to answer it."""

    prompt: str
    system: str = ""
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    thinking: bool = False


def ask(path: Path, settings: Settings, question: Question, *, show: Callable[[str], None]) -> str:
    """Answer a question, handing text to `show` as it comes; returns a line about tokens and rates."""
    _check(question)
    service = load_service(path, settings)
    try:
        timings = _answer(service, question, show)
    finally:
        service.engine.close()
    after_first = max(0, timings.generated_tokens - 1)
    return (
        f"[{timings.prompt_tokens} prompt tokens at {_rate(timings.prompt_tokens, timings.prefill_s)} tok/s, "
        f"{timings.generated_tokens} generated at {_rate(after_first, timings.decode_s)} tok/s]"
    )


def measure(path: Path, settings: Settings, *, depths: Sequence[int], decode: int) -> dict[str, Any]:
    """Prefill and decode rates at each depth, each from an empty cache; times by the engine's clock."""
    if not 2 <= decode <= MOST_DECODED:
        raise SettingError(f"--decode is {decode}; allowed is 2 to {MOST_DECODED}")
    began = time.perf_counter()
    service = load_service(path, settings)
    load_s = time.perf_counter() - began
    try:
        generate(service, request(service, 16, 2), lambda _: None)  # first steps warm up memory and threads
        rows = [_measure_depth(service, depth, decode) for depth in depths]
    finally:
        service.engine.close()
    return {"model": service.model_id, "load_s": round(load_s, 3), "depths": rows}


def describe(report: dict[str, Any]) -> str:
    """The table of a measurement."""
    lines = [f"{report['model']}: loaded in {report['load_s']} s", "  depth  prefill tok/s  decode tok/s"]
    for row in report["depths"]:
        lines.append(f"{row['depth']:7d}  {row['prefill_tok_s']:13.1f}  {row['decode_tok_s']:12.1f}")
    return "\n".join(lines)


def _check(question: Question) -> None:
    if question.max_tokens < 1:
        raise SettingError(f"--max-tokens is {question.max_tokens}; allowed is 1 and more")
    if not 0.0 <= question.temperature <= 2.0:
        raise SettingError(f"--temperature is {question.temperature}; allowed is 0 to 2")


def _answer(service: Service, question: Question, show: Callable[[str], None]) -> Timings:
    effort = Effort.LOW if question.thinking else Effort.NONE
    chat = ChatRequest(
        system=question.system,
        turns=(UserTurn((UserText(question.prompt),)),),
        thinking=question.thinking,
        effort=effort,
    )
    prompt = service.prompt_ids(chat)
    request = Request(
        id="run",
        prompt=prompt,
        max_tokens=min(question.max_tokens, service.context - len(prompt)),
        sampling=SamplingParams(temperature=question.temperature),
        seed=question.seed,
        stop_ids=service.stop_ids,
        banned_ids=(service.markers.dsml,),
    )
    return _print(service, request, OutputParser(thinking=question.thinking), show)


def _print(service: Service, request: Request, parser: OutputParser, show: Callable[[str], None]) -> Timings:
    reader = TokenReader(parser, service.markers, service.tokenizer.stream())
    shown: list[str] = []  # the kind of text shown last

    def write(pieces: Sequence[Output]) -> None:
        for piece in pieces:
            if isinstance(piece, Piece):
                show("\n\n" + piece.text if shown and shown[-1] != piece.kind else piece.text)
                shown.append(piece.kind)

    timings = generate(service, request, lambda token: write(reader.push(token)))
    write(parser.finish(End.STOP if timings.generated_tokens < request.max_tokens else End.LENGTH))
    return timings


def generate(service: Service, request: Request, take: Callable[[int], None]) -> Timings:
    """Run one request to its end on this thread."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    service.engine.submit(request, events.put)
    while True:
        event = events.get()
        if isinstance(event, Generated):
            take(event.token)
        elif isinstance(event, Finished):
            if event.reason in (FinishReason.FAILED, FinishReason.REFUSED):
                raise EngineError(event.message or "the engine failed")
            return event.timings


def request(service: Service, depth: int, decode: int) -> Request:
    """A prompt of ordinary tokens, the same for every run."""
    words = service.tokenizer.encode("The quick brown fox jumps over the lazy dog. ")
    prompt = tuple(words[index % len(words)] for index in range(depth))
    return Request(
        id=f"bench-{depth}",
        prompt=prompt,
        max_tokens=decode,
        sampling=SamplingParams(temperature=0.0),
        reuse=False,
    )


def _measure_depth(service: Service, depth: int, decode: int) -> dict[str, Any]:
    timings = generate(service, request(service, depth, decode), lambda _: None)
    return {
        "depth": depth,
        "prefill_tok_s": _rate(timings.prompt_tokens, timings.prefill_s),
        "decode_tok_s": _rate(timings.generated_tokens - 1, timings.decode_s),
        "prefill_s": round(timings.prefill_s, 4),
        "decode_tokens": timings.generated_tokens - 1,
        "decode_s": round(timings.decode_s, 4),
    }


def _rate(tokens: int, seconds: float) -> float:
    return round(tokens / seconds, 1) if seconds > 0 else 0.0
