"""The levels, for the attacks on commands."""

from tests.sandbox.fixtures import armed, cell, confined, open_path, probe

__all__ = ["armed", "cell", "confined", "open_path", "probe"]
