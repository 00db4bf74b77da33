"""Loads a model file into a service: reader, tokenizer, runner, engine.

Imports torch only when a model is really loaded.  Knows nothing of HTTP.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.cache.shelf import Shelf
from engine.cache.view import ModelRunner
from engine.chat.markers import Markers
from engine.chat.rules import Rules
from engine.chat.template import EffortPrefixes
from engine.config import EngineSettings, Settings
from engine.errors import SettingError, shown
from engine.gguf.file import GGUFFile
from engine.kernels.rows import Storage
from engine.loop import Engine
from engine.scheduler.scheduler import SchedulerLimits
from engine.server.mailbox import Mailbox
from engine.server.service import Service
from engine.tokenizer import Tokenizer

REVISION = "0731"  # file names of the revised checkpoint hold it; its effort levels are other ones
log = logging.getLogger("engine.server")


def load_service(
    path: Path, settings: Settings, *, report: Callable[[str], None] = lambda _: None
) -> Service:
    """Load the model; raises ModelFileError when the file cannot be used.

    `report` is told what is being done now.
    Warns where this machine changes a row's bits with what runs beside it.
    """
    from engine.runner import Runner, Threads

    report(f"opening {path.name}, {path.stat().st_size / 2**20:,.1f} MiB")
    file = GGUFFile.open(path)
    report("building the tokenizer")
    tokenizer = Tokenizer.from_gguf(file)
    report("preparing the weights, and checking that this machine computes them exactly")
    threads = Threads(1, settings.engine.threads) if settings.engine.threads else None
    storage: Storage = "wide" if settings.engine.kv_storage == "wide" else "packed"
    runner = Runner(file, storage=storage, cache_bytes=settings.engine.cache_mib * 2**20, threads=threads)
    if not runner.exactness.holds:
        log.warning("event=not_exact message=%s", runner.exactness.describe())
    context = min(settings.engine.context or runner.spec.context_length, runner.spec.context_length)
    revised = REVISION in path.name
    prefixes = EffortPrefixes.revision(native=settings.server.native_effort) if revised else EffortPrefixes()
    name = runner.spec.name or path.stem
    shelf = open_shelf(settings.engine, runner.fingerprint)
    service = assemble(runner, tokenizer, settings=settings, context=context, name=name, shelf=shelf)
    return replace(service, prefixes=prefixes)


def open_shelf(settings: EngineSettings, fingerprint: str) -> Shelf | None:
    """Where kept sequences are stored, if anywhere; SettingError when that is no place for files."""
    if not settings.spill_dir:
        return None
    try:
        directory = Path(settings.spill_dir).expanduser()
        return Shelf(directory, fingerprint=fingerprint, budget=settings.spill_mib * 2**20)
    except (OSError, RuntimeError, ValueError) as error:  # an unknown user, a name that cannot be
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise SettingError(
            f"engine.spill_dir {shown(settings.spill_dir)} cannot be used: {reason}; "
            "name a directory of your own"
        ) from None


def assemble(
    runner: ModelRunner,
    tokenizer: Tokenizer,
    *,
    settings: Settings,
    context: int,
    name: str,
    shelf: Shelf | None = None,
) -> Service:
    """A service around any runner; `context` in tokens."""
    markers, mailbox = Markers.of(tokenizer), Mailbox()
    return Service(
        engine=Engine(runner, limits(settings.engine, context=context), shelf=shelf, told=mailbox.wake),
        tokenizer=tokenizer,
        markers=markers,
        rules=Rules(tokenizer, markers),
        model_id=settings.server.model_id or model_id(name),
        display_name=name,
        context=context,
        mailbox=mailbox,
    )


def limits(settings: EngineSettings, *, context: int) -> SchedulerLimits:
    """The scheduler's bounds from the settings."""
    return SchedulerLimits(
        context=context,
        max_sequences=settings.max_sequences,
        queue_depth=settings.queue_depth,
        prefill_chunk=settings.prefill_chunk,
        prefill_chunk_live=settings.prefill_chunk_live,
        max_records=settings.cache_records,
        pin_from=settings.pin_min_tokens,
    )


def model_id(name: str) -> str:
    """A model's name as an id: lower case, words joined by dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-") or "model"
