"""`python -m engine` is the command line."""

from __future__ import annotations

import sys

from engine.cli import main

sys.exit(main())
