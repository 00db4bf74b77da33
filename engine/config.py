"""Frozen settings and their only loader: file, then environment, then command line; the last one wins.

Every environment variable the engine reads is read here, and what libraries read is set here.  Knows nothing
of what the settings do.
"""

from __future__ import annotations

import difflib
import ipaddress
import stat
import tomllib
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from engine.errors import SettingError, shown

PREFIX = "SPARKGATE_"
CPU = Path("/proc/cpuinfo")
ALIASES = {"DS4_SERVER_DEFAULT_TEMP": "server.default_temperature"}  # what users of ds4 have in their scripts


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Sizes of the engine; `context` 0 means what the model file says, `threads` 0 means all cores.

    `kv_storage` is how cache rows are kept: `packed`, or `wide` to compare; no answer depends on it.
    `spill_dir` is where kept sequences are stored for later processes; empty means nowhere.
    """

    context: int = 0
    threads: int = 0
    max_sequences: int = 8
    queue_depth: int = 64
    prefill_chunk: int = 1024
    prefill_chunk_live: int = 256
    cache_mib: int = 1024
    cache_records: int = 32
    pin_min_tokens: int = 65536
    spill_dir: str = ""
    spill_mib: int = 4096
    kv_storage: str = "packed"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens and what it accepts.

    `model_id` empty means the name in the model file; `api_key` empty means that every key is accepted, which
    is allowed on the loopback only.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model_id: str = ""
    api_key: str = field(default="", repr=False)
    default_temperature: float = 1.0
    default_min_p: float = 0.05
    default_thinking: bool = True
    native_effort: bool = False
    cors: bool = False
    max_body_mib: int = 64
    keepalive_s: float = 5.0
    body_timeout_s: float = 60.0
    grace_s: float = 30.0
    stall_s: float = 60.0
    log_level: str = "info"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that open the server; `api_key` may hold several, separated by commas."""
        return tuple(key for part in self.api_key.split(",") if (key := part.strip()))


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a run of the engine can be told; `model` empty means the embedded model."""

    model: str = ""
    engine: EngineSettings = field(default_factory=EngineSettings)
    server: ServerSettings = field(default_factory=ServerSettings)


_BOUNDS: Mapping[str, tuple[float, float]] = {
    "engine.context": (0, 2**20),
    "engine.threads": (0, 1024),
    "engine.max_sequences": (1, 1024),
    "engine.queue_depth": (0, 100_000),
    "engine.prefill_chunk": (1, 2**20),
    "engine.prefill_chunk_live": (1, 2**20),
    "engine.cache_mib": (1, 2**20),
    "engine.cache_records": (0, 2**20),
    "engine.pin_min_tokens": (1, 2**20),
    "engine.spill_mib": (1, 2**20),
    "server.port": (0, 65535),
    "server.default_temperature": (0, 2),
    "server.default_min_p": (0, 1),
    "server.max_body_mib": (1, 1024),
    "server.keepalive_s": (0.05, 60),
    "server.body_timeout_s": (0.1, 3600),
    "server.grace_s": (0, 3600),
    "server.stall_s": (1, 86400),
}

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "engine.kv_storage": ("packed", "wide"),
    "server.log_level": ("debug", "info", "warning", "error"),
}


def load(
    *, command_line: Mapping[str, object], environment: Mapping[str, str], file: Path | None = None
) -> Settings:
    """Settings from all three places; keys are dotted (`server.port`), None in `command_line` is absent.

    Raises SettingError naming the key, where it stood, what was found and what is allowed.
    """
    values: dict[str, Any] = {}
    if file is not None:
        values |= _from_file(file)
    values |= _from_environment(environment)
    for key, value in command_line.items():
        if value is not None:
            values[key] = _convert(key, value, "the command line")
    return _build(values)


def keep_sums_in_order(environment: MutableMapping[str, str], cpu: Path = CPU) -> None:
    """Ask MKL for one order of sums on Intel's CPUs, before its first product, unless the environment does.

    Without it a Xeon with AVX-512 gave a row other bits beside other rows (scores of 64 rows of 160); with it
    prefill and decode took as long.  Other makers' CPUs kept their bits without it, and it may send them to
    MKL's slowest kernels.
    """
    try:
        with cpu.open() as lines:
            intel = "GenuineIntel" in lines.read(4096)  # the first processor stands for all
    except OSError:  # no such list here
        return
    if intel:
        environment.setdefault("MKL_CBWR", "AUTO,STRICT")


def let_threads_sleep(environment: MutableMapping[str, str]) -> None:
    """Let idle threads sleep, before torch loads: spinning ones made prefill 3 times slower."""
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def check_exposure(settings: ServerSettings) -> None:
    """Refuse to listen where others can reach the server without a key, and keys that open to everybody."""
    if settings.api_key and not settings.keys:
        raise SettingError(
            f"server.api_key holds no key, found {shown(settings.api_key)}; "
            "give one or several separated by commas, or leave it out"
        )
    if settings.keys or settings.host == "localhost":
        return
    try:
        private = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        private = False
    if not private:
        raise SettingError(
            f"server.host is {settings.host!r}, which other machines may reach; "
            f"set a key with {PREFIX}API_KEY or listen on 127.0.0.1"
        )


def embedded_model() -> Path:
    """Where the small model that comes with the project lies: beside the engine, in checkout and wheel."""
    return Path(__file__).parents[1] / "fixtures" / "tiny" / "sparkgate-tiny.gguf"


def model_path(settings: Settings) -> Path:
    """The model file to load, which must exist; raises SettingError otherwise."""
    named = settings.model or str(embedded_model())
    hint = "give a path to a GGUF file" if settings.model else f"give one with --model or {PREFIX}MODEL"
    try:
        path = Path(named).expanduser()
        regular = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        raise SettingError(f"model file {named} does not exist; {hint}") from None
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, too long a name, an unknown user
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise SettingError(f"model file {shown(named)} cannot be used: {reason}; {hint}") from None
    if not regular:
        raise SettingError(f"model file {path} is not a regular file; {hint}")
    return path


def _keys() -> dict[str, type]:
    """Every dotted key and the type of its default."""
    found: dict[str, type] = {"model": str}
    for room, settings in (("engine", EngineSettings()), ("server", ServerSettings())):
        found |= {f"{room}.{entry.name}": type(getattr(settings, entry.name)) for entry in fields(settings)}
    return found


def _build(values: Mapping[str, Any]) -> Settings:
    settings = Settings(model=values.get("model", ""))
    for room in ("engine", "server"):
        prefix = f"{room}."
        part = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
        settings = replace(settings, **{room: replace(getattr(settings, room), **part)})
    return settings


def _from_file(file: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"settings file {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"settings file {file} is not TOML: {error}") from error
    values = {}
    for name, entry in tables.items():
        parts = entry.items() if isinstance(entry, dict) else [(None, entry)]
        for key, value in parts:
            dotted = name if key is None else f"{name}.{key}"
            values[dotted] = _convert(dotted, value, str(file))
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """SPARKGATE_MODEL, and SPARKGATE_<KEY> for the keys of the rooms, for example SPARKGATE_PORT."""
    names = {PREFIX + key.rpartition(".")[2].upper(): key for key in _keys()}
    values = {}
    for name, key in [*ALIASES.items(), *names.items()]:
        if environment.get(name):
            values[key] = _convert(key, environment[name], f"the environment variable {name}")
    return values


def _convert(key: str, value: object, origin: str) -> Any:
    kinds = _keys()
    if key not in kinds:
        near = difflib.get_close_matches(key, kinds, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; allowed are {', '.join(kinds)}"
        raise SettingError(f"unknown setting {key} in {origin}{hint}")
    kind = kinds[key]
    parsers: dict[type, Callable[[object], object]] = {
        bool: _switch,
        int: _integer,
        float: _number,
        str: _string,
    }
    try:
        converted = parsers[kind](value)
    except (TypeError, ValueError, OverflowError):
        raise SettingError(f"{key} in {origin} is {shown(value)}; allowed is {_allowed(key, kind)}") from None
    low, high = _BOUNDS.get(key, (float("-inf"), float("inf")))
    outside = isinstance(converted, int | float) and not low <= converted <= high
    if outside or converted not in _CHOICES.get(key, (converted,)):
        raise SettingError(f"{key} in {origin} is {value!r}; allowed is {_allowed(key, kind)}")
    return converted


def _switch(value: object) -> bool:
    words = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in words:
        raise TypeError
    return words[value.lower()]


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _allowed(key: str, kind: type) -> str:
    if key in _CHOICES:
        return " or ".join(_CHOICES[key])
    name = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
    bounds = _BOUNDS.get(key)
    return name if bounds is None else f"{name} from {bounds[0]:.12g} to {bounds[1]:.12g}"
