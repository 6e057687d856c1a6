"""Databases that an earlier release wrote are read to exactly what they held."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.goldens import FOLDER, OPENED, content, expected, unpacked

RELEASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", OPENED)
@pytest.mark.parametrize("release", RELEASES)
def test_a_file_of_an_earlier_release_is_read_to_what_it_held(
    release: str, name: str, tmp_path: Path
) -> None:
    path = unpacked(release, name, tmp_path)
    with OPENED[name](path) as saver:
        assert content(saver) == expected(release, name)
