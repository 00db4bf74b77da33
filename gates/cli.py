"""The command line of the gates: run, resume, plan, judge, report, tag, baseline, data.

Owns options, environment variables (`SPARKGATE_DATA`, `SPARKGATE_API_KEY`) and the exit codes: 0 pass,
1 fail, 2 usage, 3 unknown, 4 infrastructure, 130 interrupted. Knows nothing of how a command does its work.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from gates import profile
from gates.errors import ExitCode, GateError, InfrastructureError, UsageError

if TYPE_CHECKING:
    from gates.target import Target

app = App(
    name="gates",
    help="Release gates: start a server, put traffic on it, record everything, give one verdict.",
    version_flags=(),
    result_action="return_value",
)

data = App(name="data", help="The public question sets: which files, where from, how to get them.")
app.command(data)

# What the host says of a disk that is full, broken or not ours to write.
NO_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO)
NO_PLACE_HINT = "make room or mend its rights, then judge what was recorded: python -m gates judge latest"

Profile = Annotated[str, Parameter(help="Which profile: ci, nightly, candidate, release, or a file (.toml).")]
ModelFile = Annotated[Path | None, Parameter(help="Model file to serve (default: the embedded model).")]
ServerCommand = Annotated[
    str | None, Parameter(help="Start this command; it gets {port}, {model}, {context}.")
]
BaseUrl = Annotated[
    tuple[str, ...],
    Parameter(help="Judge a server that already runs here; several share the items of quality.", negative=""),
]
ControlUrl = Annotated[str | None, Parameter(help="A running server that is asked the same, to compare.")]
ControlModel = Annotated[
    Path | None, Parameter(help="A model that is served beside and asked the same, to compare.")
]
Only = Annotated[tuple[str, ...] | None, Parameter(help="Take only these gates.", consume_multiple=True)]
Json = Annotated[bool, Parameter(help="Print JSON instead of text.")]


class _Screen(Console):
    """The console of a command: whoever reads along may leave, and the command still ends by its own code."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (sys.stderr if self.stderr else sys.stdout).fileno())
        os.close(nowhere)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every expected error is one message on the error output."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a reply may hold what this terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    console = _Screen(stderr=True)
    try:
        result = app(words, console=_Screen(), error_console=console, exit_on_error=False, print_error=True)
    except CycloptsError:
        return ExitCode.USAGE
    except GateError as error:
        _say_error(error, console)
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:
        if error.errno not in NO_PLACE:
            console.print_exception()
        else:
            _say_error(InfrastructureError(f"{error}; {NO_PLACE_HINT}"), console)
        return ExitCode.INFRASTRUCTURE
    except Exception:  # a fault of the harness must never look like a broken claim, whose exit code is 1
        console.print_exception()
        return ExitCode.INFRASTRUCTURE
    return result if isinstance(result, int) else ExitCode.PASS


@app.command
def run(
    *,
    profile: Profile = "ci",
    model: ModelFile = None,
    base_url: BaseUrl = (),
    server: ServerCommand = None,
    control_url: ControlUrl = None,
    control_model: ControlModel = None,
    only: Only = None,
    seed: Annotated[int | None, Parameter(help="Ask with another seed than the profile's.")] = None,
    part: Annotated[
        str, Parameter(help="Ask a part of the items, such as 2/3; `judge` joins the runs of all parts.")
    ] = "1/1",
    runs: Annotated[Path | None, Parameter(help="Where run folders go (default: reports/runs).")] = None,
    html: Annotated[bool, Parameter(help="Make the HTML report of this run too.", negative="")] = False,
) -> int:
    """Judge a server: start it, drive every gate of the profile, write the record and the verdict."""
    from gates import run as runner  # here, so that --help and plan need no pytest and no HTTP library

    request = runner.Request(
        profile=_profile(profile),
        target=_target(model, server, base_url, control_url, control_model),
        only=_only(only),
        seed=seed,
        part=_part(part),
        runs=runs or runner.RUNS,
        data=_data(),
        html=html,
    )
    runner.checked(request)  # what cannot begin is said before the plan, and alone
    whole = not request.profile.table("run").switch("selection")  # a release prints every claim first
    _print_plan(request.profile, request.only, claims=whole, launched=request.target.launched)
    return runner.run(request, _Screen())


@app.command
def resume(
    run: Annotated[str, Parameter(help="Name or path of a run folder, or 'latest'.")] = "latest",
    *,
    model: ModelFile = None,
    base_url: BaseUrl = (),
    server: ServerCommand = None,
    control_url: ControlUrl = None,
    control_model: ControlModel = None,
    runs: Annotated[Path | None, Parameter(help="Where run folders are (default: reports/runs).")] = None,
) -> int:
    """Go on with a run that was stopped or killed: what it has on record is not asked again."""
    from gates import run as runner
    from gates.harness import record

    target = _target(model, server, base_url, control_url, control_model)
    return runner.resume(record.find(runs or runner.RUNS, run), target, _data(), _Screen())


@app.command
def plan(*, profile: Profile = "ci", only: Only = None, json: Json = False) -> None:
    """Say what a run would do: gates, claims with their limits, minutes. Starts nothing."""
    _print_plan(_profile(profile), _only(only), as_json=json)


