"""Runs the server: the socket opens at once, the model loads beside it, signals drain it.

Owns the process's life.  Knows nothing of requests.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from types import FrameType

import uvicorn

from engine.config import Settings, check_exposure
from engine.errors import EngineError, SettingError
from engine.server.app import build_app
from engine.server.patience import AT_ONCE, PatientProtocol
from engine.server.service import Host, Service

log = logging.getLogger("engine.server")
INTERRUPTED = 130
MAX_HEADER_BYTES = 64 * 1024
BACKLOG = 2048
# Threads that read bodies and encode prompts.  Each keeps memory for the largest it read: after 12 bodies of
# up to 250 KB at once the six of asyncio on two cores held 154 MiB, two hold 43 and are no slower.
READERS = 2
LAST_WORD_S = 1  # for clients to take their end: answers have had their time in `_drain`
UNREAD_MS = 120_000  # a client that takes nothing for so long, or does not answer any more, is given up


class _Http(uvicorn.Server):
    """uvicorn that asks before it leaves: a first signal drains, a second one ends at once.

    Signals are only noted: uvicorn itself would raise them again before the engine is closed.
    """

    def __init__(self, config: uvicorn.Config, drain: Callable[[], None], hurry: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain = drain
        self._hurry = hurry
        self.ended_by: int | None = None
        self.hurried = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; asyncio takes as many connections at once as may wait, so more may wait only after it.

        Bodies and prompts are read on threads of their own; none of that work waits for other such work.
        Making grammars does, and has other threads.
        """
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(READERS, "reader"))
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what is open; uvicorn would cancel it in the end, which reads like a failure of ours."""
        asyncio.get_running_loop().call_later(LAST_WORD_S, self._hang_up)
        await super().shutdown(sockets)

    def _hang_up(self) -> None:
        for kept in list(self.server_state.connections):
            if isinstance(kept, PatientProtocol):
                kept.transport.abort()

    def handle_exit(self, sig: int, _: FrameType | None) -> None:
        """Called by uvicorn on SIGINT and SIGTERM."""
        if self.ended_by is None:
            self.ended_by = sig
            self._drain()
        else:
            self._hurry()
            self.hurried = self.should_exit = self.force_exit = True


class Server:
    """One server process; `load` makes the service, on a thread of its own.

    `announce` is called with lines for the person at the terminal: requests are taken, and how it ends.
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Service],
        *,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        check_exposure(settings.server)
        self.host = Host(stall_s=settings.server.stall_s)
        self._announce = announce
        self._settings = settings
        self._load = load
        self._failure: EngineError | None = None
        self._cut = 0
        self._socket = _listen(settings.server.host, settings.server.port)
        app = build_app(self.host, settings.server, fingerprint=fingerprint())
        self._uvicorn = _Http(
            uvicorn.Config(
                app,
                log_config=None,  # its lines look like ours
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                http=functools.partial(PatientProtocol, turned_away=self._turned_away),  # type: ignore[arg-type]
                ws="none",
                backlog=AT_ONCE,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_graceful_shutdown=10 * LAST_WORD_S,
            ),
            self.stop,
            self._count_cut,
        )
        self.host.traffic.clients = lambda: len(self._uvicorn.server_state.connections)
        self.host.traffic.backlog_bytes = self._backlog

    def run(self) -> int | None:
        """Serve until a signal, which is returned, or until `stop`; raises what made the loading fail."""
        loader = threading.Thread(target=self._fill, name="loader", daemon=True)
        loader.start()
        self._uvicorn.run(sockets=[self._socket])
        if self._uvicorn.ended_by is None:
            loader.join()
        if self._failure is not None:
            raise self._failure
        cut = self._cut or self._open()
        if not self.hurried:
            self.host.close()
        self._announce(f"ended; {_requests(cut)} cut off" if cut else "ended; every request was answered")
        return self._uvicorn.ended_by

    @property
    def hurried(self) -> bool:
        """A second signal came: the engine was not closed, and may be computing still."""
        return self._uvicorn.hurried

    def stop(self) -> None:
        """Take no further request, finish the open ones within the grace time, then end; returns at once."""
        self.host.drain()
        threading.Thread(target=self._drain, name="drain", daemon=True).start()

    def _end(self) -> None:
        self._uvicorn.should_exit = True

    def _drain(self) -> None:
        grace_s = self._settings.server.grace_s
        if waiting := self._open():
            self._announce(
                f"ending: {_requests(waiting)} may take up to {grace_s:g} s; Ctrl-C again cuts them off"
            )
        deadline = time.monotonic() + grace_s
        while self._open() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._count_cut()
        self.host.close()  # answers that are open end with an error, which their clients are still told
        self._end()

    def _count_cut(self) -> None:
        """How many answers are cut off, counted before the cutting closes them."""
        self._cut = max(self._cut, self._open())

    def _open(self) -> int:
        """How many answers are being made, or are made and not yet taken: a client may read slowly."""
        kept = list(self._uvicorn.server_state.connections)
        owing = sum(isinstance(each, PatientProtocol) and each.owing for each in kept)
        return max(self.host.open_requests, owing)

    def _turned_away(self) -> None:
        if self.host.metrics is not None:
            self.host.metrics.add("shed_clients")

    def _backlog(self) -> int:
        """Bytes written to sockets that no client has taken yet."""
        transports = [getattr(kept, "transport", None) for kept in self._uvicorn.server_state.connections]
        return sum(transport.get_write_buffer_size() for transport in transports if transport)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._socket.getsockname()[1])

    def _fill(self) -> None:
        try:
            service = self._load()
        except EngineError as error:
            self._failure = error
            self._end()
            return
        except Exception as error:
            log.exception("event=load_failed")
            self._failure = EngineError(f"the model cannot be loaded: {error}")
            self._end()
            return
        self.host.ready(service)
        where = address(self._settings.server.host, self.port)
        self._announce(f"serving {service.model_id}, context {service.context} tokens, at {where}")


