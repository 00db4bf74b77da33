"""Renders a conversation into prompt segments and segments into ids.

Owns the layout of the DeepSeek-V4 chat format, byte for byte.
A segment is either a marker, which becomes exactly one id, or text,
which is encoded with marker matching off; so nothing a client types can open a turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from engine.chat.dsml import render_calls, split_markers
from engine.chat.markers import ASSISTANT, BOS, DSML, END_THINK, EOS, THINK, USER
from engine.chat.replay import Replay
from engine.chat.request import (
    AssistantTurn,
    ChatRequest,
    Effort,
    RawPrompt,
    ToolResult,
    UserText,
    UserTurn,
)
from engine.chat.segments import Segment, marker, text
from engine.tokenizer import Tokenizer

__all__ = ["EffortPrefixes", "Segment", "encode_segments", "raw", "render"]

MAX_PREFIX = """\
Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root \
cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial \
scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered \
alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.

"""

BEYOND_PREFIX = """\
Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively \
decompose the problem into its most fundamental components, trace every causal chain to its root, and \
resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are \
certain that no assumption remains unchecked and no error remains undiscovered.

"""

TOOLS_HEAD = """\
## Tools

You have access to a set of tools to help answer the user's question. \
You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, \
arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside \
<think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

"""

TOOLS_TAIL = """

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""

RESPONSE_FORMAT_HEAD = """\
## Response Format:

You MUST strictly adhere to the following schema to reply:
"""


@dataclass(frozen=True, slots=True)
class EffortPrefixes:
    """What a checkpoint expects before the system text for the two higher efforts.

    The defaults fit the preview checkpoint; `native` fits the 0731 revision when its own levels are wanted.
    """

    high: str = ""
    max: str = MAX_PREFIX

    @classmethod
    def revision(cls, *, native: bool) -> EffortPrefixes:
        """Prefixes of the 0731 revision: none, or one level lower than its own names when `native`."""
        return cls(high=MAX_PREFIX, max=BEYOND_PREFIX) if native else cls(high="", max="")

    def of(self, request: ChatRequest) -> str:
        """The prefix for one request; there is none outside thinking mode."""
        if not request.thinking:
            return ""
        return {Effort.HIGH: self.high, Effort.MAX: self.max}.get(request.effort, "")


def render(
    request: ChatRequest, *, prefixes: EffortPrefixes | None = None, replay: Replay | None = None
) -> list[Segment]:
    """Segments of the whole prompt, the opening of the next assistant turn included.

    Calls that `replay` remembers stand there as they were written, all others in the canonical form.
    A final assistant turn is left open: generation continues its content.
    """
    segments = [marker(BOS), text((prefixes or EffortPrefixes()).of(request)), *_system(request)]
    last = len(request.turns) - 1
    last_user = max((i for i, turn in enumerate(request.turns) if isinstance(turn, UserTurn)), default=-1)
    keeps_all = request.keeps_reasoning  # looks at every turn
    for index, turn in enumerate(request.turns):
        keep = keeps_all or index > last_user
        if isinstance(turn, UserTurn):
            segments += _user_turn(turn, thinking=request.thinking, open_end=index == last)
            continue
        shows = request.thinking and keep and not (index == last and not turn.reasoning)
        segments += _assistant_turn(turn, shows_reasoning=shows, replay=replay)
        segments += [] if index == last else [marker(EOS)]
    return [segment for segment in segments if segment.text]


def raw(prompt: RawPrompt) -> list[Segment]:
    """Segments of a text without any chat format."""
    return [*([marker(BOS)] if prompt.opened else []), *([text(prompt.text)] if prompt.text else [])]


def encode_segments(tokenizer: Tokenizer, segments: Iterable[Segment]) -> list[int]:
    """Ids of a prompt; adjacent texts are encoded as one string because BPE merges across the joint."""
    ids: list[int] = []
    for is_marker, run in groupby(segments, key=lambda segment: segment.is_marker):
        if is_marker:
            ids += [tokenizer.special(segment.text) for segment in run]
        else:
            ids += tokenizer.encode("".join(segment.text for segment in run))
    return ids


def _system(request: ChatRequest) -> list[Segment]:
    parts = [text(request.system)]
    if request.tools:
        block = [*split_markers(TOOLS_HEAD, (DSML, THINK, END_THINK)), text("\n".join(request.tools))]
        parts += [text("\n\n"), *block, text(TOOLS_TAIL)]
    if request.response_schema is not None:
        parts += [text("\n\n"), text(RESPONSE_FORMAT_HEAD), text(request.response_schema)]
    return parts


def _user_turn(turn: UserTurn, *, thinking: bool, open_end: bool) -> list[Segment]:
    segments = [marker(USER), text("\n\n".join(map(_block, turn.blocks)))]
    if open_end:
        segments += [marker(ASSISTANT), marker(THINK if thinking else END_THINK)]
    return segments


def _block(block: UserText | ToolResult) -> str:
    if isinstance(block, UserText):
        return block.text
    guarded = block.text.replace("</tool_result>", "&lt;/tool_result>")
    return f"<tool_result>{guarded}</tool_result>"


def _assistant_turn(turn: AssistantTurn, *, shows_reasoning: bool, replay: Replay | None) -> list[Segment]:
    thought = [marker(THINK), text(turn.reasoning)] if shows_reasoning else []
    written = replay.find(turn.calls) if replay is not None else None
    calls = render_calls(turn.calls) if written is None else split_markers(written, (DSML,))
    return [marker(ASSISTANT), *thought, marker(END_THINK), text(turn.content), *calls]
