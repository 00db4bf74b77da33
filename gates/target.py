"""What a run judges: the server that it starts or finds, further ones with the same model, and a control.

Owns which choices of servers are allowed, and that each server started here is ended.
Knows nothing of gates and records.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gates.errors import InfrastructureError, UsageError
from gates.harness import launch, provenance
from gates.harness.client import Client
from gates.harness.launch import Attached, Command, Launched, Server
from gates.harness.record import RunFolder
from gates.harness.reply import ClientError
from gates.profile import Profile, Settings

EMBEDDED = provenance.ROOT / "fixtures" / "tiny" / "sparkgate-tiny.gguf"


@dataclass(frozen=True, slots=True)
class Target:
    """What a person named.

    `base_urls` are servers that already run, all with the same model.  The control is an earlier build
    (`control_url`) or the same server with another model (`control_model`).
    """

    model: Path | None = None
    server: Command | None = None
    base_urls: tuple[str, ...] = ()
    control_url: str | None = None
    control_model: Path | None = None
    api_key: str | None = None

    @property
    def launched(self) -> bool:
        """Whether the run starts the server that it judges."""
        return not self.base_urls

    @property
    def own(self) -> bool:
        """Whether that is the engine of this repository."""
        return self.launched and self.server is None

    @property
    def command(self) -> Command:
        """How servers are started."""
        return self.server or launch.engine_command()

    def public_command(self) -> list[str]:
        """That command with its places still open, so that no path of this host gets into the record."""
        return [Path(self.command.words[0]).name, *self.command.words[1:]] if self.launched else []

    def model_file(self, profile: Profile) -> Path | None:
        """The model to serve, or None for servers that already run; UsageError for what cannot be."""
        for option, address in (("--base-url", self.base_urls), ("--control-url", self.control_urls)):
            for url in address:
                _check_address(option, url)
        if self.control_url and self.control_model:
            raise UsageError("the control is a server (--control-url) or a model (--control-model), not both")
        if self.control_model and not self.control_model.is_file():
            raise UsageError(
                f"there is no model file at {self.control_model}; name one with --control-model PATH"
            )
        if self.base_urls:
            if self.model or self.server:
                raise UsageError(
                    "--base-url names a server that already runs: leave out --model and --server"
                )
            return None
        if self.server and shutil.which(self.server.words[0]) is None:
            raise UsageError(
                f"--server begins with '{self.server.words[0]}', and there is no such program here"
            )
        if self.model is None and profile.table("run").text("model") == "given":
            raise UsageError(
                f"profile '{profile.name}' judges a model that you name: add --model PATH or --base-url"
            )
        path = self.model or EMBEDDED
        if not path.is_file():
            raise UsageError(f"there is no model file at {path}; name one with --model PATH")
        return path

    def check_answers(self) -> None:
        """InfrastructureError where nobody answers at an address: no run begins for a mistyped one."""
        for option, urls in (("--base-url", self.base_urls), ("--control-url", self.control_urls)):
            for url in urls:
                if not Attached(url).alive():
                    raise InfrastructureError(
                        f"no server answers at {url}, given by {option}: start it, or mend host and port"
                    )

    @property
    def control_urls(self) -> tuple[str, ...]:
        """The address of the control, if it is one."""
        return () if self.control_url is None else (self.control_url,)


EMBEDDED_ENGINE = Target()


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of one run: the judged one first among its equals, and the control."""

    judged: tuple[Server, ...]
    control: Server | None = None

    def stop(self) -> list[str]:
        """End those that were started here; what they left behind, in words."""
        every = (*self.judged, *([self.control] if self.control else []))
        return [left for server in every for left in server.stop()]


@contextmanager
def serving(target: Target, profile: Profile, folder: RunFolder) -> Iterator[Servers]:
    """All servers of the target, up and answering; InfrastructureError when one is not."""
    settings = profile.table("server")
    model = target.model_file(profile)
    with ExitStack() as stack:
        judged: tuple[Server, ...] = tuple(_found("--base-url", url) for url in target.base_urls)
        if model:
            judged = (stack.enter_context(_started(target, model, settings, folder.server_log)),)
        control: Server | None = None
        if target.control_url:
            control = _found("--control-url", target.control_url)
        elif target.control_model:
            log = folder.path / "control.log"
            control = stack.enter_context(_started(target, target.control_model, settings, log))
        yield Servers(judged, control)


@contextmanager
def further(target: Target, profile: Profile, folder: RunFolder, words: Sequence[str]) -> Iterator[Launched]:
    """One more of our own engine with the same model and these words after its command; see `own`."""
    model = target.model_file(profile)
    assert model is not None
    log = folder.path / "further.log"
    with _started(target, model, profile.table("server"), log, words) as server:
        yield server


def served_models(server: Server, api_key: str | None) -> list[str]:
    """What a server says that it serves; empty when it does not say."""
    with Client(server.base_url, api_key=api_key) as client:
        try:
            return [model.id for model in client.models()]
        except ClientError:
            return []


def _started(
    target: Target, model: Path, settings: Settings, log: Path, more: Sequence[str] = ()
) -> Launched:
    port = launch.free_port()
    words = target.command.filled(model=model, port=port, context_tokens=settings.count("context_tokens"))
    return Launched.start(
        [*words, *more],
        port=port,
        log=log,
        start_s=settings.number("start_seconds"),
        stop_s=settings.number("stop_seconds"),
        env=_environment(),
    )


def _found(option: str, url: str) -> Attached:
    server = Attached(url)
    if not server.alive():
        raise InfrastructureError(
            f"no server answers at the address given by {option}: start it, or mend host and port"
        )
    return server


def _check_address(option: str, url: str) -> None:
    """UsageError for an address that no server can have, before a run folder is made for it."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port or a host in brackets that is none
        whole = False
    if not whole:
        raise UsageError(f"{option} is '{url}'; write http://HOST:PORT or https://HOST")


def _environment() -> Mapping[str, str]:
    """The caller's environment, with the checkout importable and output not held back."""
    paths = [str(provenance.ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p), "PYTHONUNBUFFERED": "1"}
