"""Profiles: reads `profiles/<name>.toml` and checks it against the registry before anything starts.

A profile is complete: every key of every gate that it runs, nothing else, no inheritance.
Knows the form of the values, not what they are good for.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gates import registry
from gates.errors import UsageError
from gates.spec import GateSpec, Key, Kind

Value = int | float | bool | str | list[int] | list[float] | list[str]
Table = Mapping[str, Value]

RELEASE = "release"  # the profile whose pass allows a tag
FOLDER = Path(__file__).parent / "profiles"
MODELS = ("embedded", "given")
RUN_KEYS = (
    Key("gates", "texts"),
    Key("on_demand", "texts"),
    Key("seed", "count"),
    Key("model", "text"),
    Key("selection", "switch"),
    Key("give_up_ratio", "number"),
    *registry.RUN.all_keys(),
)
SERVER_KEYS = (
    Key("context_tokens", "count"),
    Key("start_seconds", "positive"),
    Key("stop_seconds", "positive"),
    Key("request_seconds", "positive"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """One table of a profile, its kinds already checked; a getter for each kind."""

    table: str
    values: Table

    def count(self, name: str) -> int:
        """A whole number, zero or more."""
        return cast(int, self._value(name))

    def number(self, name: str) -> float:
        """Any number, as a float."""
        return float(cast(float, self._value(name)))

    def text(self, name: str) -> str:
        """A text."""
        return cast(str, self._value(name))

    def switch(self, name: str) -> bool:
        """True or false."""
        return cast(bool, self._value(name))

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        return tuple(cast(list[int], self._value(name)))

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of numbers, as floats."""
        return tuple(float(item) for item in cast(list[float], self._value(name)))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(cast(list[str], self._value(name)))

    def _value(self, name: str) -> Value:
        if name not in self.values:
            raise UsageError(f"[{self.table}] has no key '{name}'; it has {', '.join(sorted(self.values))}")
        return self.values[name]


@dataclass(frozen=True, slots=True)
class Profile:
    """A checked profile: its name, the digest of its file, one `Settings` a table, the gates it runs."""

    name: str
    sha256: str
    tables: Mapping[str, Table]

    def table(self, name: str) -> Settings:
        """The settings of one gate, or of `run` or `server`."""
        return Settings(name, self.tables[name])

    @property
    def gates(self) -> list[GateSpec]:
        """The gates that this profile runs, cheap ones first."""
        return registry.cheap_first(list(self.table("run").texts("gates")))

    @property
    def every_gate(self) -> list[GateSpec]:
        """Those, and the gates that it runs only when they are asked for by name."""
        run = self.table("run")
        return registry.cheap_first([*run.texts("gates"), *run.texts("on_demand")])

    @property
    def seed(self) -> int:
        """The seed from which every gate derives its own."""
        return self.table("run").count("seed")


def names(folder: Path = FOLDER) -> list[str]:
    """The profiles of a folder; by default those that ship with the gates."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def load(name: str, *, folder: Path = FOLDER) -> Profile:
    """Read and check the profile of this name, or in the file of this path that ends in `.toml`.

    UsageError says all that is wrong with it at once.
    """
    path = folder / f"{name}.toml"
    if name.endswith(".toml"):
        path, name = Path(name), Path(name).stem
        if name in names(folder) and path.resolve() != (folder / path.name).resolve():
            raise UsageError(f"{path} has the name of a profile that ships with the gates: call it otherwise")
    if not path.is_file():
        if path.parent != folder:
            raise UsageError(f"there is no profile file {path}")
        known = names(folder)
        raise UsageError(
            f"there is no profile '{name}'{nearest(name, known)}; profiles are {', '.join(known)},"
            " or a file that ends in .toml"
        )
    raw = path.read_bytes()
    try:
        tables = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"profile {path} is not TOML: {error}") from error
    return checked(name, tables, hashlib.sha256(raw).hexdigest())


def checked(name: str, tables: Mapping[str, object], sha256: str) -> Profile:
    """The profile of these tables if they fit the registry key by key; else UsageError with every fault."""
    wrong = faults(tables)
    if wrong:
        listing = "\n  ".join(wrong)
        raise UsageError(f"profile '{name}' does not fit the registry; nothing was started:\n  {listing}")
    return Profile(name, sha256, cast(Mapping[str, Table], tables))


def recorded(run: Mapping[str, Any], name: str) -> Profile:
    """The profile that a run recorded; UsageError when it fits today's registry no more, or was edited."""
    wrong = faults(run["settings"])
    if wrong:
        raise UsageError(
            f"run {name} was recorded under another registry and cannot be used by this one; "
            f"judge it at its own commit ({run['tree']['commit']}):\n  " + "\n  ".join(wrong)
        )
    profile = Profile(run["profile"], run["profile_sha256"], run["settings"])
    known = [gate.name for gate in profile.every_gate]
    strange = [gate for gate in run["chosen"] if gate not in known]
    if strange:
        raise UsageError(
            f"run {name} is damaged or was edited: it says that it drove {', '.join(strange)}, and its"
            f" settings are those of {', '.join(known)}; restore its run.json, or make a run anew"
        )
    return profile


