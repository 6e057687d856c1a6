"""The page's library in one file: joined from npm's packages, whose hashes are written here.

`make vendor` fetches the packages by npm and fails if the file in the tree is not what they give;
`python -m tests.support.vendor --write` writes it.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.source import ROOT

FILE = ROOT / "wick_graph/server/page/vendor/preact.js"


@dataclass(frozen=True)
class Part:
    name: str
    version: str
    integrity: str
    path: str
    module: str

    @property
    def folder(self) -> str:
        return f"{self.name}@{self.version}"


_PREACT = "/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg=="
_CORE = "vcRv7Ityz5JVmeiVqIluLFzT/PDS/AlhHUpw3/aUWqcVUs6bDGIPXE/6RSC4evBNWYvnniozg5Syfj33al3gkg=="
_SIGNALS = (
    "Rb+5RPo9gWSaHtzJeauhHxiC8KP/IF2DEPkHPEOGOnuy2wnJzRqyeLRankUCYd6ADqtxS6GnWGv6Ie343d8aYw=="
)
_HTM = "983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ=="

PARTS = (
    Part("preact", "11.2.0", _PREACT, "dist/preact.mjs", "preact"),
    Part("preact", "11.2.0", _PREACT, "hooks/dist/hooks.mjs", "preact/hooks"),
    Part(
        *("@preact/signals-core", "1.14.5", _CORE, "dist/signals-core.mjs"),
        "@preact/signals-core",
    ),
    Part("@preact/signals", "2.11.4", _SIGNALS, "dist/signals.mjs", "@preact/signals"),
    Part("htm", "3.1.1", _HTM, "dist/htm.mjs", "htm"),
)
"""In the order in which they need each other."""

GIVEN = {
    "preact": ("render", "Fragment", "createElement"),
    "preact/hooks": ("useEffect", "useLayoutEffect", "useRef", "useState", "useMemo"),
    "@preact/signals-core": ("signal", "computed", "effect", "batch"),
}
"""What the page imports, by module."""

_IMPORT = re.compile(r'import\{([^}]*)\}from"([^"]+)";')
_FORWARD = re.compile(r'export\{([^}]*)\}from"([^"]+)";')
_EXPORT = re.compile(r"export\{([^}]*)\};?\s*$")
_MAP = re.compile(r"//# sourceMappingURL=\S+\s*$")


def joined(sources: dict[str, str]) -> str:
    """Join the modules, each in a function of its own; any other form of module is an error."""
    made = [f"// {part.folder} {part.path}: sha512-{part.integrity}" for part in PARTS]
    made += ["// Joined by `make vendor`; licences: MIT, htm Apache-2.0.", "const of = {};"]
    made += [_wrapped(part.module, sources[part.module]) for part in PARTS]
    for module, names in GIVEN.items():
        made.append(f'export const {{ {", ".join(names)} }} = of["{module}"];')
    made.append('export const html = of["htm"].bind(of["preact"].createElement);')
    return "\n".join(made) + "\n"


def _wrapped(module: str, source: str) -> str:
    body = _MAP.sub("", source).strip()
    body = _FORWARD.sub("", body)  # the page takes these from their own module
    body = _IMPORT.sub(lambda m: f'const {{{_renamed(m[1])}}}=of["{m[2]}"];', body)
    if "export default" in body:
        body = body.replace("export default", "return", 1)
    else:
        found = _EXPORT.search(body)
        assert found is not None, module
        names = (name.partition(" as ") for name in found[1].split(","))
        body = (
            body[: found.start()] + "return{" + ",".join(f"{b or a}:{a}" for a, _, b in names) + "}"
        )
    assert not re.search(r"\b(?:import|export)\b[\s{*\"]", body), module
    return f'of["{module}"] = (() => {{{body}}})();'


def _renamed(names: str) -> str:
    return ",".join(name.replace(" as ", ":") for name in names.split(","))


def packed(part: Part, folder: Path) -> Path:
    """Fetch a package by npm; wrong bytes are an error."""
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), part.folder]
    said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    archive = folder / said.stdout.strip().splitlines()[-1]
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != part.integrity:
        raise SystemExit(f"{part.folder} has other bytes than those recorded here: {found}")
    return archive


def fetched(folder: Path) -> dict[str, str]:
    """Fetch the packages by npm, and return the modules."""
    sources = {}
    for part in PARTS:
        with tarfile.open(packed(part, folder)) as opened:
            held = opened.extractfile(f"package/{part.path}")
            assert held is not None
            sources[part.module] = held.read().decode()
    return sources


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        made = joined(fetched(Path(folder)))
    if "--write" in arguments:
        FILE.write_text(made, "utf-8")
    if FILE.read_text("utf-8") != made:
        print(f"{FILE.relative_to(ROOT)} is not what npm's packages give; run with --write")
        return 1
    print(f"{FILE.relative_to(ROOT)} is what npm's packages give: {len(made):,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
