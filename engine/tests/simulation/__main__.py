"""`python -m engine.tests.simulation SEED`: replays one simulated run, and shrinks it when it fails."""

from __future__ import annotations

import sys

from engine.tests.simulation.scenario import scenario, shrink
from engine.tests.simulation.world import play


def main(seed: int) -> int:
    """0 when the run is right; else 1, with the smallest run found that still fails."""
    found = scenario(seed)
    print(f"{found!r}\n{play(found) or 'right'}")
    if play(found) is None:
        return 0
    small = shrink(found, lambda candidate: play(candidate) is not None)
    print(f"smallest:\n{small!r}\n{play(small)}")
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
