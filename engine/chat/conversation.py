"""Joins what messages say into a system text and alternating turns, the same way for every dialect.

Owns the rules for leading and late system texts, merging, the order of tool results and what may come last.
Knows nothing of JSON; `member` is the request member that errors name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from engine.chat.request import AssistantTurn, ToolCall, ToolResult, Turn, UserText, UserTurn
from engine.errors import RequestError, shown


@dataclass(frozen=True, slots=True)
class SystemText:
    """A message of the system: the head of the prompt when it comes first, else user text at its place."""

    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the messages say: a system text and turns; the last turn may be an assistant's to be continued."""

    system: str
    turns: tuple[Turn, ...]


def assemble(
    entries: Iterable[SystemText | Turn], *, member: str, knows_all_calls: bool = False
) -> Conversation:
    """Join the messages; RequestError when no user speaks or when tool calls come last.

    `knows_all_calls`: a tool result without its call in the same request is an error too.
    """
    system: list[str] = []
    said: list[Turn] = []
    for entry in entries:
        if isinstance(entry, SystemText) and not said:
            system += filter(None, [entry.text])
        else:
            said.append(UserTurn((UserText(entry.text),)) if isinstance(entry, SystemText) else entry)
    turns = [_joined(tuple(run)) for _, run in groupby(said, key=type)]
    if turns and turns[-1] == AssistantTurn():
        turns.pop()
    _check_turns(turns, member)
    if knows_all_calls:
        _check_results(turns, member)
    return Conversation("\n\n".join(system), tuple(_order_results(turns)))


def _joined(run: Sequence[Turn]) -> Turn:
    """One turn of all that one side says in a row, joined at once: one by one takes minutes for 100,000."""
    user = [turn for turn in run if isinstance(turn, UserTurn)]
    if user:
        return UserTurn(tuple(block for turn in user for block in turn.blocks))
    assistant = [turn for turn in run if isinstance(turn, AssistantTurn)]
    return AssistantTurn(
        "".join(turn.content for turn in assistant),
        "".join(turn.reasoning for turn in assistant),
        tuple(call for turn in assistant for call in turn.calls),
    )


def _check_turns(turns: Sequence[Turn], member: str) -> None:
    if not any(isinstance(turn, UserTurn) for turn in turns):
        raise RequestError(f"{member} holds no user or tool message; send at least one", param=member)
    if isinstance(turns[-1], AssistantTurn) and turns[-1].calls:
        raise RequestError(
            f"the last entry of {member} is an assistant's with tool calls; send the tool results after it",
            param=member,
        )


def _check_results(turns: Sequence[Turn], member: str) -> None:
    known: set[str | None] = {None}
    for turn in turns:
        if isinstance(turn, AssistantTurn):
            known |= {call.id for call in turn.calls}
            continue
        for block in turn.blocks:
            if isinstance(block, ToolResult) and block.call_id not in known:
                raise RequestError(
                    f"{member} has a tool result for {shown(block.call_id)} but no such call before it; "
                    "this server keeps no conversation: send the whole history each time",
                    param=member,
                    code="invalid_tool_result",
                )


def _order_results(turns: Sequence[Turn]) -> list[Turn]:
    """Sort the results after two or more calls into the order of the calls; texts keep their slots."""
    ordered = list(turns)
    for index in range(1, len(ordered)):
        before, turn = ordered[index - 1], ordered[index]
        if isinstance(before, AssistantTurn) and len(before.calls) > 1 and isinstance(turn, UserTurn):
            ordered[index] = replace(turn, blocks=_sort_results(turn.blocks, before.calls))
    return ordered


def _sort_results(
    blocks: Sequence[UserText | ToolResult], calls: Sequence[ToolCall]
) -> tuple[UserText | ToolResult, ...]:
    places = {call.id: place for place, call in reversed(list(enumerate(calls))) if call.id is not None}
    results = sorted(
        (block for block in blocks if isinstance(block, ToolResult)),
        key=lambda result: places.get(result.call_id or "", 0),
    )
    queue = iter(results)
    return tuple(next(queue) if isinstance(block, ToolResult) else block for block in blocks)
