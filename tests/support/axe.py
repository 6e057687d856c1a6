"""axe-core for the tests of the page: fetched by npm into build/, with the bytes recorded here."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from tests.source import ROOT
from tests.support.vendor import Part, packed

FILE = ROOT / "build/axe.min.js"

_HASH = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="

PART = Part("axe-core", "4.14.1", _HASH, "axe.min.js", "axe-core")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(packed(PART, Path(folder))) as held:
        found = held.extractfile(f"package/{PART.path}")
        assert found is not None
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_bytes(found.read())
    print(f"{FILE.relative_to(ROOT)} is {PART.folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
