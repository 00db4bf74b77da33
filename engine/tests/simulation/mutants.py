"""Bugs put into loop and scheduler on purpose, each as one change of their source text.

A simulator that does not find them would not find real ones.
"""

from __future__ import annotations

from engine.loop import Engine
from engine.pool import StatePool
from engine.scheduler import scheduler
from engine.scheduler.memory import Memory
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.sequence import Sequence
from engine.stepper import Stepper
from engine.tests.mutant import Change, Mutant
from engine.tickets import Ticket

MUTANTS = tuple(
    Mutant(name, (Change(owner, function, old, new),))
    for name, owner, function, old, new in (
        ("one too many runs", Scheduler, "_admit", "running < self", "running <= self"),
        ("nobody else starts", Scheduler, "_admit", "while self", "if self"),
        ("nobody waits for a prompt", Scheduler, "_ready", "leader is None or", "True or"),
        ("a prompt is awaited too long", Scheduler, "_ready", ">= len(request.prompt) - 1", ">= 99"),
        ("credit has no end", Memory, "extend", "> self.total", "> 10**9"),
        ("credit is refused for nothing", Memory, "extend", "max(0, tokens", "max(1, tokens"),
        ("the newest starts first", Scheduler, "submit", "_queue.append(", "_queue.appendleft("),
        ("a cancelled one still waits", Scheduler, "drop", "self._queue.remove(request)", "pass"),
        ("a cancelled one still runs", Scheduler, "drop", "pop(request_id, None)", "get(request_id)"),
        ("the same prompt goes first", Scheduler, "_prefill", "sequence.served)", "-sequence.served)"),
        ("newcomers push in", Scheduler, "_start", "self._ticks - 1", "-self._ticks"),
        (
            "no limit of the context",
            Scheduler,
            "_start",
            "min(request.max_tokens,",
            "max(request.max_tokens,",
        ),
        ("live streams wait long", Scheduler, "_slices", "chunk_live if live", "chunk if live"),
        ("a chunk for everybody", Scheduler, "_prefill", "slices[-1].start", "slices[-1].stop"),
        ("decoding pushes prefill out", Scheduler, "_slices", "+ self._prefill(waiting, chunk)", "or []"),
        ("the lone one starves", Scheduler, "_slices", "(self._ticks % 2 or not shared)", "not shared"),
        ("the lone one starves others", Scheduler, "_slices", "(self._ticks % 2 or not shared)", "True"),
        ("records hold a token too many", scheduler, "_ended", "[: sequence.computed]", ""),
        ("a token is computed twice", Sequence, "advance", "= done.stop", "= done.stop - (done.stop == 9)"),
        (
            "a token is left out",
            Sequence,
            "slice",
            "Slice(self.request.id, self",
            "Slice(self.request.id, 0 * self",
        ),
        ("one token too many", Sequence, "advance", "self.budget - self", "self.budget + 1 - self"),
        ("stops are ignored", Sequence, "advance", "if stop < room", "if stop < 0"),
        ("drawn too early", Sequence, "slice", "stop == len(self.tokens) and", "stop > 3 and"),
        ("old state after a fault", Sequence, "restart", "self.computed = 0", "pass"),
        ("alone for nothing", Sequence, "restart", "self.alone = True", "self.alone = False"),
        ("answers cross", Stepper, "execute", "logits[row]", "logits[row - 1]"),
        ("one without a state is served", Stepper, "_enter", "planned and state is not None", "planned"),
        ("a state is lent twice", StatePool, "begin", "self.kept.pop(", "self.kept.get("),
        (
            "a fork starts too late",
            StatePool,
            "begin",
            "source.anchors[admission.cached]",
            "source.cache.snapshot()",
        ),
        ("a gauge leaks", Stepper, "_dismiss", "self.ended += 1", "self.ended += message is None"),
        ("a state leaks", StatePool, "leave", "running.pop(request.id, None)", "running.get(request.id)"),
        ("failed states are kept", StatePool, "leave", "ended.reason is not FinishReason.FAILED", "True"),
        (
            "ends twice",
            Stepper,
            "_dismiss",
            "self.metrics.ended",
            "2 * self._tell(ticket, None) or self.metrics.ended",
        ),
        ("evicted states are kept", StatePool, "forget", "del self.kept[gone.record]", "pass"),
        (
            "one fails for another",
            Stepper,
            "_attempt",
            "scheduler.restart(sequence)",
            "drop(sequence, FinishReason.FAILED, '!')",
        ),
        (
            "half a state is kept",
            Stepper,
            "_attempt",
            "functools.partial(self.pool.fresh, request)",
            "lambda: self.pool.running[sequence]",
        ),
        ("the stream is keyed by the slice", Stepper, "_draw", "position=piece.stop", "position=piece.start"),
        ("stop ids are told", Stepper, "_commit", "[: len(committed.tokens)]", ""),
        (
            "rules miss forced ids",
            Stepper,
            "_commit",
            "consult(committed.tokens,",
            "consult(committed.tokens[:1],",
        ),
        ("a caller who is gone is served", Stepper, "hand_out", "self.gone(ticket.request.id)", "pass"),
        ("cancels wait in line", Engine, "_read_inbox", "while True", "if True"),
        ("closing forgets somebody", Stepper, "stop", "list(self.tickets)", "list(self.tickets)[1:]"),
        ("the queue has no end", Engine, "submit", "self._open >= self", "self._open > self"),
        ("rules insist for ever", Ticket, "allowance", "self.replaced < MAX_REPLACED", "True"),
        ("rules are not heard", Ticket, "consult", "is not None", "is None"),
    )
)
