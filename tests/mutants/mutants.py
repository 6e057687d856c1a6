"""The mutants: what each breaks, and the tests that must notice.

They stand under the promises of the product, a module each. A patch names a symbol by its qualified
name, in whatever module it is, and a fragment that the symbol has once; keep fragments short.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.bounded import BOUNDED
from tests.mutants.durable import DURABLE
from tests.mutants.faithful import FAITHFUL
from tests.mutants.guarded import GUARDED
from tests.mutants.patches import Mutant
from tests.mutants.visible import VISIBLE

MUTANTS: Final[tuple[Mutant, ...]] = (*DURABLE, *BOUNDED, *VISIBLE, *FAITHFUL, *GUARDED)
