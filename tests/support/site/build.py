"""Build the site: `python -m tests.support.site.build [FOLDER]`, or `make docs`.

Zensical checks it strictly: a link to no page or no heading, a name in no docstring, an unknown
option end the build. No page loads anything from another host, and the search works from the disk.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from tests.source import ROOT
from tests.support.site import SiteError, pages, pictures, reference, screens

FOLDER: Final = ROOT / "build" / "docs"
SETTINGS: Final = "zensical.toml"
ASSETS: Final = Path(__file__).parent
SHIM: Final = "https://unpkg.com/iframe-worker/shim"
"""What Zensical's pages load for their search if they are opened from the disk."""
LOADING: Final = {"src", "srcset", "href", "xlink:href", "data", "poster"}
"""Attributes whose addresses a browser loads, at all elements but links."""
HOST: Final = re.compile(r"\s*(https?:)?//", re.I)
STYLE: Final = re.compile(r"(?:@import\s+|url\()\s*[\"']?\s*((?:https?:)?//[^\s\"')]+)", re.I)
"""An address of another host that a style loads."""


def config() -> dict[str, Any]:
    """Return the settings of the site."""
    titles = dict(zip(pages.PARTS.values(), pages.PARTS, strict=True))
    listed = [{titles[part]: list(names)} for part, names in pages.parts().items()]
    python = {
        "options": {
            "docstring_style": "google",
            "heading_level": 2,
            "show_root_heading": True,
            "show_root_full_path": False,
            "show_source": False,
            "show_bases": False,
            "members_order": "source",
            "separate_signature": True,
            "show_signature_annotations": True,
            "line_length": 88,
            "summary": False,
            "merge_init_into_class": True,
            "filters": ["!^_"],
            "docstring_section_style": "list",
            "show_if_no_docstring": False,
            "signature_crossrefs": False,
        },
        "paths": [str(ROOT)],
    }
    return {
        "site_name": "wick_graph",
        "docs_dir": "pages",
        "site_dir": "site",
        "use_directory_urls": False,
        "extra_css": ["assets/site.css"],
        "nav": [{"Home": "index.md"}, *listed],
        "theme": {
            "font": False,
            "language": "en",
            "features": [
                *("navigation.tabs", "navigation.sections", "navigation.indexes"),
                *("navigation.top", "navigation.footer", "content.code.copy", "search.highlight"),
            ],
            "palette": [
                {"media": "(prefers-color-scheme: light)", "scheme": "default"}
                | {"toggle": {"icon": "lucide/sun", "name": "Dark"}},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate"}
                | {"toggle": {"icon": "lucide/moon", "name": "Light"}},
            ],
        },
        "plugins": {
            "search": {},
            "offline": {},
            "mkdocstrings": {"handlers": {"python": python}},
        },
        "markdown_extensions": {
            "tables": {},
            "toc": {
                "permalink": True,
                "toc_depth": 3,
                "slugify": {"object": "pymdownx.slugs.slugify", "kwds": {"case": "lower"}},
            },
            "pymdownx.highlight": {"pygments_lang_class": True},
            "pymdownx.superfences": {},
        },
    }


