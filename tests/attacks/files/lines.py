"""The attacks on the file tools, each under the id of its line."""

from __future__ import annotations

from collections.abc import Callable

from tests.attacks.world import World

Attack = Callable[[World], None]
ATTACKS: dict[str, Attack] = {}
OTHER_UID = 65_534


def attack(line: str) -> Callable[[Attack], Attack]:
    def add(fn: Attack) -> Attack:
        assert line not in ATTACKS
        ATTACKS[line] = fn
        return fn

    return add
