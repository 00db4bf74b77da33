"""The system calls that a graded program may not make, as a filter that the kernel runs (seccomp BPF).

No new process, no tracing, no name spaces, no mounts; threads stay allowed.  Knows the two processors that
the project runs on and nothing of sandboxes.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass
from typing import Final

_LOAD: Final = 0x20  # A = word at offset k of the call's record
_EQUAL: Final = 0x15
_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_NUMBER, _PROCESSOR, _FLAGS = (
    0,
    4,
    16,
)  # offsets in the record: call, processor, low half of the first argument
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000  # plus the error number
_KILL: Final = 0x80000000
_THREAD: Final = 0x00010000  # CLONE_THREAD


@dataclass(frozen=True, slots=True)
class Processor:
    """Numbers of one processor: its mark in a call's record, the refused calls, `clone`, `clone3`."""

    mark: int
    refused: tuple[int, ...]
    clone: int
    clone3: int


# refused: fork, vfork, ptrace, unshare, setns, mount, umount2, process_vm_readv and _writev, kexec_load, bpf,
# perf_event_open, io_uring_setup, userfaultfd, keyctl, add_key, request_key; aarch64 has no fork of its own
PROCESSORS: Final = {
    "x86_64": Processor(
        0xC000003E,
        (57, 58, 101, 272, 308, 165, 166, 310, 311, 246, 321, 298, 425, 323, 250, 248, 249),
        clone=56,
        clone3=435,
    ),
    "aarch64": Processor(
        0xC00000B7,
        (117, 97, 268, 40, 39, 270, 271, 104, 280, 241, 425, 282, 219, 217, 218),
        clone=220,
        clone3=435,
    ),
}


def filter_program(machine: str = "") -> bytes:
    """The filter for this (or the named) processor; KeyError for another one."""
    processor = PROCESSORS[machine or platform.machine()]
    refusal = _REFUSE | errno.EPERM
    steps = [
        _step(_LOAD, _PROCESSOR),
        _step(_EQUAL, processor.mark, yes=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64" or platform.machine() == "x86_64":
        steps += [_step(_ANY_BIT, 0x40000000, no=1), _step(_RETURN, refusal)]  # the calls of the x32 form
    for number in processor.refused:
        steps += [_step(_EQUAL, number, no=1), _step(_RETURN, refusal)]
    # Without clone3, whose flags a filter cannot read, the C library takes clone.
    steps += [_step(_EQUAL, processor.clone3, no=1), _step(_RETURN, _REFUSE | errno.ENOSYS)]
    steps += [
        _step(_EQUAL, processor.clone, yes=1),
        _step(_RETURN, _ALLOW),
        _step(_LOAD, _FLAGS),
        _step(_ANY_BIT, _THREAD, no=1),
        _step(_RETURN, _ALLOW),
        _step(_RETURN, refusal),
    ]
    return b"".join(steps)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; `yes` and `no` are how many to skip after a comparison."""
    return struct.pack("=HBBI", code, yes, no, value)
