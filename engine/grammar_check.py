"""Tries a grammar in a process of its own, because building one cannot be interrupted and may take for ever.

Owns that process: bounded in time and memory, started on first use, started again after it died.
Patterns that must all match were seen to double the work with each of them, beyond the library's bounds.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import subprocess
import sys
import threading
from typing import IO

SECONDS = 2
MEMORY_BYTES = 2 * 2**30
WAIT_SECONDS = 10.0  # for the checks of others


class BusyError(Exception):
    """Too many grammars wait to be checked."""


class GrammarCheck:
    """Checks one grammar at a time; may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def wrong(self, grammar: str) -> str:
        """What is wrong with a grammar, empty for nothing; raises BusyError."""
        if not self._lock.acquire(timeout=WAIT_SECONDS):
            raise BusyError
        try:
            return self._ask(grammar)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, grammar: str) -> str:
        pipes = self._pipes()
        with contextlib.suppress(BrokenPipeError):  # it died; the empty answer below tells
            pipes[0].write(json.dumps(grammar).encode() + b"\n")
            pipes[0].flush()
        answer = pipes[1].readline()
        if answer:
            return str(json.loads(answer))
        self.close()
        return f"it takes more than {SECONDS} seconds or {MEMORY_BYTES // 2**30} GiB to build"

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            command = [sys.executable, "-P", __file__]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """In the process: one JSON text a line in, one out; the alarm ends it in the middle of anything."""
    from llguidance import LLMatcher

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in questions:
        signal.alarm(SECONDS)
        found = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(json.loads(line)))
        signal.alarm(0)
        answers.write(json.dumps(found).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's interrupt is for the server
    serve(sys.stdin.buffer, sys.stdout.buffer)