def nearest(name: str, known: Iterable[str]) -> str:
    """The words ` (did you mean 'x'?)` when a known name is close, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def faults(tables: Mapping[str, object]) -> list[str]:
    """Every place where tables and registry disagree, one line each; empty when they agree."""
    found = _table_faults("run", RUN_KEYS, tables.get("run")) + _table_faults(
        "server", SERVER_KEYS, tables.get("server")
    )
    if found:
        return found
    run = cast(Mapping[str, object], tables["run"])
    chosen = [*cast(list[str], run["gates"]), *cast(list[str], run["on_demand"])]
    known = [gate.name for gate in registry.GATES]
    found += [
        f"[run] gates: unknown gate '{gate}'{nearest(gate, known)}" for gate in chosen if gate not in known
    ]
    if not run["gates"]:
        found.append("[run] gates: empty; name at least one gate")
    if run["model"] not in MODELS:
        found.append(f"[run] model: found '{run['model']}', allowed: {', '.join(MODELS)}")
    for gate in registry.GATES:
        if gate.name in chosen:
            found += _table_faults(gate.name, gate.all_keys(), tables.get(gate.name))
    for table in tables:
        if table not in ("run", "server", *chosen):
            word = "unused table" if table in known else "unknown table"
            hint = "; add it to [run] gates or remove it" if table in known else nearest(table, known)
            found.append(f"[{table}]: {word}{hint}")
    return found


def _table_faults(table: str, keys: Iterable[Key], found: object) -> list[str]:
    if not isinstance(found, dict):
        return [f"[{table}]: missing table"]
    wanted = {key.name: key for key in keys}
    faults = [
        f"[{table}] {name}: missing key ({key.kind})" for name, key in wanted.items() if name not in found
    ]
    for name, value in found.items():
        if name not in wanted:
            faults.append(f"[{table}] {name}: unknown key{nearest(name, wanted)}")
        elif not fits(wanted[name].kind, value):
            faults.append(f"[{table}] {name}: found {value!r}, allowed: {DESCRIPTIONS[wanted[name].kind]}")
    return faults


DESCRIPTIONS: Mapping[Kind, str] = {
    "count": "a whole number from 0",
    "counts": "a list of whole numbers from 0",
    "number": "a number",
    "positive": "a number above 0",
    "numbers": "a list of numbers",
    "ratio": "a number from 0 to 1",
    "ratios": "a list of numbers from 0 to 1",
    "text": "a text",
    "texts": "a list of texts",
    "switch": "true or false",
}


def fits(kind: Kind, value: object) -> bool:
    """Whether a TOML value is of this kind."""
    if kind in ("counts", "numbers", "ratios", "texts"):
        single = cast(Kind, kind[:-1])
        return isinstance(value, list) and all(fits(single, item) for item in value)
    if kind == "switch":
        return isinstance(value, bool)
    if kind == "text":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind == "count":
        return isinstance(value, int) and value >= 0
    if kind == "ratio":
        return 0 <= value <= 1
    try:
        finite = math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False
    return finite and (kind != "positive" or value > 0)
