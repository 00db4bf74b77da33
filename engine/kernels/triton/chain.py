"""Dependent launches: the kernels of a step start while the one before them still runs.

A kernel that is launched with `launch_pdl` takes the places its predecessor leaves free, fetches what no
kernel writes, and waits in `follow` for the predecessor's end (CUDA C++ Programming Guide, "Programmatic
Dependent Launch").  Every kernel of the chain waits, so the end of one is the end of all before it.  Where
two streams join, the kernel is launched plainly: it measured faster so.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.triton.numbers import INTERPRETED


@triton.jit
def follow():
    """Let the next kernel take its places, then wait for the end of the one before.

    Nothing that a kernel of the chain wrote may be read before this.  Without `launch_pdl` it does nothing.
    """
    if not INTERPRETED:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
