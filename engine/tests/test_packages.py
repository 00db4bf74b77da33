"""What importing a part of the engine brings with it, seen from a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

DECISIONS = [
    "engine",
    "engine.core",
    "engine.scheduler.scheduler",
    "engine.chat.template",
    "engine.gguf.file",
]


@pytest.mark.parametrize("module", [*DECISIONS, "engine.tokenizer", "engine.cli"])
def test_importing_it_loads_neither_torch_nor_another_room(module: str) -> None:
    unwanted = "{'torch', 'transformers', 'gguf', 'gates', 'fixtures', 'reports'}"
    program = f"import sys, {module}; print(sorted({unwanted} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()


def test_the_door_names_what_a_program_needs() -> None:
    program = "import engine; print(sorted(name for name in engine.__all__))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "['Engine', 'Request', 'SamplingParams']" == done.stdout.strip()
