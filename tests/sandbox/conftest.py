"""The levels, for tests of what they are."""

from tests.sandbox.fixtures import armed, cell, confined, open_path, probe

__all__ = ["armed", "cell", "confined", "open_path", "probe"]
