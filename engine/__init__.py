"""The engine: `Engine`, `Request` and `SamplingParams` are its door; each is loaded when first used.

Whatever of it is imported first, in a server, a bench, a gate or a test, MKL is told before torch can load.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine import config

if TYPE_CHECKING:
    from engine.core import Request, SamplingParams
    from engine.loop import Engine

__all__ = ["Engine", "Request", "SamplingParams"]

config.keep_sums_in_order(os.environ)


def __getattr__(name: str) -> Any:
    """Load a name of the door; importing the scheduler must not import what the loop needs."""
    if name == "Engine":
        from engine.loop import Engine

        return Engine
    if name in ("Request", "SamplingParams"):
        from engine import core

        return getattr(core, name)
    raise AttributeError(f"module 'engine' has no attribute {name!r}; its door is {', '.join(__all__)}")