def _requests(count: int) -> str:
    return f"{count} open request" + "s" * (count != 1)


def address(host: str, port: int) -> str:
    """The base URL of a server that listens there; an empty host means every address."""
    named = f"[{host}]" if ":" in host else host or "0.0.0.0"
    return f"http://{named}:{port}/v1"


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; SettingError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Every connection inherits it; without it each event of a kept one waits 40 ms for the last.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: also for what is left to send after a close
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
        return listening
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingError(
            f"cannot listen on {host} port {port}: {reason}; choose another with --host or --port"
        ) from error


def fingerprint() -> str:
    """Names the build: package and version."""
    try:
        return f"sparkgate-{metadata.version('sparkgate')}"
    except metadata.PackageNotFoundError:
        return "sparkgate-checkout"


def serve(
    path: Path,
    settings: Settings,
    *,
    announce: Callable[[str], None],
    report: Callable[[str], None],
    script: Path | None = None,
) -> int | None:
    """Load a model file and serve it until a signal, which is returned; EngineError when it cannot be loaded.

    A second signal ends the process from here, with the code that `exit_code` gives.
    `announce` gets lines when requests are taken and when it ends, `report` one for each thing done before.
    With a `script` its recorded answers are given, and of the model file only the vocabulary is used.
    """
    from engine.server.loading import load_service
    from engine.server.script import load_scripted, read_script

    def load() -> Service:
        if script is not None:
            return load_scripted(path, script, settings)
        return load_service(path, settings, report=report)

    if script is not None:
        read_script(script)  # a wrong script ends the command before a socket opens
    server = Server(settings, load, announce=announce)
    ended_by = server.run()
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.SIG_IGN)  # only the interpreter is left to end, with our exit code
    if server.hurried:
        os._exit(exit_code(ended_by))  # the interpreter's own end aborts while another thread computes
    return ended_by


def exit_code(ended_by: int | None) -> int:
    """What a process ends with after a signal; being asked to end is no error."""
    return INTERRUPTED if ended_by == signal.SIGINT else 0
