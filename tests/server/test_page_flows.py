"""What people do in the page: by keyboard, after a crash, on paper, with a graph of 401 boxes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.server.browsing import Watched, asked, chromium, come, intercept, to, watched
from tests.server.support import ENDLESS, Served, serving
from tests.support.browser import WAIT
from wick_graph.store import SqlSaver

__all__ = ["chromium", "watched"]

pytestmark = pytest.mark.xdist_group("page_flows")  # they share a browser and a server

CUTTER = '''
from wick_graph import BaseHook


class Cutter(BaseHook):
    """Drop the first message of each request: the wrong hook of these tests."""

    name = "cutter"

    def modify_request(self, request, ctx):
        return request.drop(request.messages[0]) if len(request.messages) > 1 else request
'''
CALL = {"tool": "calculate", "args": {"expression": "21*2"}}
AGENTS = """\
store: sqlite:///wick.db
defaults: {ttl: 7d, tools: [calculate]}
agents:
  cut: {model: 'scripted:talk.yaml', hooks: [{use: 'cutter:Cutter'}]}
  careful: {model: 'scripted:talk.yaml', approvals: {calculate: true}}
  endless: {model: 'scripted:endless.yaml'}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("flows")
    (folder / "cutter.py").write_text(CUTTER, "utf-8")
    texts: Any = {"talk": json.dumps({"steps": [{"text": "Let me see.", "calls": [CALL]}, "42."]})}
    args = ("--host", "127.0.0.1", "--trust")
    with serving(folder, *args, agents=AGENTS, endless=ENDLESS, **texts) as made:
        yield made


@pytest.fixture(scope="module")
def token(served: Served) -> str:
    return served.wick("token", "create", "--scope", "run,approve,debug,admin")


def test_a_tab_is_signed_in_by_a_busy_one_although_it_was_refused_before(
    token: str, watched: Watched
) -> None:
    busy, tab = watched.opened(token), watched.context.new_page()
    held: list[Any] = []
    tab.route("**/api/v1/me", lambda it: it.continue_() if held else held.append(it))
    busy.evaluate("setTimeout(() => { for (const t = Date.now(); Date.now() < t + 2000; ); })")
    tab.goto(f"{watched.served.url}/ui/")
    come(tab, held)
    assert not held[0].request.headers.get("x-wick-secret")
    while tab.evaluate("sessionStorage.getItem('wick-secret')") is None:
        tab.wait_for_timeout(50)
    held[0].continue_()
    expect(tab.get_by_role("heading", name="Threads")).to_be_visible(timeout=WAIT)


def test_twelve_keys_lead_to_the_message_that_a_hook_dropped(
    served: Served, token: str, watched: Watched
) -> None:
    asked(served, token, "cut", "Remember the milk.")
    page = watched.opened(token)
    run = page.get_by_role("link", name="Run of Remember the milk.")
    expect(run).to_be_visible(timeout=WAIT)
    keys: list[str] = []
    while not run.evaluate("one => one === document.activeElement"):
        keys.append("Tab")
        page.keyboard.press("Tab")
        assert len(keys) < 12
    for key in ("Enter", "t", "t", "2"):
        keys.append(key)
        page.keyboard.press(key)
        expect(page.get_by_role("grid", name="Moments")).to_be_visible(timeout=WAIT)
    dropped = page.locator(".parts .dropped")
    expect(dropped).to_contain_text("dropped by cutter", timeout=WAIT)
    expect(dropped).to_contain_text("Remember the milk.")
    assert len(keys) <= 12, keys
    page.keyboard.press("1")
    page.keyboard.press("T")
    expect(page.locator(".change").first).to_be_visible(timeout=WAIT)
    page.keyboard.press("y")  # why there is the first change
    expect(page.get_by_role("list", name=re.compile("^Why "))).to_be_visible(timeout=WAIT)
    page.keyboard.press("d")
    expect(page.get_by_label("Up to moment")).to_be_focused()


def test_after_a_kill_a_closed_tab_finds_chat_and_approvals_as_they_were(
    served: Served, token: str, watched: Watched
) -> None:
    waits = asked(served, token, "careful", "Ask me.")
    page = watched.opened(token)
    to(page, "#/new/endless")
    page.get_by_label("Message", exact=True).fill("Begin.")
    page.get_by_label("Message", exact=True).press("Enter")
    log = page.get_by_role("log", name="Messages")
    expect(log).to_contain_text("word20", timeout=WAIT)
    place, port = page.url.rpartition("#")[2], served.port
    page.close()
    served.kill()
    served.start(port=port)
    page = watched.opened(token)
    to(page, f"#{place}")
    log = page.get_by_role("log", name="Messages")
    expect(log).to_contain_text("word30", timeout=WAIT)
    seen = [int(found) for found in re.findall(r"word(\d+)", log.inner_text())]
    assert seen == [*range(len(seen))]
    expect(log.locator(".mine")).to_have_count(1)
    expect(log.locator("details.tool")).to_have_count(1)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0, timeout=WAIT)
    to(page, "#/approvals")
    question = page.get_by_role("article", name="calculate, 1 of 1 in Ask me.")
    expect(question).to_have_count(1, timeout=WAIT)
    question.get_by_role("button", name="Approve").click()
    expect(question).to_have_count(0, timeout=WAIT)
    to(page, f"#/chat/{waits}")
    expect(log.locator(".theirs").last).to_have_text("42.", timeout=WAIT)
    expect(log.locator("details.tool")).to_have_count(1)


