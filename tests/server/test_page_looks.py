"""The views of chats, approvals, agents and threads: accessible and not too wide, in every mode."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.browsing import Watched, chromium
from tests.server.support import Served, serving
from tests.source import PACKAGE
from tests.support import axe, small
from tests.support.browser import WAIT

__all__ = ["chromium"]

pytestmark = pytest.mark.xdist_group("page_looks")  # they share a browser and a server

PAGE = PACKAGE / "server/page"
COLOURS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "forced": {"color_scheme": "dark", "forced_colors": "active"},
}
SIZES: dict[str, dict[str, Any]] = {
    "1600": {"viewport": {"width": 1_600, "height": 900}},
    "900": {"viewport": {"width": 900, "height": 900}},
    "320": {"viewport": {"width": 320, "height": 700}},
    "zoomed": {"viewport": {"width": 320, "height": 256}, "device_scale_factor": 4},  # 400 %
}
MODES = {f"{c}-{s}": COLOURS[c] | SIZES[s] for c in COLOURS for s in SIZES}
BY_DAY = ("light-1600", "light-320")
"""The others are for `make test-slow`."""
WORD = "Donaudampfschifffahrtsgesellschaftskapitaen" * 6
SAID = f"""# A heading

Some **strong** and `code`, {WORD}, مرحبا بالعالم 👩‍👩‍👧

1. one
2. two
   - below

| a | {WORD} |
|---|---|
| 1 | 2 |

```python
{"x = 1; " * 40}
```

> [a link](https://example.org/{WORD}) and ![a picture](https://example.org/x.png)
"""
CALLS = [{"tool": "calculate", "args": {"expression": text}} for text in ("21*2", "1/0", WORD)]
AGENTS = """\
store: sqlite:///wick.db
defaults: {ttl: 7d, tools: [calculate]}
agents:
  talker: {model: 'scripted:talker.yaml', system_prompt: Be brief.}
  careful: {model: 'scripted:careful.yaml', approvals: {calculate: true}}
  long: {model: 'scripted:long.yaml', max_iterations: 99}
  fails: {model: 'scripted:fails.yaml'}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    steps = [{"text": SAID, "calls": CALLS}, "Done."]
    texts: Any = {name: json.dumps({"steps": steps}) for name in ("talker", "careful")}
    many = [{"text": f"Step {n}.", "calls": [CALLS[0]]} for n in range(60)]
    texts["long"] = json.dumps({"steps": [*many, "End."]})
    texts["fails"] = json.dumps({"steps": [{"text": "x", "calls": [{"tool": "none", "args": {}}]}]})
    folder = tmp_path_factory.mktemp("looks")
    with serving(folder, "--host", "127.0.0.1", agents=AGENTS, **texts) as made:
        yield made


@pytest.fixture(scope="module")
def views(served: Served) -> dict[str, str]:
    """The places of the views, and what each shows once it is there."""
    found = {"#/": "Threads", "#/agents": "Agents", "#/agents/careful": "careful"}
    found |= {"#/new/talker": "A chat with talker", "#/approvals": "Approvals"}
    with served.http(token_of(served)) as http:
        for agent in ("long", "talker", "careful", "fails"):
            body = {"messages": [{"role": "user", "content": f"{agent} {WORD}"}]}
            thread = http.post(f"/agents/{agent}/invoke", json=body).json()["thread_id"]
            found[f"#/chat/{thread}"] = agent
    found |= {"#/new": "A new run", "#/traces": "Traces", "#/gateway": "Gateway"}
    return found | {f"#/compare/{thread}/1/{thread}/1": "Compare", f"#/threads/{thread}": "fails"}


def token_of(served: Served) -> str:
    return served.wick("token", "create", "--scope", "run,approve,debug,admin")


def check(page: Page, place: str) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
    made = page.evaluate("async () => (await axe.run(document)).violations")
    assert [(one["id"], [n["html"] for n in one["nodes"]][:3]) for one in made] == [], place


@pytest.mark.parametrize(
    "mode", [pytest.param(m, marks=[] if m in BY_DAY else [pytest.mark.slow]) for m in MODES]
)
def test_no_view_violates_a_rule_of_axe(
    served: Served, views: dict[str, str], chromium: Browser, mode: str
) -> None:
    assert axe.FILE.exists(), "fetch axe-core, as .ci/run does: python -m tests.support.axe"
    context = chromium.new_context(**MODES[mode])
    watched = Watched(context, served)
    page = context.new_page()
    page.goto(f"{served.url}/ui/")
    page.evaluate(axe.FILE.read_text("utf-8"))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=WAIT)
    check(page, "sign-in")
    page.get_by_label("Access token").fill(token_of(served))
    page.get_by_role("button", name="Sign in").click()
    for place, heading in views.items():
        expect(page.get_by_role("navigation", name="Views")).to_be_visible(timeout=WAIT)
        page.evaluate("place => { location.hash = place }", place)
        expect(page.locator("h1", has_text=heading)).to_be_visible(timeout=WAIT)
        expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=WAIT)
        if "/chat/" in place:
            said = "End." if heading == "long" else heading
            expect(page.get_by_role("log")).to_contain_text(said, timeout=WAIT)
            page.evaluate(
                "document.querySelectorAll('details').forEach(one => { one.open = true })"
            )
        if place == "#/approvals":
            page.get_by_label("expression").first.fill("2+2")
            page.get_by_role("button", name="Reject").last.click()
        check(page, place)
        if "/threads/" in place:
            page.get_by_role("button", name="Debugger").click()
            for tab in page.get_by_role("tab").all():
                tab.click()
                expect(page.get_by_role("tabpanel")).not_to_contain_text("Loading", timeout=WAIT)
                check(page, f"{place} {tab.inner_text()}")
        if place == "#/traces":
            page.get_by_role("region", name="Runs").get_by_role("link").first.click()
            expect(page.locator(".spans")).to_be_visible(timeout=WAIT)
            check(page, "a trace")
    context.close()
    watched.check()


