"""The pages of the site, where each lies, and in which order.

A page of docs/ keeps its path. Some pages lie elsewhere in the checkout, the README among them.
The reference is generated at each build and never committed: so it cannot be out of date, and a
change of a docstring is no change of a page. Links lead where they lead in the checkout.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final

from tests.source import ROOT, tree_files
from tests.support.site import SiteError, reference

ELSEWHERE: Final = {
    "README.md": "index.md",
    "SECURITY.md": "explanation/threat-model.md",
    "CHANGELOG.md": "project/changes.md",
    "AGENTS.md": "project/working-on-it.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
"""Pages that do not lie in docs/, and where they are on the site."""

PARTS: Final = {
    "Tutorials": "tutorials",
    "How-to": "how-to",
    "Reference": "reference",
    "Explanation": "explanation",
    "Project": "project",
}
ORDER: Final = {
    "tutorials": (
        *("first-agent", "from-create-agent", "debug-a-wrong-answer", "survive-a-crash"),
        "serve-it",
    ),
    "how-to": (
        *("python", "tools", "hooks", "approvals", "guardrails", "context", "subagents"),
        *("messages", "threads", "long-term-memory", "checkpointer", "sandbox", "server"),
        *("langgraph-clients", "ag-ui", "ai-sdk", "a2a", "editors"),
        *("testing", "debugging", "page"),
        *("gateway", "gateway-channels", "gateway-people", "gateway-memory", "gateway-schedule"),
    ),
    "reference": (
        *("configuration", "agents-yaml", "cli", "commands", "http", "events", "errors"),
        *("providers", *(name.replace(".", "-") for name in reference.DOORS)),
    ),
    "explanation": ("graph", "durability", "speed", "journal", "threat-model", "comparison"),
    "project": ("changes", "working-on-it", "benchmarks"),
}
"""What comes first in each part. A page that is not named here follows, by its name."""

GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "reference/agents-yaml.md": reference.agents_yaml,
    "reference/commands.md": reference.commands,
    "reference/http.md": reference.http,
    "reference/events.md": reference.events,
    "reference/errors.md": reference.errors,
    **{
        f"reference/{name.replace('.', '-')}.md": partial(reference.python, name)
        for name in reference.DOORS
    },
}
PICTURE: Final = re.compile(r"<!-- picture: ([\w-]+)(\.png)? \| ([^\n]+?) -->")
"""A picture that the build makes: its name, and what a reader who cannot see it needs."""
_LINK: Final = re.compile(r"(!?\[[^\]]*\]\()([^()\s]+)(\))")
_FENCE: Final = re.compile(r"^( *)```.*?^\1```", re.M | re.S)
_CODE: Final = re.compile(r"`[^`\n]+`")


@cache
def checkout() -> frozenset[str]:
    """Return the files that a page may link to: those of the checkout, and no links from it."""
    return frozenset(file for file in tree_files() if not (ROOT / file).is_symlink())


@cache
def sources() -> Mapping[str, str]:
    """Map each written page of the checkout to its place on the site."""
    written = {
        file: file.removeprefix("docs/")
        for file in checkout()
        if file.startswith("docs/") and file.endswith(".md")
    }
    return {**written, **ELSEWHERE}


def parts() -> dict[str, list[str]]:
    """Return the navigation: each part with its pages, its index first."""
    there = {*sources().values(), *GENERATED}
    for file, place in sources().items():
        if place != "index.md" and place.partition("/")[0] not in ORDER:
            parts = ", ".join(f"docs/{folder}" for folder in ORDER)
            raise SiteError(f"{file} is in no part of the site; move it to one of {parts}")
    made = {}
    for folder in PARTS.values():
        known = [f"{folder}/{name}.md" for name in ("index", *ORDER[folder])]
        here = {page for page in there if page.startswith(f"{folder}/")}
        made[folder] = [page for page in known if page in here] + sorted(here - {*known})
    return made


def pages() -> tuple[dict[str, str], set[str]]:
    """Return the text of each page by its place, and the other files that pages link to."""
    files = set[str]()
    made = {
        place: relinked((ROOT / file).read_text("utf-8"), file, place, files)
        for file, place in sources().items()
    }
    made |= {place: make() for place, make in GENERATED.items()}
    for folder, listed in parts().items():
        made[f"{folder}/index.md"] += _contents(made, folder, listed)
    return made, files


def title_of(text: str) -> str:
    """Return the title of a page, in plain words."""
    title = re.match(r"\s*# (.+)", text)
    if not title:
        raise SiteError(f"a page begins with no title: {text[:60]!r}; write `# …` above it")
    return re.sub(r"[`*]", "", title[1])


def _contents(made: Mapping[str, str], folder: str, listed: list[str]) -> str:
    """List the pages of a part, each with its first sentence."""
    rows = [""]
    for page in listed[1:]:
        first = first_sentence(made[page])
        name = page.removeprefix(f"{folder}/")
        rows.append(f"- [{title_of(made[page])}]({name}){': ' if first else ''}{first}")
    return "\n".join(rows) + "\n"


def first_sentence(text: str) -> str:
    """Return the sentence that a page begins with, without links; empty if it begins otherwise."""
    first = re.search(r"^# .+\n+(?:> )?([\w`][^|]*?)(?:\n\n|\Z)", text, re.M)
    if not first or first[1].startswith("```"):
        return ""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first[1].replace("> ", "").split()))
    return re.split(r"(?<=[.:!?])\s", plain)[0].rstrip(":.") + "."


def file_place(file: str) -> str:
    """Return where a file that is no page lies on the site."""
    name = file.removeprefix("docs/")
    return name if name.startswith("pictures/") else f"files/{name}"


def relinked(text: str, file: str, place: str, files: set[str]) -> str:
    """Point the links of a page to the same targets on the site; leave code as it is.

    Raises:
        SiteError: A link leads to no file of the checkout.
    """

    def link(found: re.Match[str]) -> str:
        target, mark, anchor = found[2].partition("#")
        if re.match(r"\w+:", target) or not target:
            return found[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
        goal = sources().get(there, "")
        if not goal:
            if there not in checkout():
                raise SiteError(f"{file}: the link {found[2]} leads to no file; correct it")
            files.add(there)
            goal = file_place(there)
        near = os.path.relpath(goal, posixpath.dirname(place) or ".")
        return f"{found[1]}{near}{mark}{anchor}{found[3]}"

    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\0{len(kept) - 1}\0"

    def picture(found: re.Match[str]) -> str:
        up = os.path.relpath("pictures", posixpath.dirname(place) or ".")
        return f"![{found[3]}]({up}/{found[1]}{found[2] or '.svg'})"

    text = _CODE.sub(keep, _FENCE.sub(keep, text))
    text = PICTURE.sub(picture, _LINK.sub(link, text))
    while "\0" in text:
        text = re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], text)
    return text
