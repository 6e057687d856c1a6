"""The page's files as they are served: made small by npm's esbuild, and kept in the tree.

`python -m tests.support.small` fails if they are not what their sources give, and `--write` writes
them. Each begins with the hash of its source, so that a test sees an old one without npm.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.source import ROOT

PAGE = ROOT / "wick_graph/server/page"
SMALL = PAGE / "small"

_COMMAND = (
    "npm exec --yes --package esbuild@0.28.2 -- esbuild --minify --charset=utf8 --log-level=error"
)


def sources() -> list[Path]:
    return sorted(path for path in PAGE.iterdir() if path.suffix in (".js", ".css"))


def head(source: Path) -> bytes:
    """Return the first line of the small file of a source; it counts in the size of the page."""
    return f"/*{hashlib.sha256(source.read_bytes()).hexdigest()[:8]}*/\n".encode()


def made() -> dict[str, bytes]:
    """Return the small files by their names."""
    names = [str(path) for path in sources()]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*_COMMAND.split(), f"--outdir={folder}", *names], check=True, cwd=ROOT)
        return {p.name: head(p) + (Path(folder) / p.name).read_bytes() for p in sources()}


def main(arguments: list[str]) -> int:
    files = made()
    if "--write" in arguments:
        SMALL.mkdir(exist_ok=True)
        for name, data in files.items():
            (SMALL / name).write_bytes(data)
    if files != {path.name: path.read_bytes() for path in SMALL.iterdir()}:
        print(f"{SMALL.relative_to(ROOT)} is not what the page's sources give; run with --write")
        return 1
    print(f"{SMALL.relative_to(ROOT)} is what the page's sources give")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
