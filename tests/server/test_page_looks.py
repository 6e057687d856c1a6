"""The views of chats, approvals, agents and threads: accessible and not too wide, in every mode."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.browsing import WAIT, Watched, chromium
from tests.server.support import Served, serving
from tests.source import PACKAGE
from tests.support import axe, small

__all__ = ["chromium"]

pytestmark = pytest.mark.xdist_group("page_looks")  # they share a browser and a server

PAGE = PACKAGE / "server/page"
MODES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1_600, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 900, "height": 900}, "color_scheme": "dark"},
    "forced": {"viewport": {"width": 900, "height": 900}, "forced_colors": "active"},
    "narrow": {"viewport": {"width": 320, "height": 700}, "color_scheme": "light"},
}
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
  fails: {model: 'scripted:fails.yaml'}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    steps = [{"text": SAID, "calls": CALLS}, "Done."]
    texts: Any = {name: json.dumps({"steps": steps}) for name in ("talker", "careful")}
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
        for agent in ("talker", "careful", "fails"):
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


@pytest.mark.parametrize("mode", MODES)
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
            expect(page.get_by_role("log")).to_contain_text(heading, timeout=WAIT)
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


def test_the_page_is_small(served: Served) -> None:
    files = [*small.sources(), PAGE / "vendor/preact.js"]
    with served.http() as http:
        raw = [http.get(f"/ui/{path.relative_to(PAGE).as_posix()}").content for path in files]
    assert sum(map(len, raw)) <= 150_000
    assert sum(len(gzip.compress(one, 6)) for one in raw) <= 60_000


def test_what_is_served_is_made_of_the_sources() -> None:
    """The bytes themselves are compared by `make page`, which needs npm."""
    assert {path.name for path in small.SMALL.iterdir()} == {p.name for p in small.sources()}
    for source in small.sources():
        made = (small.SMALL / source.name).read_bytes()
        assert made.startswith(small.head(source)), "run: make page ARGS=--write"
