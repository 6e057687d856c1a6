"""How tests are dealt out to the processes that run them."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]  # it has no types


class Scheduler(LoadGroupScheduling):  # type: ignore[misc]  # as above
    """`--dist loadgroup`, which forgets what has ended.

    xdist's counts that again at the end of each test: five seconds, if there are nine thousand.
    """

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Give the node more to do, and forget a group of tests that has ended."""
        group = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node][group].values()):
            del self.assigned_work[node][group]
