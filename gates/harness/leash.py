"""Runs a command that dies with its parent: `python -m gates.harness.leash PARENT_PID COMMAND...`.

Asks the kernel (Linux, `PR_SET_PDEATHSIG`) to kill this process when its parent ends, also after a kill -9 of
the parent, then becomes the command. Elsewhere the command simply runs. Knows nothing of servers.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(argv: list[str]) -> None:
    """Tie this process to the parent named first, then replace it by the rest of the line."""
    parent, command = int(argv[0]), argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before the kernel knew what we want
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
