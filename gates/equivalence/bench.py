"""The process that imports the engine: reads cases on its input, runs each, tells each result in one line.

`python -m gates.equivalence.bench MODEL` takes one JSON object (`sizes`, `cases`) and prints one a line:
`{"begin": n}` before case n, `{"end": n, "kind": "ok|fail|info", ...}` after it.  It judges nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from engine.config import let_threads_sleep
from gates.equivalence.plan import Case
from gates.equivalence.seen import Compared, Inapplicable, first_difference, values
from gates.equivalence.table import PAIRS, Sizes
from gates.harness.probe import cpus

Told = Mapping[str, Any]
PairRun = Callable[[Any, Mapping[str, Any]], Compared | Inapplicable]


def pair_runs() -> dict[str, PairRun]:
    """What every pair of the first table runs, by id; LookupError where that is not one function."""
    from gates.equivalence import capturing, cutting, keeping, sharing, storing

    rooms = (storing, cutting, sharing, keeping, capturing)
    return {pair.id: _own_run(pair.id, rooms) for pair in PAIRS}


def _own_run(name: str, rooms: Sequence[ModuleType]) -> PairRun:
    """The one function of this name; what a room only imports is not its own."""
    own = [room for room in rooms if getattr(vars(room).get(name), "__module__", None) == room.__name__]
    if len(own) != 1:
        places = " and ".join(room.__name__ for room in own) or "no room"
        raise LookupError(f"pair {name} is a function of {places}; give it one function of that name")
    run: PairRun = vars(own[0])[name]
    return run


class Bench:
    """Runs cases; what they need is loaded when the first of them needs it."""

    def __init__(self, model: Path, sizes: Sizes, folder: Path, *, threads: int | None = None) -> None:
        """`threads` is for large steps; None takes all processors."""
        from gates.equivalence.workbench import Workbench

        self._workbench = Workbench(model, sizes, folder, threads=threads or cpus())
        self._pairs = pair_runs()

    def check_edges(self) -> None:
        """RuntimeError when the profile leaves out an edge of the model: a table with a gap proves less."""
        from engine.scheduler.scheduler import SchedulerLimits
        from gates.equivalence.workbench import edges

        runner, sizes = self._workbench.runner(), self._workbench.sizes
        wanted = edges(runner.spec, runner.ledger.page_tokens, SchedulerLimits(context=2**15))
        absent = {name: at for name, at in wanted.items() if at not in sizes.edges}
        if absent:
            raise RuntimeError(
                f"edges_tokens lacks edges of this model: {absent}; it has {list(sizes.edges)}"
            )

    def run(self, case: Case) -> Told:
        """The end of one case as JSON values; an exception of the engine is a failure, one of the host is
        not."""
        began = time.perf_counter()
        try:
            told = self._pair(case) if case.what == "pair" else self._twin(case)
        except (MemoryError, OSError) as error:
            told = {"kind": "info", "error": f"{type(error).__name__}: {error}"}
        except Exception as error:  # the step boundary: what breaks in the engine breaks this case alone
            where = "".join(traceback.format_exception(error)[-4:])
            told = {"kind": "fail", "error": f"{type(error).__name__}: {error}", "traceback": where}
        return told | {"seconds": round(time.perf_counter() - began, 3)}

    def _pair(self, case: Case) -> dict[str, Any]:
        found = self._pairs[case.subject](self._workbench, case.values)
        if isinstance(found, Inapplicable):
            return {"kind": "ok", "inapplicable": found.reason}
        difference = first_difference(found.left, found.right)
        return {
            "kind": "ok",
            "equal": difference is None,
            "difference": difference.record() if difference else None,
            "engaged": {what: bool(held) for what, held in found.engaged.items()},
            "arrays": len(found.left),
            "values": values(found.left),
        }

    def _twin(self, case: Case) -> dict[str, Any]:
        if "TRITON_INTERPRET" not in os.environ and not _card():
            os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
        from gates.equivalence import twins

        found = twins.run(case.subject, case.values["shape"])
        if isinstance(found, Inapplicable):
            return {"kind": "ok", "inapplicable": found.reason}
        return {"kind": "ok", **found}


def results(wanted: Mapping[str, Any], model: Path, folder: Path) -> Iterator[Told]:
    """Begin and end of every case, in order."""
    sizes = Sizes(**{name: _frozen(value) for name, value in wanted["sizes"].items()})
    bench = Bench(model, sizes, folder)
    if any(case["what"] == "pair" for case in wanted["cases"]):
        bench.check_edges()
    for number, case in enumerate(wanted["cases"]):
        yield {"begin": number}
        yield {"end": number, **bench.run(Case(**case))}


def _card() -> bool:
    import torch

    return torch.cuda.is_available()


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def main(model: Path, source: TextIO, out: TextIO) -> None:
    """Tell the results of the cases that `source` asks for."""
    wanted = json.load(source)
    with tempfile.TemporaryDirectory(prefix="equivalence-") as folder:
        for told in results(wanted, model, Path(folder)):
            print(json.dumps(told), file=out, flush=True)


if __name__ == "__main__":
    let_threads_sleep(os.environ)
    main(Path(sys.argv[1]), sys.stdin, sys.stdout)
