"""A process that dies while it writes a stored prefix: the system kills it at a number of bytes.

`python -m gates.equivalence.dying FOLDER FINGERPRINT BYTES`; the state lies in `state.npz` of the folder.
"""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path

import numpy as np

from engine.cache.shelf import Shelf


def main(folder: Path, fingerprint: str, most: int) -> None:
    """Store the state; no file may grow beyond `most` bytes, and one that does ends the process at once."""
    with np.load(folder / "state.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    tokens = arrays.pop("tokens")
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it; no handler, no clean-up, as kill -9
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    shelf = Shelf(folder, fingerprint=fingerprint, budget=2**28)
    shelf.put("", tokens, (), arrays)
    shelf.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
