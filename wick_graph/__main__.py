"""`python -m wick_graph`: the same as the command `wick`."""

from __future__ import annotations

from wick_graph.cli import main

if __name__ == "__main__":
    main()
