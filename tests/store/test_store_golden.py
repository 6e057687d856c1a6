"""Databases that an earlier release wrote are read to exactly what they held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.store.goldens import FOLDER, OPENED, content, expected, unpacked

FILES = sorted(
    (path.parent.name, path.name.removesuffix(".json.gz")) for path in FOLDER.glob("*/*.json.gz")
)


def test_every_file_is_kept_by_the_newest_release() -> None:
    newest = max(release for release, _ in FILES)
    assert {name for release, name in FILES if release == newest} == set(OPENED)


@pytest.mark.sisters(1)
@pytest.mark.parametrize(("release", "name"), FILES)
def test_a_file_of_an_earlier_release_is_read_to_what_it_held(
    release: str, name: str, tmp_path: Path
) -> None:
    path = unpacked(release, name, tmp_path)
    with OPENED[name](path) as saver:
        assert content(saver) == without_questions(expected(release, name))


def without_questions(held: dict[str, Any]) -> dict[str, Any]:
    """Leave out the texts of interrupts: a question is data, where fields can be hidden."""
    for thread in held.values():
        for moment in thread.get("moments", ()) if isinstance(thread, dict) else ():
            if str(moment.get("error")).startswith("GraphInterrupt: "):
                moment["error"] = "GraphInterrupt"
    return held