@app.command
def judge(
    *run: Annotated[str, Parameter(help="Name or path of a run folder, or 'latest'; several are joined.")],
    runs: Annotated[Path | None, Parameter(help="Where run folders are (default: reports/runs).")] = None,
) -> int:
    """Judge a recorded run again, or several parts of one as one, without a server, from records alone."""
    from gates import judge as judging
    from gates import merge, outcome
    from gates import report as reporting
    from gates.harness import record
    from gates.harness.verdict import Verdict
    from gates.run import RUNS

    found = [record.find(runs or RUNS, name) for name in run or ("latest",)]
    folder = found[0] if len(found) == 1 else merge.merge(found, runs or RUNS)
    judged = judging.judge(folder)
    console = _Screen()
    console.print(judging.write(folder, judged), markup=False, soft_wrap=True)
    page = None if judged.differences else reporting.present(folder)
    outcome.show(folder, judged.shown, console, page_follows=bool(page or judged.differences))
    if page:
        reporting.say(page, console)
    outcome.last_line(judged.shown, console)
    return outcome.exit_code(Verdict(judged.shown["verdict"]))


@app.command
def report(
    run: Annotated[str, Parameter(help="Name or path of a run folder, or 'latest'.")] = "latest",
    *,
    runs: Annotated[Path | None, Parameter(help="Where run folders are (default: reports/runs).")] = None,
) -> int:
    """Make the HTML report of a run: one file that opens with a double click and fetches nothing."""
    from gates import report as reporting
    from gates.harness import record
    from gates.run import RUNS

    return reporting.show(record.find(runs or RUNS, run), _Screen(), _Screen(stderr=True))


@app.command
def tag(
    version: Annotated[str, Parameter(help="The tag to make: vX.Y.Z.")],
    *,
    model: Annotated[Path | None, Parameter(help="Demand that the run judged this model file.")] = None,
    runs: Annotated[Path | None, Parameter(help="Where run folders are (default: reports/runs).")] = None,
) -> None:
    """Make the git tag of a release, only if a pass of profile `release` is recorded for exactly this."""
    from gates import tag as tagging
    from gates.run import RUNS

    allowing = tagging.make(version, model=model, runs=runs or RUNS)
    _Screen().print(f"tagged {version}, allowed by run {allowing}", markup=False, soft_wrap=True)


@app.command
def baseline(
    run: Annotated[str, Parameter(help="Name or path of a passed run, or 'latest'.")],
    *,
    reason: Annotated[str, Parameter(help="Why these numbers are the new normal.")],
    runs: Annotated[Path | None, Parameter(help="Where run folders are (default: reports/runs).")] = None,
) -> None:
    """Make a passed run the baseline of its model and profile; the file is reviewed like code."""
    from gates import judge as judging
    from gates.harness import baseline as baselines
    from gates.harness import record
    from gates.quality import floors
    from gates.run import RUNS

    folder, console = record.find(runs or RUNS, run), _Screen()
    judging.confirm(folder)
    path = baselines.promote(folder, reason)
    console.print(f"baseline written: {path}", markup=False, soft_wrap=True)
    measured = floors.of_run(folder)
    if measured:
        console.print("its [quality] scores and lengths, to hold against those of the profile:")
        console.print("\n".join(measured), markup=False, highlight=False, soft_wrap=True)


@data.command
def fetch() -> None:
    """Fetch every data file that is missing or wrong into SPARKGATE_DATA (default: the user's cache)."""
    from gates.quality import fetch as fetching
    from gates.quality.data import Store

    named = os.environ.get("SPARKGATE_DATA")
    store = Store.open(Path(named) if named else None)
    console = _Screen()
    console.print(f"data folder: {store.folder}", markup=False, highlight=False, soft_wrap=True)
    fetching.fetch(store, told=lambda path, what: console.print(f"{what:8}{path}", highlight=False))


def _say_error(error: GateError, console: Console) -> None:
    console.print(
        f"{type(error).__name__}: {error}", style="bold", markup=False, highlight=False, soft_wrap=True
    )


def _only(named: tuple[str, ...] | None) -> tuple[str, ...]:
    """The gates that were named; UsageError for `--only` with nothing behind it, which is not all of them."""
    if named == ():
        raise UsageError("--only names no gate: write which, such as --only needle, or leave it out")
    return named or ()


def _part(text: str) -> tuple[int, int]:
    """Which part, and of how many; UsageError for a text that says neither."""
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count:
        raise UsageError(f"--part is '{text}'; write which part and of how many, such as 2/3")
    return number, count


def _target(
    model: Path | None,
    server: str | None,
    base_urls: tuple[str, ...],
    control_url: str | None,
    control_model: Path | None,
) -> Target:
    from gates.harness.launch import Command
    from gates.target import Target

    return Target(
        model=model,
        server=None if server is None else Command.parse(server),
        base_urls=base_urls,
        control_url=control_url,
        control_model=control_model,
        api_key=os.environ.get("SPARKGATE_API_KEY"),
    )


def _profile(name: str) -> profile.Profile:
    return profile.load(name)


def _print_plan(
    chosen: profile.Profile,
    only: tuple[str, ...],
    *,
    claims: bool = True,
    as_json: bool = False,
    launched: bool = True,
) -> None:
    from gates import planning

    planning.show(chosen, only, _Screen(), claims=claims, as_json=as_json, launched=launched)


def _data() -> Path | None:
    """The data folder named by SPARKGATE_DATA; UsageError when it is named but not there."""
    name = os.environ.get("SPARKGATE_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise UsageError(
            f"SPARKGATE_DATA is '{name}', which is not a folder; unset it or name the data folder"
        )
    return Path(name)
