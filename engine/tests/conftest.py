"""Fixtures that several rooms' tests share: model files with random weights, built once per run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import settings

from engine.tests.small import SMALL
from fixtures.tiny.random_model import build_random

# Timing belongs to `engine bench`; a busy machine must not fail a property.
settings.register_profile("engine", deadline=None)
settings.load_profile("engine")


def pytest_configure(config: pytest.Config) -> None:
    """Kernels are compiled in the session `device` alone; Triton reads this when a kernel is defined."""
    if config.getoption("markexpr") != "device":
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without an accelerator its tests are skipped, and say so."""
    wanting = [item for item in items if item.get_closest_marker("device")]
    if wanting and not torch.cuda.is_available():
        reason = f"needs an accelerator: torch {torch.__version__} here sees no CUDA device"
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def never_synced() -> Iterator[None]:
    """No test needs its files after a power cut, and a busy disk takes its time for each."""
    with mock.patch("os.fsync"):
        yield


@pytest.fixture(scope="session")
def small_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of the shape `SMALL`."""
    return build_random(tmp_path_factory.mktemp("small") / "small.gguf", seed=5, spec=SMALL)
