"""The engine: `Engine`, `Request` and `SamplingParams` are its door; each is loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.core import Request, SamplingParams
    from engine.loop import Engine

__all__ = ["Engine", "Request", "SamplingParams"]


def __getattr__(name: str) -> Any:
    """Load a name of the door; importing the scheduler must not import what the loop needs."""
    if name == "Engine":
        from engine.loop import Engine

        return Engine
    if name in ("Request", "SamplingParams"):
        from engine import core

        return getattr(core, name)
    raise AttributeError(f"module 'engine' has no attribute {name!r}; its door is {', '.join(__all__)}")