def test_what_was_followed_is_in_the_same_order_after_a_reload(
    served: Served, token: str, watched: Watched
) -> None:
    page = watched.opened(token)
    to(page, "#/new/endless")
    page.get_by_label("Message", exact=True).fill("Begin.")
    page.get_by_label("Message", exact=True).press("Enter")
    page.wait_for_url(re.compile("#/chat/"))
    to(page, f"#/threads/{page.url.rpartition('/')[2]}")
    grid = page.get_by_role("grid", name="Moments")
    many = re.compile(r"^(2[5-9]|[3-9]\d)$")
    expect(grid).to_have_attribute("aria-rowcount", many, timeout=WAIT)
    words = "rows => rows.map(one => [one.ariaRowIndex, one.querySelector('.what').textContent])"
    first = grid.get_by_role("row").evaluate_all(words)
    page.reload()
    expect(grid.get_by_role("row").nth(len(first) - 1)).to_be_visible(timeout=WAIT)
    expect(grid.get_by_text("…", exact=True)).to_have_count(0, timeout=WAIT)
    assert grid.get_by_role("row").evaluate_all(words)[: len(first)] == first
    numbers = [int(index) for index, _ in first]
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    thread = page.url.partition("/threads/")[2].partition("/")[0]
    with served.http(token) as http:
        assert http.post(f"/threads/{thread}/cancel").is_success


def boxes(count: int) -> dict[str, Any]:
    """Make the graph of a chain of boxes, as the server answers."""
    nodes: list[Any] = [
        {"id": f"n{at}", "name": f"box {at}", "kind": "node", "lines": [], "facts": {}}
        for at in range(count)
    ]
    edges = [
        {"source": f"n{at}", "target": f"n{at + 1}", "conditional": False, "text": ""}
        for at in range(count - 1)
    ]
    places = {f"n{at}": [0, 60 * at, 100, 40] for at in range(count)}
    lines = [
        {"points": [[50, 60 * at + 40], [50, 60 * at + 60]], "label": None} for at in range(count)
    ]
    layout = {"width": 100, "height": 60 * count, "boxes": places, "edges": lines[: len(edges)]}
    return {"nodes": nodes, "edges": edges, "layout": layout}


@pytest.mark.parametrize(("count", "drawn"), [(400, True), (401, False)])
def test_a_large_graph_opens_as_a_list(
    served: Served, token: str, watched: Watched, count: int, drawn: bool
) -> None:
    page = watched.opened(token)
    intercept(page, "**/agents/careful/graph", lambda route: route.fulfill(json=boxes(count)))
    to(page, "#/agents/careful")
    outline = page.locator(".outline")
    expect(page.locator("svg.graph")).to_have_count(int(drawn), timeout=WAIT)
    if drawn:
        page.get_by_text("The graph as a list").click()
    else:
        expect(page.get_by_text("The graph has 401 nodes")).to_be_visible(timeout=WAIT)
    expect(outline.get_by_text("box 0", exact=True)).to_be_visible(timeout=WAIT)
    outline.get_by_role("button", name=f"Show {count - 200} more").click()
    expect(outline.get_by_text(f"box {count - 1}", exact=True).first).to_be_visible()
    assert page.evaluate("document.querySelectorAll('*').length") < 6_000


def test_a_graph_is_printed_alone(served: Served, token: str, watched: Watched) -> None:
    thread = asked(served, token, "cut", "On paper.")
    page = watched.opened(token)
    to(page, f"#/threads/{thread}")
    page.get_by_role("tab", name="Graph").click()
    expect(page.locator("svg.graph")).to_be_visible(timeout=WAIT)
    page.emulate_media(media="print")
    expect(page.locator("svg.graph")).to_be_visible()
    for hidden in (".verbs", ".strip", ".steps", "[role=tablist]", ".bar button"):
        expect(page.locator(hidden).first).to_be_hidden()
    assert page.pdf().startswith(b"%PDF")


def test_chats_of_the_gateway_are_opened_from_its_view(
    served: Served, token: str, watched: Watched
) -> None:
    thread = asked(served, token, "cut", "From afar.")
    with SqlSaver.from_url(f"sqlite:///{served.path / 'wick.db'}") as saver:
        box = saver.mailbox
        box.receive("k1", "cli:anna", {"content": "From <b>afar</b>.", "channel": "cli"})
        box.put_fact("session/x", {"key": "cli:anna", "thread": thread})
        box.receive("k2", "cli:bert", {"content": "Not here.", "channel": "cli"})
    page = watched.opened(token)
    to(page, "#/gateway")
    page.get_by_role("button", name="Inbox (2)").click(timeout=WAIT)
    expect(page.get_by_role("region", name="inbox")).to_contain_text("From <b>afar</b>.")
    expect(page.get_by_role("link", name="cli:bert")).to_have_count(0)
    page.get_by_role("button", name="Chats (1)").click()
    page.get_by_role("link", name="cli:anna").click()
    expect(page.get_by_role("log", name="Messages")).to_contain_text("From afar.", timeout=WAIT)
    page.get_by_label("Message", exact=True).fill("And from here.")
    page.get_by_label("Message", exact=True).press("Enter")
    expect(page.get_by_role("log").locator(".mine")).to_have_count(2, timeout=WAIT)
