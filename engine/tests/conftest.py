"""Fixtures that several rooms' tests share: model files with random weights, built once per run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from engine.tests.small import SMALL
from fixtures.tiny.random_model import build_random

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before any import of one

# Timing belongs to `engine bench`; a busy machine must not fail a property.
settings.register_profile("engine", deadline=None)
settings.load_profile("engine")


@pytest.fixture(scope="session")
def small_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of the shape `SMALL`."""
    return build_random(tmp_path_factory.mktemp("small") / "small.gguf", seed=5, spec=SMALL)
