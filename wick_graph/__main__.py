"""`python -m wick_graph`: the same as the command `wick`."""

from __future__ import annotations

import sys
from pathlib import Path

from wick_graph.cli import main

if __name__ == "__main__":
    if sys.path and sys.path[0] in ("", str(Path.cwd())):
        del sys.path[0]  # as for `wick`: what lies where it starts is not imported by chance
    main()
