"""The sessions of sparkgate: `nox -l` is the table of contents, extra arguments after `--` pass through.

Dependencies are read from pyproject.toml and pinned by constraints.txt; nothing is listed here twice.
Two environments are shared: `workshop` (engine, gates and their tests; the only one with torch) and
`desk` (the harness alone).  Each is built once and kept until pyproject.toml or constraints.txt change.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
CONSTRAINTS = os.environ.get("SPARKGATE_CONSTRAINTS", "constraints.txt")  # another file tries other versions
PROJECT = ("-e", ".")  # editable: the tree at hand is what runs
EMBEDDED = "fixtures/tiny/sparkgate-tiny.gguf"
INTERRUPT_S = 60  # after Ctrl-C a run still ends its server and writes its record; nox would wait 0.3 s
# Test workers already use every core: torch takes one thread, and where a test wants two, one that waits for
# the other sleeps.  Spinning made such a test ten times as long.
BUSY = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
ROOMS = ("engine", "gates", "fixtures", "reports")

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True


@nox.session(venv_backend="none", requires=["workshop"], default=False)
def gates(session: nox.Session) -> None:
    """Judge the engine: profile `ci` on the embedded model (-- --profile NAME, -- --base-url URL)."""
    inside(session, "workshop", "-m", "gates", "run", "--html", *session.posargs)


@nox.session(venv_backend="none", requires=["workshop"])
def tests(session: nox.Session) -> None:
    """Prove our own code on the CPU (-- any pytest arguments)."""
    # One more than there are cores: the liars of the gates mostly wait (4 s each for half a second of work).
    workers = ("-n", str(min(4, 1 + (os.cpu_count() or 1))), "--dist", "worksteal")
    default = (
        *workers,
        "-m",
        "not device and not oracle and not crosscheck and not elsewhere and not live and not nightly"
        " and not agents",
        "--hypothesis-profile",
        "ci",
    )
    inside(session, "workshop", "-m", "pytest", *default, *session.posargs, env=BUSY)


@nox.session(venv_backend="none", requires=["workshop"], default=False)
def nightly(session: nox.Session) -> None:
    """Run the long tests: many more seeds and cases than `tests` (-- any pytest arguments)."""
    workers = ("-n", str(os.cpu_count() or 1), "--dist", "worksteal")
    inside(session, "workshop", "-m", "pytest", *workers, "-m", "nightly", *session.posargs, env=BUSY)


@nox.session(venv_backend="none", requires=["workshop"], default=False)
def load(session: nox.Session) -> None:
    """Let many clients ask a server at once and hold it against the bare model (-- --base-url URL ...)."""
    words = session.posargs or ("--overhead", "1,16")
    inside(session, "workshop", "-m", "engine", "load", *words)


@nox.session(reuse_venv=True, requires=["workshop"], default=False)
def clients(session: nox.Session) -> None:
    """Let public agent programs change a file through the server (-- any pytest arguments)."""
    install(session, *group("clients"))
    agents = ROOT / "engine" / "tests" / "agents"
    tools = Path(session.cache_dir).parent / "workshop" / "bin"
    folder = Path(session.create_tmp()).resolve() / "npm"  # programs run in other folders
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(agents / name, folder)
    searched = os.pathsep.join(
        map(str, (folder / "node_modules" / ".bin", session.bin, tools, os.environ.get("PATH", os.defpath)))
    )
    npm = shutil.which("npm", path=searched) or "npm"
    words = ("install", "--no-audit", "--no-fund", "--prefix", str(folder))  # one needs its script
    session.run(npm, *words, env={"PATH": searched}, external=True)
    inside(session, "workshop", "-m", "pytest", "-m", "agents", *session.posargs, env={"PATH": searched})


@nox.session(reuse_venv=True)
def lint(session: nox.Session) -> None:
    """Check style and format with ruff (-- --fix mends what it can)."""
    install(session, *group("lint"))
    session.run("ruff", "check", *session.posargs, ".")
    session.run("ruff", "format", *(() if "--fix" in session.posargs else ("--check",)), ".")


@nox.session(venv_backend="none", requires=["workshop"])
def types(session: nox.Session) -> None:
    """Check all types with mypy --strict."""
    inside(session, "workshop", "-m", "mypy", *(session.posargs or ROOMS))


@nox.session(reuse_venv=True)
def imports(session: nox.Session) -> None:
    """Check the import contracts: who may know whom."""
    install(session, *group("imports"))
    session.run("lint-imports", *session.posargs)


@nox.session(venv_backend="none", requires=["desk"], default=False)
def judge(session: nox.Session) -> None:
    """Judge a recorded run again, or the parts of one as a whole, without a server (-- RUN [RUN2 ...])."""
    inside(session, "desk", "-m", "gates", "judge", *session.posargs)


@nox.session(venv_backend="none", requires=["desk"], default=False)
def report(session: nox.Session) -> None:
    """Write the HTML report of a recorded run again (-- RUN)."""
    inside(session, "desk", "-m", "gates", "report", *session.posargs)


@nox.session(venv_backend="none", requires=["desk"], default=False)
def baseline(session: nox.Session) -> None:
    """Make a recorded run the baseline of its model and profile (-- RUN --reason "...")."""
    inside(session, "desk", "-m", "gates", "baseline", *session.posargs)


@nox.session(venv_backend="none", requires=["desk"], default=False)
def tag(session: nox.Session) -> None:
    """Make a release tag, only if a pass of profile `release` is recorded for this tree (-- vX.Y.Z)."""
    inside(session, "desk", "-m", "gates", "tag", *session.posargs)


@nox.session(reuse_venv=True, default=False)
def oracle(session: nox.Session) -> None:
    """Compare the engine with the transformers library on random weights (own environment)."""
    install(session, *PROJECT, *group("oracle"))
    session.run("python", "-m", "pytest", "-m", "oracle", *session.posargs, "engine/tests/oracle")


@nox.session(reuse_venv=True, default=False)
def crosscheck(session: nox.Session) -> None:
    """Compare the checkers of instructions with those of lm-eval on generated replies (own environment)."""
    install(session, *extra("gates"), *group("crosscheck"))
    words = ("-m", "pytest", "-m", "crosscheck", "-s", *session.posargs, "gates/tests/crosscheck")
    session.run("python", *words)


@nox.session(reuse_venv=True, default=False)
def elsewhere(session: nox.Session) -> None:
    """Judge a server and a model that have nothing of ours, by URL alone (own environment)."""
    install(session, *extra("gates"), *group("elsewhere"))
    words = ("-m", "pytest", "-m", "elsewhere", *session.posargs, "gates/tests/elsewhere")
    session.run("python", *words, env={"OMP_NUM_THREADS": "1"})  # so small a model is slower on more


@nox.session(venv_backend="none", requires=["workshop"], default=False)
def fixtures(session: nox.Session) -> None:
    """Score the embedded model on some held-out cases (-- MODEL --cases N --tiers TOKENS ...)."""
    few = (EMBEDDED, "--cases", "3", "--needle-cases", "5", "--tiers", "1024", "--workers", "2")
    kept = str(Path(session.create_tmp()) / "evaluation.json")
    inside(session, "workshop", "-m", "fixtures.tiny.evaluate", *(session.posargs or few), "--json", kept)
    inside(session, "workshop", "-m", "fixtures.tiny.card", kept)


@nox.session(venv_backend="none", requires=["workshop"], default=False)
def faults(session: nox.Session) -> None:
    """Put every lying server in front of the engine and see each one caught (40 minutes)."""
    inside(session, "workshop", "-m", "pytest", "-m", "live", *session.posargs, "gates/tests")


@nox.session(venv_backend="none", default=False)
def docs(session: nox.Session) -> None:
    """Write the generated parts of docs/ anew (the table of modules)."""
    session.run(sys.executable, "reports/structure.py", *session.posargs, external=True)


@nox.session(venv_backend="none", default=False)
def device(session: nox.Session) -> None:
    """Run the tests that need an accelerator, in the Python that runs nox (its torch knows the device)."""
    lacking = [name for name in ("torch", "pytest") if importlib.util.find_spec(name) is None]
    if lacking:
        session.skip(f"the Python that runs nox lacks {' and '.join(lacking)}: {sys.executable}")
    session.run(sys.executable, "-m", "pytest", "-m", "device", *session.posargs, external=True)


@nox.session(venv_backend="none", requires=["workshop", "desk"], default=False)
def pins(session: nox.Session) -> None:
    """Write constraints.txt anew from what all built environments hold."""
    lines = {"# What CI installs, all environments together; written by `nox -s pins`."}
    for python in sorted(Path(session.cache_dir).parent.glob("*/bin/python")):
        frozen = session.run(
            str(python), "-m", "pip", "freeze", "--exclude-editable", silent=True, external=True
        )
        lines |= {line.partition("+")[0] for line in str(frozen).splitlines() if "==" in line}
    (ROOT / CONSTRAINTS).write_text("\n".join(sorted(lines, key=str.lower)) + "\n")


@nox.session(reuse_venv=True, default=False)
def workshop(session: nox.Session) -> None:
    """Build the environment of `gates`, `tests` and `types`: the project, editable, with torch."""
    install(session, *PROJECT, *extra("gates"), *extra("report"), *group("dev"))


@nox.session(reuse_venv=True, default=False)
def desk(session: nox.Session) -> None:
    """Build the environment of `judge`, `report`, `baseline` and `tag`: the harness alone, without torch."""
    install(session, *extra("gates"), *extra("report"))


def group(name: str) -> tuple[str, ...]:
    """The requirements of one dependency group of pyproject.toml (what developers need)."""
    return nox.project.dependency_groups(PYPROJECT, name)


def extra(name: str) -> tuple[str, ...]:
    """The requirements of one extra of pyproject.toml (what users can add)."""
    return tuple(PYPROJECT["project"]["optional-dependencies"][name])


def install(session: nox.Session, *wanted: str) -> None:
    """Install by the constraints, unless the environment holds just that already."""
    inputs = [(ROOT / name).read_text() for name in ("pyproject.toml", CONSTRAINTS)]
    digest = hashlib.sha256("\0".join([*inputs, *wanted]).encode()).hexdigest()
    stamp = Path(session.virtualenv.location) / "installed.sha256"
    if stamp.exists() and stamp.read_text() == digest:
        return
    session.install("-c", CONSTRAINTS, *wanted)
    stamp.write_text(digest)


def inside(
    session: nox.Session,
    shared: str,
    *words: str,
    env: Mapping[str, str] | None = None,
    success_codes: Iterable[int] = (0,),
) -> None:
    """Run the Python of a shared environment; the repository root is where it looks for the rooms."""
    folder = Path(session.cache_dir).parent / shared / "bin"
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    variables = {"PYTHONPATH": str(ROOT), "PATH": path, **(env or {})}
    session.run(
        str(folder / "python"),
        *words,
        env=variables,
        external=True,
        success_codes=success_codes,
        interrupt_timeout=INTERRUPT_S,
    )
