"""Decides whether a request thinks and how hard, from the many spellings clients use.

Knows nothing of rendering; reads members of the request body only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.chat.request import Effort
from engine.errors import RequestError, shown

OFF_EFFORTS = ("none", "off")
EFFORTS: Mapping[str, Effort] = {
    "minimal": Effort.LOW,
    "low": Effort.LOW,
    "medium": Effort.LOW,
    "high": Effort.HIGH,
    "xhigh": Effort.HIGH,
    "max": Effort.MAX,
}
MODEL_SWITCH = {"deepseek-chat": False, "deepseek-reasoner": True}


@dataclass(frozen=True, slots=True)
class Thinking:
    """The outcome: on or off, and the effort (NONE when off)."""

    on: bool
    effort: Effort


def read_thinking(body: Mapping[str, object], *, default: bool = True) -> Thinking:
    """Explicit switch, then effort `none`, then the model's name, then default: the first present decides.

    Raises RequestError for a switch of a wrong type or an unknown effort.
    """
    switch, effort = _switch(body), _effort(body)
    if switch is False or effort in OFF_EFFORTS:
        return Thinking(False, Effort.NONE)
    if switch is None and not MODEL_SWITCH.get(str(body.get("model")), default):
        return Thinking(False, Effort.NONE)
    return Thinking(True, EFFORTS[effort] if effort else Effort.LOW)


def _switch(body: Mapping[str, object]) -> bool | None:
    thinking = body.get("thinking")
    if isinstance(thinking, dict):
        return thinking.get("type") != "disabled"
    kwargs = _template_kwargs(body)
    spellings = (
        ("thinking", thinking),
        ("think", body.get("think")),
        ("enable_thinking", body.get("enable_thinking")),
        ("chat_template_kwargs.enable_thinking", kwargs.get("enable_thinking")),
        ("chat_template_kwargs.thinking", kwargs.get("thinking")),
    )
    for path, value in spellings:
        if isinstance(value, bool):
            return value
        if value is not None:
            raise RequestError(f"{path} must be true or false, found {shown(value)}", param=path)
    return None


def _effort(body: Mapping[str, object]) -> str | None:
    nested = body.get("reasoning")
    spellings = (
        ("reasoning_effort", body.get("reasoning_effort")),
        ("reasoning.effort", nested.get("effort") if isinstance(nested, dict) else None),
        ("chat_template_kwargs.reasoning_effort", _template_kwargs(body).get("reasoning_effort")),
    )
    for path, value in spellings:
        if value is None:
            continue
        if not isinstance(value, str) or value not in (*OFF_EFFORTS, *EFFORTS):
            allowed = ", ".join((*OFF_EFFORTS, *EFFORTS))
            raise RequestError(f"{path} is {shown(value)}; allowed are {allowed}", param=path)
        return value
    return None


def _template_kwargs(body: Mapping[str, object]) -> Mapping[str, object]:
    kwargs = body.get("chat_template_kwargs")
    if kwargs is None:
        return {}
    if not isinstance(kwargs, dict):
        raise RequestError(
            "chat_template_kwargs must be an object; enable_thinking, thinking and reasoning_effort are read",
            param="chat_template_kwargs",
        )
    return kwargs
