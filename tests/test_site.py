"""The documentation site: every page has its place, every link its goal, and nothing is missing."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

import wick_graph
from tests.source import ROOT
from tests.support.site import SiteError, build, pages, reference, screens
from tests.test_guide import FENCE, anchors_of
from wick_graph import Agent
from wick_graph.cli.app import app, call
from wick_graph.testing import ScriptedModel

MARKED = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages.pages()[0]


# --- places and links ----------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_once(made: dict[str, str]) -> None:
    (home, *parts) = build.config()["nav"]
    listed = [page for part in parts for names in part.values() for page in names]
    assert sorted([*home.values(), *listed]) == sorted(made)
    for part in pages.PARTS.values():
        assert pages.parts()[part][0] == f"{part}/index.md"


def test_a_page_in_no_part_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {**pages.sources(), "docs/other/new.md": "other/new.md"}
    monkeypatch.setattr(pages, "sources", lambda: lost)
    with pytest.raises(SiteError, match=r"docs/other/new\.md .* no part .* docs/how-to"):
        pages.parts()


def test_each_named_page_is_there() -> None:
    there = {*pages.sources().values(), *pages.GENERATED}
    named = {f"{part}/{name}.md" for part, names in pages.ORDER.items() for name in names}
    assert {name for name in named - there if not name.startswith("tutorials/")} == set()


def test_each_link_between_pages_resolves(made: dict[str, str]) -> None:
    there = {*made, *map(pages.file_place, pages.pages()[1]), "files/openapi.json"}
    there |= {f"pictures/{name}.svg" for name in ("run", "debugger")}
    there |= {f"pictures/{name}.png" for name in (*screens.VIEWS, "page-debugger")}
    broken = []
    for page, text in made.items():
        for target in MARKED.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))):
            file, _, anchor = target.partition("#")
            goal = posixpath.normpath(posixpath.join(page, "..", file)) if file else page
            if re.match(r"\w+:", target):
                continue
            if goal not in there or (anchor and anchor not in anchors_of(made[goal])):
                broken.append(f"{page}: {target}")
    assert broken == []


def test_links_keep_their_goal_and_code_stays_as_it_is() -> None:
    text = "\n".join(
        [
            "[a](docs/how-to/hooks.md#hooks) `[b](docs/how-to/hooks.md)` [c](SECURITY.md)",
            "[d](https://example.org/docs/x.md) [e](#here) [`f`](docs/agents.schema.json)",
            "```",
            "[g](docs/how-to/hooks.md)",
            "```",
        ]
    )
    files = set[str]()
    moved = pages.relinked(text, "README.md", "index.md", files)
    assert moved.splitlines() == [
        "[a](how-to/hooks.md#hooks) `[b](docs/how-to/hooks.md)` [c](explanation/threat-model.md)",
        "[d](https://example.org/docs/x.md) [e](#here) [`f`](files/agents.schema.json)",
        *text.splitlines()[2:],
    ]
    assert files == {"docs/agents.schema.json"}


@pytest.mark.parametrize(
    "target", ["nothing.md", "../x.md", "/etc/hostname", "docs", "checkpoints/wick.db"]
)
def test_a_link_to_no_file_of_the_checkout_is_named(target: str) -> None:
    with pytest.raises(SiteError, match=f"^README.md: the link {re.escape(target)} leads to no"):
        pages.relinked(f"[a]({target})", "README.md", "index.md", set())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# T\n\nAn [agent](x.md) runs. More.\n", "An agent runs."),
        ("# T\n\nIt does this:\n\n```python\nX = 1\n```\n", "It does this."),
        ("# T\n\n```python\nX = 1\n```\n\nThen.\n", ""),
        ("# T\n\n| a |\n|---|\n", ""),
        ("# T\n\n> Promised. Kept.\n", "Promised."),
        ("# T\n", ""),
    ],
)
def test_a_page_is_introduced_by_its_first_sentence(text: str, said: str) -> None:
    assert pages.first_sentence(text) == said


# --- the generated reference ---------------------------------------------------------------------


def test_the_reference_names_each_key_command_and_request(made: dict[str, str]) -> None:
    shapes = json.loads((ROOT / "docs" / "agents.schema.json").read_text("utf-8"))["$defs"]
    keys = {key for shape in shapes.values() for key in shape.get("properties", ())}
    page = made["reference/agents-yaml.md"]
    assert [key for key in keys if f"| <code>{key}</code> |" not in page] == []
    assert re.findall(r"^\|.*\| +\|$", page, re.M) == [], "say in config/schema.py what it is"
    api = reference.described()
    page = made["reference/http.md"]
    requests = [f"{m.upper()} {path}" for path, ops in api["paths"].items() for m in ops]
    assert [each for each in requests if f"### `{each}`\n" not in page] == []
    page = made["reference/commands.md"]
    known = commands(typer.main.get_command(app), "wick")
    assert [each for each in known if each not in page] == []


def commands(command: Any, name: str) -> list[str]:
    """Name the headings of the commands below a command, and their options."""
    named = []
    for inner, each in getattr(command, "commands", {}).items():
        here = f"{name} {inner}"
        options = {option for p in each.params if not p.hidden for option in p.opts}
        named += [f"# {here}\n", *(o for o in options if o[0] == "-"), *commands(each, here)]
    return named


def test_the_reference_names_each_public_name(made: dict[str, str]) -> None:
    page = made["reference/wick_graph.md"]
    for name in {*wick_graph.__all__} - {"events", "__version__"}:
        assert f"::: wick_graph.{name}\n" in page
    assert "::: wick_graph.hooks.ApprovalHook\n" in made["reference/wick_graph-hooks.md"]
    assert "::: wick_graph.events.Done\n" in made["reference/events.md"]
    assert "::: wick_graph.errors.ThreadBusyError\n" in made["reference/errors.md"]


def test_prose_of_the_code_is_no_markup() -> None:
    assert reference.cell(reference.safe("a|b <c> [d] *e* `f|g`")) == (
        r"a\|b \<c> \[d\] \*e\* `f\|g`"
    )
    assert reference.code("[A|B] <x>") == "<code>[A&#124;B] &lt;x&gt;</code>"


# --- the README's figures ------------------------------------------------------------------------


def test_the_picture_of_the_readme_is_the_agent_that_make_run_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agents.yaml").write_text((ROOT / "agents.yaml").read_text("utf-8"), "utf-8")
    monkeypatch.chdir(tmp_path)
    assert call(["graph", "-o", "agent.svg"]) == 0
    drawn = (tmp_path / "agent.svg").read_text("utf-8")
    hint = "run: wick graph -o docs/pictures/agent.svg"
    assert drawn == (ROOT / "docs" / "pictures" / "agent.svg").read_text("utf-8"), hint


@pytest.mark.parametrize("file", ["README.md", "docs/explanation/graph.md"])
def test_the_drawn_loop_is_the_graph_of_an_agent(file: str) -> None:
    text = (ROOT / file).read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    with Agent(model=ScriptedModel([])) as agent:
        graph = agent.graph.get_graph()
    nodes = {"START" if n == "__start__" else "END" if n == "__end__" else n for n in graph.nodes}
    words = re.findall(r"START|END|\b(?!route\b|end\b)[a-z_]+\b", text.replace("route: tools", ""))
    assert set(words) == nodes
    ways = {str(edge.data) for edge in graph.edges if edge.conditional}
    assert set(re.findall(r"route: \w+", text)) == ways


# --- the build -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        '<script src="https://cdn.example.org/a.js"></script>',
        "<script defer src=//cdn.example.org/a.js></script>",
        "<img alt='x>y' src='http://example.org/a.png'>",
        '<link rel="stylesheet" href="https://fonts.example.org/css">',
        '<iframe src="https://example.org"></iframe>',
        '<source srcset="https://example.org/a.webp 2x">',
        '<svg><image xlink:href="https://example.org/a.png"/></svg>',
        "<style>@import 'https://example.org/a.css';</style>",
        '<p style="background: url(https://example.org/a.png)">',
        "@font-face { src: url('https://example.org/a.woff2') }",
        "<link href=' //example.org/a.css' rel=stylesheet>",
        "<SCRIPT SRC = 'HTTPS://example.org/a.js'></SCRIPT>",
    ],
)
def test_an_address_of_another_host_is_seen(tmp_path: Path, line: str) -> None:
    for name in ("a.html", "a.css", "a.svg"):
        (tmp_path / name).write_text(line, "utf-8")
    assert len(build.foreign(tmp_path)) == 3


def test_a_link_to_another_host_loads_nothing(tmp_path: Path) -> None:
    text = '<a href="https://example.org">x</a> <svg xmlns="http://www.w3.org/2000/svg"></svg>'
    (tmp_path / "a.html").write_text(text + '<script src="assets/a.js"></script>', "utf-8")
    assert build.foreign(tmp_path) == []


def test_an_address_that_leads_to_no_file_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a b.svg").write_text("<svg/>", "utf-8")
    good = '<img src="a%20b.svg"><a href="?q#x">x</a><a href="a.html#y">y</a><a href="mailto:x@y">'
    (tmp_path / "a.html").write_text(f'{good}<img src="b.svg"><a href="../b/c.html">z</a>', "utf-8")
    assert sorted(build.lost(tmp_path)) == ["a.html: ../b/c.html", "a.html: b.svg"]


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.md").write_text("mine", "utf-8")
    with pytest.raises(SiteError, match="holds something else than a site"):
        build.write(tmp_path)
    assert (tmp_path / "thesis.md").read_text("utf-8") == "mine"


def test_a_page_without_a_title_is_refused() -> None:
    with pytest.raises(SiteError, match=r"begins with no title: 'x'; write `# …` above it"):
        pages.title_of("x")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_site_is_built_strictly_and_needs_no_other_host(tmp_path: Path) -> None:
    """One build, and one more with a link to nothing: Zensical must refuse that one."""
    site = build.build(tmp_path / "docs")
    for page in pages.pages()[0]:
        text = (site / page).with_suffix(".html").read_text("utf-8")
        assert "<h1" in text, page
        assert build.SHIM not in text
    (first, *_) = str(Agent.resume.__doc__).splitlines()
    assert first in (site / "reference/wick_graph.html").read_text("utf-8")
    assert build.foreign(site) == []
    shown = (site / "pictures/debugger.svg").read_text("utf-8")
    assert "plain-words" in shown
    assert '"items"' in (site / "search.js").read_text("utf-8")
    index = tmp_path / "docs" / "pages" / "index.md"
    whole = index.read_text("utf-8")
    faults = ("[x](how-to/nothing.md)", "[x](how-to/hooks.md#nothing)", "::: wick_graph.Nothing")
    for fault in faults:
        index.write_text(f"{whole}\n\n{fault}\n", "utf-8")
        with pytest.raises(SiteError, match="the site is not built"):
            build.zensical(tmp_path / "docs")
