"""The run folder: `run.json`, one folder a gate, and the files that say how it ended.

Owns names and places of the files of a run, and that each is written whole or not at all. Knows nothing of
what is in a history and how it is judged.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from gates.errors import InfrastructureError, UsageError
from gates.harness import shape
from gates.harness.shape import Shape

SCHEMA = 1
LATEST = "latest"


class State(StrEnum):
    """How far a run came; one that was killed stays `running`."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    INFRASTRUCTURE = "infrastructure"


_FILE = shape.fields({"file": shape.text, "bytes": shape.whole, "sha256": shape.text})
_HOST = {
    **dict.fromkeys(("system", "release", "machine", "python", "processor"), shape.text),
    **dict.fromkeys(("cpus", "memory_gib"), shape.number),
}
# What judging, reports and tags read; a record without one of them was not written by a run.
_RUN = shape.fields(
    {
        "state": shape.one_of(*State),
        **dict.fromkeys(("profile", "profile_sha256"), shape.text),
        "settings": shape.table(shape.table(shape.anything)),
        "chosen": shape.rows(shape.text, least=1),
        "seed": shape.whole,
        **dict.fromkeys(("seed_of_profile", "own_server"), shape.switch),
        "tree": shape.fields(
            {"commit": shape.maybe(shape.text), "tree": shape.maybe(shape.text), "dirty": shape.switch}
        ),
        "model": shape.maybe(_FILE),
        "server": shape.fields({"launched": shape.switch}, command=shape.rows(shape.text)),
        "host": shape.fields(_HOST),
        "started_utc": shape.time,
        "leftover": shape.maybe(shape.rows(shape.text)),
    },
    part=shape.rows(shape.whole, least=2),
    finished_utc=shape.time,
    resumed_utc=shape.rows(shape.time),
    seconds=shape.number,
    error=shape.text,
    served_models=shape.rows(shape.text),
)
_MEASURE = shape.fields(
    {
        "id": shape.text,
        "title": shape.text,
        "verdict": shape.one_of("pass", "fail", "unknown"),
        "value": shape.maybe(shape.number),
        "limit": shape.number,
        "better": shape.one_of("lower", "higher"),
        "n": shape.whole,
        "notice": shape.switch,
    },
    interval=shape.maybe(shape.rows(shape.number, least=2)),
    **dict.fromkeys(("baseline", "estimate"), shape.maybe(shape.number)),
    **dict.fromkeys(("unit", "note", "judged"), shape.text),
)
_VERDICT = shape.fields(
    {
        "profile": shape.text,
        "verdict": shape.one_of("pass", "fail", "unknown"),
        "reasons": shape.rows(shape.text),
        "run": _RUN,
        "gates": shape.rows(
            shape.fields(
                {
                    "name": shape.text,
                    "title": shape.text,
                    "verdict": shape.one_of("pass", "fail", "unknown"),
                    "seconds": shape.number,
                    "measures": shape.rows(_MEASURE, least=1),
                    "findings": shape.rows(shape.table(shape.text)),
                }
            ),
            least=1,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The places of one run's files."""

    path: Path

    @property
    def run_json(self) -> Path:
        """What was run: profile, tree, model, host, server, seed."""
        return self.path / "run.json"

    @property
    def verdict_json(self) -> Path:
        """The verdict file."""
        return self.path / "verdict.json"

    @property
    def details_json(self) -> Path:
        """The drawings and tables behind the verdict, for the HTML report."""
        return self.path / "details.json"

    @property
    def verdict_md(self) -> Path:
        """The verdict for people."""
        return self.path / "verdict.md"

    @property
    def junit_xml(self) -> Path:
        """The verdict for CI servers."""
        return self.path / "junit.xml"

    @property
    def allure(self) -> Path:
        """The folder of Allure result files."""
        return self.path / "allure"

    @property
    def baseline_json(self) -> Path:
        """The baseline that the run is held against, if there was one."""
        return self.path / "baseline.json"

    @property
    def server_log(self) -> Path:
        """What the launched server printed."""
        return self.path / "server.log"

    @property
    def report(self) -> Path:
        """The folder of the HTML report."""
        return self.path / "report"

    def history(self, gate: str) -> Path:
        """The history of one gate."""
        return self.path / gate / "history.jsonl"

    def items(self, gate: str) -> Path:
        """The graded items of one gate, where it keeps any."""
        return self.path / gate / "items.jsonl"

    def metrics(self, gate: str) -> Path:
        """What the server counted of itself at the end of one gate."""
        return self.path / gate / "metrics.txt"

    def read_run(self) -> dict[str, Any]:
        """The content of `run.json`; UsageError when this is not the folder of a run."""
        try:
            record = shape.parsed(self.run_json.read_bytes())
        except FileNotFoundError:
            raise UsageError(f"{self.path} is not the folder of a run: it has no run.json") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.run_json} is not JSON: {error}") from error
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise UsageError(f"{self.run_json} is not a run record of schema {SCHEMA}")
        return _sound(self.run_json, record, _RUN, mend="restore it, or make a run anew")

    def read_verdict(self) -> dict[str, Any]:
        """The content of `verdict.json`; UsageError when the run was never judged."""
        if not self.verdict_json.is_file():
            name = self.path.name
            raise UsageError(f"run {name} has no verdict yet: run `python -m gates judge {name}` first")
        try:
            content = shape.parsed(self.verdict_json.read_bytes())
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{self.verdict_json} is not JSON ({error}); move it away, then judge the run again"
            ) from error
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise UsageError(
                f"{self.verdict_json} is not a verdict of schema {SCHEMA}; "
                "move it away, then judge the run again"
            )
        return _sound(self.verdict_json, content, _VERDICT, mend="move it away, then judge the run again")

    def read_details(self) -> dict[str, Any]:
        """The content of `details.json`; empty when it was never written or is damaged."""
        try:
            content = shape.parsed(self.details_json.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder while a run writes into it, a kill -9 lets go; UsageError when another run does."""
        place = os.open(self.path, os.O_RDONLY)
        try:
            if not _locked(place):
                raise UsageError(f"run {self.path.name} is going on in another process: wait for its end")
            yield
        finally:
            os.close(place)

    @property
    def going_on(self) -> bool:
        """Whether a run writes into it at this moment."""
        place = os.open(self.path, os.O_RDONLY)
        try:
            return not _locked(place)
        finally:
            os.close(place)

    def write_run(self, record: Mapping[str, Any]) -> None:
        """Write `run.json`."""
        write_json(self.run_json, {"schema": SCHEMA, **record})


def check_place(root: Path) -> None:
    """InfrastructureError where no run folder could be made; makes the root itself."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _no_place(root, error) from error


def create(root: Path, *, profile: str, commit: str, now: datetime | None = None) -> RunFolder:
    """A new run folder `<utc>-<profile>-<commit>` below root, with the `latest` link set to it.

    InfrastructureError where nothing can be written.  Only for a run that can begin: `latest` is what
    people and scripts look at.
    """
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    names = itertools.chain([stamp], (f"{stamp}.{number}" for number in itertools.count(2)))
    try:
        root.mkdir(parents=True, exist_ok=True)
        path = next(filter(_made, (root / f"{name}-{profile}-{commit}" for name in names)))
        _link_latest(root, path.name)
    except OSError as error:
        raise _no_place(root, error) from error
    return RunFolder(path)


def _no_place(root: Path, error: OSError) -> InfrastructureError:
    return InfrastructureError(
        f"no run folder can be made in {root}: {error.strerror}; name another place with --runs"
    )


def find(root: Path, name: str) -> RunFolder:
    """The run of this name or path; `latest` is the newest. UsageError when there is none."""
    for path in (root / name, Path(name)):
        if (path / "run.json").is_file():
            return RunFolder(path.resolve())
    known = [path.name for path in runs(root)][-5:]
    listing = ", ".join(known) if known else "none yet"
    raise UsageError(f"there is no run '{name}' (no run.json in it); the newest runs are: {listing}")


def runs(root: Path) -> list[Path]:
    """All run folders below root, oldest first."""
    return sorted(path.parent for path in root.glob("*/run.json") if not path.parent.is_symlink())


def write_whole(path: Path, content: str) -> None:
    """Write a file so that it is the old or the new one, also after a kill -9: temporary, sync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode("utf-8", "backslashreplace"))  # a reply may hold lone surrogates
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON file whole, indented, in the order given."""
    write_whole(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _locked(place: int) -> bool:
    """Lock an open folder until it is closed; False when somebody else has."""
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _made(path: Path) -> bool:
    """Make this folder; False when it is there already, for another run of the same second."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def _sound(path: Path, content: dict[str, Any], wanted: Shape, *, mend: str) -> dict[str, Any]:
    fault = wanted(content, path.stem)
    if fault:
        raise UsageError(f"{path} is damaged or was edited, so nothing was done with it: {fault}; {mend}")
    return content


def _link_latest(root: Path, name: str) -> None:
    temporary = root / f".{LATEST}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(name)
    temporary.replace(root / LATEST)
