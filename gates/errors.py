"""The exception tree of the gates, and the exit code that each kind ends a command with.

GateError                    anything the harness tells a person in one message
├── UsageError               wrong option, profile, run folder or model path (exit 2)
├── InfrastructureError      the host or the server under test could not be used (exit 4)
│   └── LaunchError          the server did not start, or did not become healthy in time
├── CheckError               a check was given something it cannot judge (verdict unknown)
└── DriveStopped             a gate cannot be driven to its end; what is not known yet stays unknown
    ├── ServerDied           the server under test is gone
    └── GivenUp              the server leaves request after request without an answer, or time is used up

It knows nothing of HTTP: what can go wrong in one request lives in `harness/client.py`.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every `python -m gates` command; documented, stable, tested."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    UNKNOWN = 3
    INFRASTRUCTURE = 4
    INTERRUPTED = 130


class GateError(Exception):
    """One clear message for a person: what was wrong, what was found, what is allowed, what to do."""

    exit_code = ExitCode.UNKNOWN


class UsageError(GateError):
    """The person asked for something that cannot be done as asked."""

    exit_code = ExitCode.USAGE


class InfrastructureError(GateError):
    """The host or the set-up failed; the product has not been judged."""

    exit_code = ExitCode.INFRASTRUCTURE


class LaunchError(InfrastructureError):
    """The server under test could not be started; the message carries the end of its log."""


class CheckError(GateError):
    """A check cannot judge what it was given; the claim becomes unknown."""


class DriveStopped(GateError):  # noqa: N818  named for the event, as it appears in the history
    """A gate stops before its end; the history says why."""


class ServerDied(DriveStopped):
    """The server under test no longer runs, or nobody listens there any more."""


class GivenUp(DriveStopped):
    """Going on would only wait: three requests in a row without an answer, or far over the time budget."""
