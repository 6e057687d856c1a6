"""The attacks on the file tools, in the order of their lines."""

from tests.attacks.files import bounds, contents, edits
from tests.attacks.files.lines import ATTACKS

__all__ = ["ATTACKS", "bounds", "contents", "edits"]
