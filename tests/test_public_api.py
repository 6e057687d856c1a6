"""The public interface is what the snapshot says: a change of it is seen, and meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import public_api
from tests.support.public_api import PACKAGES, SNAPSHOT, difference
from wick_graph.journal import Journal

HELD = SNAPSHOT.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def now() -> str:
    return public_api.public_api()


def test_the_public_interface_is_what_it_was(now: str) -> None:
    told = difference(HELD, now)
    assert not told, told


def test_the_snapshot_holds_every_part() -> None:
    """Guards the comparison: a part that is empty would always be what it was."""
    parts = {part.split("\n")[0]: part.splitlines() for part in HELD.split("== ")[1:]}
    assert {*PACKAGES, "elsewhere", "wick", "HTTP", "HTTP: schemas"} <= set(parts)
    assert min(map(len, parts.values())) > 3
    for line in (
        "$ wick threads list --help",
        "POST /threads/{thread_id}/fork",
        "    @property system_text -> str",
        "class ToolError(WickError, Exception)",
        "logger wick_graph.audit",
    ):
        assert line in HELD.splitlines(), line


def test_a_change_is_told_line_by_line_with_the_remedy(
    now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real change: a method with another signature, and one that is gone."""

    def moments(self: Journal, run: int | str | None = None) -> list[str]:
        return []

    monkeypatch.setattr(Journal, "moments", moments)
    monkeypatch.delattr(Journal, "blame")
    found = difference(now, public_api.public_api()).splitlines()
    changed = [line.split("(")[0] for line in found if line.startswith(("-  ", "+  "))]
    assert changed == ["-    def blame", "-    def moments", "+    def moments"]
    assert found[-1].endswith("run: python -m tests.support.public_api")


def test_no_place_of_this_machine_is_in_it(now: str) -> None:
    assert str(Path(__file__).parent.parent) not in now
    assert " at 0x" not in now