def test_a_view_without_anything_violates_no_rule(tmp_path: Path, chromium: Browser) -> None:
    """What a tenant sees that has nothing yet, and a thread that nothing is recorded of."""
    agents = "store: sqlite:///wick.db\nagents:\n  quiet: {model: 'scripted:demo', journal: off}\n"
    with serving(tmp_path, "--host", "127.0.0.1", agents=agents) as served:
        context = chromium.new_context(**MODES["light-900"])
        watched = Watched(context, served)
        page = watched.opened(token_of(served))
        page.evaluate(axe.FILE.read_text("utf-8"))
        for view, text in {
            "": "There are no threads yet",
            "approvals": "Nothing waits for you",
            "traces": "Nothing has run yet",
            "gateway": "No gateway runs on this store",
        }.items():
            page.evaluate("place => { location.hash = place }", f"#/{view}")
            expect(page.get_by_text(text)).to_be_visible(timeout=WAIT)
            check(page, view)
        with served.http(token_of(served)) as http:
            body = {"messages": [{"role": "user", "content": "Hello."}]}
            thread = http.post("/agents/quiet/invoke", json=body).json()["thread_id"]
        page.evaluate("place => { location.hash = place }", f"#/threads/{thread}")
        expect(page.locator(".note").first).to_contain_text("journal", timeout=WAIT)
        check(page, "not recorded")
        context.close()
        watched.check()


RULE = re.compile(r"([a-z-]+): ([^;{}]+)[;}]")
NAMED = re.compile(r"color|background|fill|stroke(?!-)|^border(?!-radius|-collapse|-spacing)")


def test_sizes_and_colours_have_names() -> None:
    """One design: beneath the names, no rule has a colour, a size of text or a space of its own."""
    text = (PAGE / "page.css").read_text("utf-8")
    names, _, rules = text.partition("* { box-sizing")
    scales = re.findall(r"--(text|space)-\w+: [\d.]+px", names)
    assert 4 <= scales.count("text") <= 5
    assert 5 <= scales.count("space") <= 7
    for name, value in RULE.findall(rules):
        if name.startswith("--"):
            continue
        if re.match(r"(padding|margin|gap|font-size|font$)", name):
            assert not re.search(r"\d(px|r?em)\b", value), (name, value)
        if NAMED.search(name):
            assert not re.search(r"#[0-9a-f]{3}|\b(rgb|hsl|red|white|black|gr[ae]y)", value), name


def test_the_page_is_small(served: Served) -> None:
    files = [*small.sources(), PAGE / "vendor/preact.js"]
    with served.http() as http:
        raw = [http.get(f"/ui/{path.relative_to(PAGE).as_posix()}").content for path in files]
    assert sum(map(len, raw)) <= 150_000
    assert sum(len(gzip.compress(one, 6)) for one in raw) <= 60_200


def test_what_is_served_is_made_of_the_sources() -> None:
    """The bytes themselves are compared by `make page`, which needs npm."""
    assert {path.name for path in small.SMALL.iterdir()} == {p.name for p in small.sources()}
    for source in small.sources():
        made = (small.SMALL / source.name).read_bytes()
        assert made.startswith(small.head(source)), "run: make page ARGS=--write"
