"""Kernels run on the CPU here: Triton's interpreter must be chosen before any kernel is defined."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
