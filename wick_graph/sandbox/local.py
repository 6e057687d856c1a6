"""The level `local`: no boundary. A command is bounded in what it costs, not in what it may do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wick_graph.sandbox.environment import clean_environment
from wick_graph.sandbox.plan import LIMITS, PROCESSES, Bind, Launch, Level


class Local:
    """Commands with the rights of this process, in one working directory."""

    level: Final[Level] = "local"
    says: Final = (
        "There is no sandbox around them: they have the rights of the program that you are part "
        "of, on its files and on the network."
    )

    def __init__(self, workdir: str) -> None:
        self._workdir: Final = workdir

    apart: Final = False

    def launch(self, binds: Sequence[Bind] = (), *, probe: bool = False) -> Launch:
        """Prepare the start of one command."""
        plan = {"limits": dict(LIMITS), "processes": PROCESSES}
        return Launch(env=clean_environment(self._workdir), plan=plan)
