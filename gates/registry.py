"""The one list of gates: joins what each room says of itself, and names what no gate looks at.

Imports of a room its `spec` alone; the rest of a room is imported by name when it runs.
"""

from __future__ import annotations

from gates.capacity.spec import CAPACITY
from gates.churn.spec import CHURN
from gates.equivalence.spec import EQUIVALENCE
from gates.needle.spec import NEEDLE
from gates.quality.spec import QUALITY
from gates.spec import COST_ORDER, GateSpec, MeasureSpec

RUN = GateSpec(
    name="run",
    title="The run itself",
    room=None,
    cost="cheap",
    measures=(
        MeasureSpec(
            "run.leftover_count", "The server leaves no process and no port behind", "lower", "critical"
        ),
        MeasureSpec("run.budget_ratio", "Every gate keeps its time budget", "lower", "minor", notice=True),
    ),
)

GATES: tuple[GateSpec, ...] = (EQUIVALENCE, NEEDLE, QUALITY, CHURN, CAPACITY)

# What no gate of this suite looks at yet; it stands in every verdict, so that nobody reads more into a pass.
UNCOVERED: tuple[str, ...] = (
    "Speed, alone and under load: no gate yet",
    "Tool calls: no gate yet",
    "Replay of recorded traffic: no gate yet",
)


def find(name: str) -> GateSpec:
    """The gate of this name; KeyError if there is none."""
    for gate in (*GATES, RUN):
        if gate.name == name:
            return gate
    raise KeyError(name)


def cheap_first(names: list[str]) -> list[GateSpec]:
    """The named gates in the order in which a run takes them: by cost class, then by place in the list."""
    chosen = [gate for gate in GATES if gate.name in names]
    return sorted(chosen, key=lambda gate: COST_ORDER.index(gate.cost))
