"""`python -m gates`: hands over to the command line."""

import sys

from gates.cli import main

sys.exit(main())