def write(folder: Path) -> None:
    """Write the sources of the site: pages, pictures, files, settings."""
    if folder.exists() and any(folder.iterdir()) and not (folder / SETTINGS).exists():
        raise SiteError(f"{folder} holds something else than a site; name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    made, files = pages.pages()
    root = folder / "pages"
    for place, text in made.items():
        _put(root / place, text)
    for file in sorted(files):
        _put(root / pages.file_place(file), (ROOT / file).read_text("utf-8"))
    _put(root / "files" / "openapi.json", json.dumps(reference.described(), indent=1))
    for name, text in pictures.made().items():
        _put(root / name, text)
    for name, data in screens.made().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    _put(root / "assets" / "site.css", (ASSETS / "site.css").read_text("utf-8"))
    _put(folder / SETTINGS, _toml(config()))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _toml(settings: dict[str, Any]) -> str:
    """Write settings as TOML: JSON's values are TOML's, and inline tables nest."""

    def value(given: Any) -> str:
        if isinstance(given, dict):
            inner = ", ".join(f"{json.dumps(key)} = {value(each)}" for key, each in given.items())
            return f"{{ {inner} }}" if inner else "{}"
        if isinstance(given, list):
            return f"[{', '.join(map(value, given))}]"
        return json.dumps(given, ensure_ascii=False)

    return "\n".join(["[project]", *(f"{key} = {value(each)}" for key, each in settings.items())])


def build(folder: Path = FOLDER) -> Path:
    """Build the site strictly; return the folder with its pages."""
    write(folder)
    site = zensical(folder)
    _search_from_disk(site)
    for fault, found in (
        ("pages load from other hosts; put the files into the site", foreign(site)),
        ("addresses lead to no file; correct them", lost(site)),
    ):
        if found:
            raise SiteError("\n".join([f"{fault}:", *found]))
    return site


def zensical(folder: Path) -> Path:
    """Build the written sources of a site; a warning is an error."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", SETTINGS]
    done = subprocess.run(command, cwd=folder, text=True, stdout=-1, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SiteError(f"the site is not built:\n{done.stdout}")
    return folder / "site"


def _search_from_disk(site: Path) -> None:
    """Let the search work from the disk, where browsers refuse a worker's file.

    The worker's own text goes into a script, from which a worker may be made anywhere.
    """
    (worker,) = site.glob("assets/javascripts/workers/search.*.js")
    text = json.dumps(worker.read_text("utf-8")).replace("</", "<\\/")
    script = (
        "if (location.protocol === 'file:') {\n"
        f"const text = {text};\n"
        "const Real = window.Worker;\n"
        "window.Worker = function () {\n"
        "  return new Real(URL.createObjectURL(new Blob([text], {type: 'text/javascript'})));\n"
        "};\n}\n"
    )
    (site / "assets" / "javascripts" / "worker.js").write_text(script, encoding="utf-8")
    for page in site.rglob("*.html"):
        up = "../" * len(page.relative_to(site).parents[1:])
        said = page.read_text("utf-8")
        page.write_text(said.replace(SHIM, f"{up}assets/javascripts/worker.js"), encoding="utf-8")


class Addresses(HTMLParser):
    """The addresses in a page: what it loads, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded = STYLE.findall(html.unescape(text))
        self.linked = list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = [value for name, value in attrs if name in LOADING and value]
        (self.linked if tag == "a" else self.loaded).extend(given)


_addresses: Final = cache(Addresses)
"""Both checks read each page."""


def foreign(site: Path) -> list[str]:
    """Name each address of another host that a page or a style sheet of a site loads."""
    return [
        f"{path.relative_to(site)}: {address}"
        for path in sorted(site.rglob("*"))
        if path.suffix in (".html", ".css", ".svg")
        for address in _addresses(path.read_text("utf-8")).loaded
        if HOST.match(address)
    ]


def lost(site: Path) -> list[str]:
    """Name each address of a page that leads to no file of the site; Zensical checks pages only."""
    found = []
    for path in sorted(site.rglob("*.html")):
        page = _addresses(path.read_text("utf-8"))
        for address in {*page.loaded, *page.linked}:
            parts = urlsplit(address)
            file = unquote(parts.path)  # servers show the page 404 under any address
            goal = site / file.lstrip("/") if path.name == "404.html" else path.parent / file
            if not (parts.scheme or parts.netloc or goal.exists()):
                found.append(f"{path.relative_to(site)}: {address}")
    return found


if __name__ == "__main__":
    try:
        built = build(*map(Path, sys.argv[1:2]))
    except SiteError as fault:
        sys.exit(str(fault))
    sys.stdout.write(
        f"{built.relative_to(ROOT) if built.is_relative_to(ROOT) else built}/index.html\n"
    )
