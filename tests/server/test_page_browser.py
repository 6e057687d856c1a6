"""The page in Debian's Chromium: from signing in to the cause of a change; hostile texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.server.browsing import (
    HOSTILE,
    MARKUP,
    TRICKS,
    Watched,
    asked,
    chromium,
    come,
    intercept,
    tab_to,
    to,
    watched,
)
from tests.server.support import AGENTS, Served, serving
from tests.support.browser import WAIT

__all__ = ["chromium", "watched"]

pytestmark = pytest.mark.xdist_group("page_browser")  # they share a browser and a server

TABS = (*("Changes", "Request", "State", "Moment", "Graph", "Lanes", "Route", "Tokens", "Preview"),)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("browser")
    call = {"tool": "calculate", "args": {"expression": "21*2"}}
    steps = [{"text": "Let me see.", "calls": [call]}, "It is 42."]
    odd = [{"text": text, "calls": [{**call, "args": {"expression": text}}]} for text in HOSTILE]
    rows = zip(*[iter((*HOSTILE, *TRICKS))] * 4, strict=True)
    every = [{**call, "args": {"expression": "\n".join(row)}} for row in rows]
    agents = (
        AGENTS
        + """\
  odd: {model: 'scripted:odd.yaml', max_iterations: 99}
  asks: {model: 'scripted:asks.yaml', approvals: {calculate: true}}
  tells: {model: 'scripted:tells.yaml'}
"""
    )
    asks = json.dumps({"steps": [{"text": TRICKS[0], "calls": every}, "Done."]})
    tells = json.dumps({"steps": ["\n\n".join((*HOSTILE, *TRICKS))]})
    talk, odd_talk = json.dumps({"steps": steps * 3}), json.dumps({"steps": [*odd, "Done."]})
    texts: Any = {"talk": talk, "odd": odd_talk, "asks": asks, "tells": tells}
    with serving(folder, "--host", "127.0.0.1", agents=agents, **texts) as made:
        yield made


@pytest.fixture(scope="module")
def token(served: Served) -> str:
    return served.wick("token", "create", "--scope", "run,approve,debug")


def test_from_signing_in_to_the_cause_of_a_change(
    served: Served, token: str, watched: Watched
) -> None:
    asked(served, token, "default", "What is 21*2?")
    page = watched.opened(token)
    page.get_by_role("link", name="Run of What is 21*2?").click()
    grid = page.get_by_role("grid", name="Moments")
    expect(grid.get_by_role("row", selected=True)).to_contain_text("run default", timeout=WAIT)
    page.get_by_role("button", name="Turn ▶").click()
    expect(grid.get_by_role("row", selected=True)).to_contain_text("request", timeout=WAIT)
    grid.press("e")
    expect(page.get_by_text("no more errors are recorded")).to_be_visible(timeout=WAIT)
    grid.press("m")
    panel = page.get_by_role("tabpanel")
    expect(panel).to_contain_text("messages[2]", timeout=WAIT)
    panel.get_by_role("button", name="Why?").first.click()
    expect(panel.get_by_role("list", name="Why messages[2]")).to_contain_text("tool:calculate")
    page.get_by_role("tab", name="Request").click()
    expect(panel).to_contain_text("exactly what was sent", timeout=WAIT)
    page.get_by_role("tab", name="Graph").click()
    expect(panel.locator("svg .here")).to_have_count(1, timeout=WAIT)
    assert page.evaluate("document.querySelectorAll('*').length") < 3_000
    page.reload()  # the tab keeps its secret, and its address the moment
    expect(grid.get_by_role("row", selected=True)).to_be_visible(timeout=WAIT)
    second = watched.context.new_page()  # another tab asks the first one
    second.goto(f"{served.url}/ui/")
    expect(second.get_by_role("heading", name="Threads")).to_be_visible(timeout=WAIT)
    second.get_by_role("button", name="Sign out").click()
    expect(second.get_by_role("heading", name="Sign in")).to_be_visible(timeout=WAIT)


def test_a_recording_is_saved_as_a_file(
    served: Served, token: str, watched: Watched, tmp_path: Path
) -> None:
    thread = asked(served, token, "default", "Keep this.")
    page = watched.opened(token)
    page.goto(f"{served.url}/ui/#/threads/{thread}")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export").click()
    assert saved.value.suggested_filename == f"{thread}.html"
    saved.value.save_as(tmp_path / "kept.html")
    with watched.context.browser.new_context(offline=True) as away:  # type: ignore[union-attr]
        file = away.new_page()
        file.goto((tmp_path / "kept.html").as_uri())
        expect(file.get_by_role("grid", name="Moments")).to_contain_text("run default")
        expect(file.get_by_role("tab", name="Graph")).to_be_visible()
        expect(file.get_by_role("button", name="Export")).to_have_count(0)


def test_a_breakpoint_stops_and_a_search_finds(
    served: Served, token: str, watched: Watched
) -> None:
    thread = asked(served, token, "default", "Stop at the tool.")
    page = watched.opened(token)
    page.goto(f"{served.url}/ui/#/threads/{thread}")
    grid = page.get_by_role("grid", name="Moments")
    page.get_by_role("button", name="Debugger").click()
    page.get_by_label("Breakpoint", exact=True).fill("tool:calculate")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("button", name="Delete breakpoint 1")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Continue ▶", exact=True).click()
    expect(grid.get_by_role("row", selected=True)).to_contain_text("tool calculate", timeout=WAIT)
    page.get_by_role("searchbox").fill("21*2")
    page.get_by_role("searchbox").press("Enter")
    hit = page.get_by_role("listitem").get_by_role("button", name="reply")
    hit.first.click()
    expect(grid.get_by_role("row", selected=True)).to_contain_text("response", timeout=WAIT)


HEARD = """
    window.heard = [];
    const status = document.querySelector(".said");
    new MutationObserver(() => heard.push(status.textContent))
      .observe(status, { childList: true, characterData: true, subtree: true });
"""


def test_a_run_is_held_by_the_graph_and_each_stop_is_said_once(
    served: Served, token: str, watched: Watched
) -> None:
    thread = asked(served, token, "default", "Be held.")
    page = watched.opened(token)
    page.goto(f"{served.url}/ui/#/threads/{thread}")
    grid, panel = page.get_by_role("grid", name="Moments"), page.get_by_role("tabpanel")
    page.get_by_role("tab", name="Graph").click()
    panel.get_by_role("button", name="Breakpoint at tools").first.click()
    page.get_by_role("button", name="Debugger").click()
    expect(page.get_by_role("button", name="Delete breakpoint 1")).to_be_visible(timeout=WAIT)
    page.evaluate(HEARD)
    page.get_by_label("Message").fill("Once more.")
    page.get_by_role("button", name="Run, held").click()
    runs = page.get_by_role("button", name="Run: continue ▶")
    expect(runs).to_be_visible(timeout=WAIT)
    runs.click()
    expect(page.locator(".said")).to_contain_text("breakpoint 1, tools", timeout=WAIT)
    expect(panel.locator("svg .here")).to_contain_text("tools", timeout=WAIT)
    page.get_by_role("button", name="Back: step").click()  # a move back runs nothing
    expect(page.get_by_role("button", name="Step ▶", exact=True)).to_be_visible(timeout=WAIT)
    heard = [text for text in page.evaluate("heard") if "breakpoint 1" in text]
    assert len(heard) == 1, heard
    page.get_by_role("textbox", name="Command").fill("p messages[-1].content")
    page.get_by_role("textbox", name="Command").press("Enter")
    expect(page.get_by_role("log")).to_contain_text("Once more.", timeout=WAIT)
    page.get_by_role("button", name="Let the run go on alone").click()
    panel.get_by_role("button", name=re.compile("^model ")).first.click()  # shows this node alone
    expect(page.get_by_role("button", name="Show all")).to_be_visible(timeout=WAIT)
    others = grid.get_by_role("row").filter(has_text="node tools")
    expect(others).to_have_count(0, timeout=WAIT)
    check(page)


def at_moment_5(served: Served, token: str, watched: Watched, text: str) -> Page:
    """Open the run of a new thread at its fifth moment."""
    thread = asked(served, token, "default", text)
    page = watched.opened(token)
    to(page, f"#/threads/{thread}/5")
    expect(page.get_by_role("grid", name="Moments")).to_be_visible(timeout=WAIT)
    return page


def leave(page: Page, held: list[Route], what: str, *, fails: bool = False) -> None:
    """Go to another view while an answer is held, then let it come: the reader stays there."""
    come(page, held)
    page.get_by_role("link", name="Agents").click()
    expect(page.get_by_role("heading", name="Agents")).to_be_visible(timeout=WAIT)
    with page.expect_response(what):
        held[0].fulfill(status=500, json={"error": "No."}) if fails else held[0].continue_()
    page.wait_for_timeout(300)
    assert page.url.endswith("#/agents")
    assert page.evaluate("sessionStorage.getItem('wick-session')") is None


@pytest.mark.parametrize(("key", "what"), [("s", "**/move?*"), ("b", "**/threads/*/sessions")])
def test_a_late_answer_leads_nobody_back(
    served: Served, token: str, watched: Watched, key: str, what: str
) -> None:
    page = at_moment_5(served, token, watched, "Left early.")
    held: list[Route] = []
    intercept(page, what, lambda route: held.append(route), times=1)
    page.keyboard.press(key)
    leave(page, held, what)


AT_ONCE = """() => {
  const real = fetch;
  window.fetch = async (...asked) => {
    const got = await real(...asked);
    if (!asked[0].includes("/move?")) return got;
    const said = await got.json();
    location.hash = "#/agents";
    return { ok: true, json: async () => said };
  };
}"""
"""Leaves a run in the instant before an answer is read: the view is still that of the run."""


def test_an_answer_of_the_instant_before_leads_nobody_back(
    served: Served, token: str, watched: Watched
) -> None:
    page = at_moment_5(served, token, watched, "Left at once.")
    page.evaluate(AT_ONCE)
    page.keyboard.press("s")
    expect(page.get_by_role("heading", name="Agents")).to_be_visible(timeout=WAIT)
    assert page.url.endswith("#/agents")


@pytest.mark.parametrize(
    ("view", "label", "what", "fails"),
    [
        ("new", "Message", "**/v1/sessions/*", False),
        ("new", "Message", "**/v1/sessions/*", True),
        ("new/default", "What shall it do?", "**/v1/agents/default/stream", False),
    ],
    ids=["new run", "new run that fails", "new chat"],
)
def test_what_begins_late_leads_nobody_there(
    served: Served, token: str, watched: Watched, view: str, label: str, what: str, fails: bool
) -> None:
    watched.expected.append("status of 500")
    page = watched.opened(token)
    to(page, f"#/{view}")
    field = page.get_by_label(label).or_(page.get_by_placeholder(label))
    field.fill("Left before it begins.")
    held: list[Route] = []
    intercept(page, what, lambda route: held.append(route), times=1)
    field.press("Enter")
    leave(page, held, what, fails=fails)


def test_a_late_fork_of_a_chat_leads_nobody_there(
    served: Served, token: str, watched: Watched
) -> None:
    thread = asked(served, token, "default", "Edited, then left.")
    page = watched.opened(token)
    to(page, f"#/chat/{thread}")
    page.get_by_role("button", name="Edit: Edited, then left.").click()
    what, held = "**/v1/agents/default/stream", list[Route]()
    intercept(page, what, lambda route: held.append(route), times=1)
    page.get_by_role("button", name="Send in a fork").click()
    leave(page, held, what)


def test_a_command_whose_session_was_left_stops_no_other(
    served: Served, token: str, watched: Watched
) -> None:
    """It goes on at the server for longer than its first answer; the session is gone by then."""
    page = at_moment_5(served, token, watched, "Left while it runs.")
    other = asked(served, token, "default", "Gone to.")
    held: list[Route] = []
    intercept(page, "**/v1/sessions/*", lambda it: held.append(it), times=1)
    page.keyboard.press("b")
    come(page, held)
    to(page, f"#/threads/{other}/5")
    expect(page.get_by_role("heading", name="Gone to.")).to_be_visible(timeout=WAIT)
    answer = {"running": True, "lines": [], "session": {"session": "gone", "mode": "LIVE"}}
    with page.expect_response("**/v1/sessions/*"):
        held[0].fulfill(json=answer)
    page.wait_for_timeout(300)
    page.get_by_role("grid", name="Moments").press("b")
    expect(page.get_by_role("log", name="Console")).to_contain_text("  1  break", timeout=WAIT)
    assert f"/threads/{other}" in page.url


def test_by_keyboard_to_the_request_and_into_a_fork(
    served: Served, token: str, watched: Watched
) -> None:
    title = "A thread for the keyboard"
    asked(served, token, "default", title)
    page = watched.opened(token)
    pressed = 0

    def press(key: str) -> None:
        nonlocal pressed
        page.keyboard.press(key)
        pressed += 1

    while page.evaluate("document.activeElement.ariaLabel") != f"Run of {title}":
        press("Tab")
    press("Enter")
    grid = page.get_by_role("grid", name="Moments")
    expect(grid).to_be_focused(timeout=WAIT)
    press("t")
    expect(grid.get_by_role("row", selected=True)).to_contain_text("request", timeout=WAIT)
    press("2")
    expect(page.get_by_role("tabpanel")).to_contain_text("exactly what was sent", timeout=WAIT)
    assert pressed <= 12, pressed
    page.keyboard.press("k")
    fork = page.get_by_role("button", name="Run the fork")
    expect(fork).to_be_visible(timeout=WAIT)
    tab_to(page, fork)
    press("Enter")
    expect(page.get_by_role("heading", name="-fork1")).to_be_visible(timeout=WAIT)
    expect(page.locator(".said")).to_contain_text("Stopped", timeout=WAIT)
    page.keyboard.press("c")
    expect(page.locator(".said")).to_contain_text("the run is over", timeout=WAIT)
    page.get_by_role("link", name="Compare it").click()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible(timeout=WAIT)
    expect(page.get_by_role("region", name="Visits")).to_contain_text(
        "before_agent 1", timeout=WAIT
    )
    page.get_by_role("link", name="Traces").click()
    page.get_by_role("region", name="Runs").get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="Trace")).to_be_visible(timeout=WAIT)
    check(page)


def test_hostile_texts_are_texts_in_every_view(
    served: Served, token: str, watched: Watched
) -> None:
    thread = asked(served, token, "odd", "".join(HOSTILE))
    page = watched.opened(token)
    expect(page.get_by_role("link", name="Run of").first).to_be_visible(timeout=WAIT)
    check(page)
    page.goto(f"{served.url}/ui/#/threads/{thread}")
    grid, panel = page.get_by_role("grid", name="Moments"), page.get_by_role("tabpanel")
    expect(grid.get_by_role("row").first).to_be_visible(timeout=WAIT)
    grid.press("End")
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        expect(panel).not_to_contain_text("Loading", timeout=WAIT)
        check(page)
    page.get_by_role("tab", name="State").click()
    for text in HOSTILE:
        expect(panel.get_by_text(text, exact=True).first).to_be_attached(timeout=WAIT)
    page.get_by_role("searchbox").fill("<script")
    page.get_by_role("searchbox").press("Enter")
    expect(page.get_by_role("listitem").filter(has_text="<script").first).to_be_visible()
    check(page)
    assert page.evaluate("document.querySelectorAll('*').length") < 3_000
    grid.press("Home")
    grid.press(":")
    console = page.get_by_role("log")
    for line in ("p messages[0].content", f"break {HOSTILE[1]}", HOSTILE[0], "fork"):
        page.get_by_role("textbox", name="Command").fill(line)
        page.get_by_role("textbox", name="Command").press("Enter")
        expect(console).to_contain_text(line, timeout=WAIT)
    expect(page.get_by_role("button", name="Run the fork")).to_be_visible(timeout=WAIT)
    check(page)
    for view in (f"compare/{thread}/1/{thread}/1", "traces"):
        page.goto(f"{served.url}/ui/#/{view}")
        expect(page.locator("#app table")).to_be_visible(timeout=WAIT)
        check(page)


def test_hostile_texts_are_texts_in_chats_and_forms(
    served: Served, token: str, watched: Watched
) -> None:
    every = (*HOSTILE, *TRICKS)
    assert len(every) >= 60
    told = asked(served, token, "tells", "".join(every))
    waits = asked(served, token, "asks", TRICKS[0])
    page = watched.opened(token)
    page.goto(f"{served.url}/ui/#/chat/{told}")
    log = page.get_by_role("log")
    expect(log.locator(".markdown")).to_be_visible(timeout=WAIT)
    assert log.locator("a:not([href^=http])").count() == 0
    check(page)
    page.goto(f"{served.url}/ui/#/chat/{waits}")
    cards = log.locator("details.tool summary")
    expect(cards).to_have_count(len(every) // 4, timeout=WAIT)
    page.evaluate("document.querySelectorAll('details.tool').forEach(one => { one.open = true })")
    expect(log.locator(".inside")).to_have_count(len(every) // 4, timeout=WAIT)
    check(page)
    page.goto(f"{served.url}/ui/#/approvals")
    forms = page.locator(f'section.card:has(a[href="#/chat/{waits}"]) article')
    expect(forms).to_have_count(len(every) // 4, timeout=WAIT)
    forms.first.get_by_label("expression").fill(TRICKS[1] + HOSTILE[0])
    expect(page.get_by_role("list", name="What you changed")).to_contain_text("<script>")
    check(page)


def test_hostile_names_are_texts(served: Served, token: str, watched: Watched) -> None:
    """Names that the engine would refuse: whatever the server says is shown as a text."""
    every = (*HOSTILE, *TRICKS)
    watched.expected.append("status of 400")
    page = watched.opened(token)
    named = {"model": every[0], "tools": [*every], "hooks": [*every], "subagents": [*every]}
    agents = [{"agent_id": text, "system_prompt": text, "has_interrupt_on": text} for text in every]
    intercept(page, "**/v1/agents", lambda r: r.fulfill(json=[{**one, **named} for one in agents]))
    named |= {"status": every[1], "last_error": every[2], "last_access": "2026-01-01"}
    threads = [
        {**named, "steps": 1, "thread_id": f"t{n}", "title": text, "agent": text, "parent": text}
        for n, text in enumerate(every)
    ]
    intercept(page, "**/v1/threads?**", lambda route: route.fulfill(json=threads))
    asks = [
        {
            **{"id": f"q{n}", "interrupt_id": f"i{n}", "thread_id": "t0", "prompt": text},
            "kind": ("approval", "question")[n % 2],
            "options": [text, {"label": text}, {"type": "script"}],
            "value": {
                "tool": text,
                "args": {text: text, "x": [text]},
                "why": text,
                "agents": [text],
            },
        }
        for n, text in enumerate(every)
    ]
    intercept(page, "**/v1/threads/t0/approvals", lambda route: route.fulfill(json=asks))
    page.reload()  # what waits is looked for at once, and then when there is news
    of_agents = [f"agents/{quote(text)}" for text in TRICKS[:3]]
    for place in ("agents", "", "approvals", f"new/{HOSTILE[1]}", *of_agents):
        page.goto(f"{served.url}/ui/#/{place}")
        shown = page.get_by_role("alert") if "%" in place else page.get_by_text("window.owned")
        expect(shown.first).to_be_attached(timeout=WAIT)
        check(page)


def test_signs_that_hide_in_an_argument_are_shown(
    served: Served, token: str, watched: Watched
) -> None:
    """A text that turns the order of its signs, or hides some, could be approved as another one."""
    page = watched.opened(token)
    named = {"status": "waiting", "agent": "desk", "title": "x\u202e", "last_access": "2026-01-01"}
    threads = [{**named, "steps": 1, "thread_id": "t0"}]
    intercept(page, "**/v1/threads?**", lambda route: route.fulfill(json=threads))
    args = {
        "to": "anna@bank.example\u202e/moc.live//:ptth",
        "cc": "a\u200bb",
        "body": "שלום 👩‍👩‍👧\r\n",
    }
    value = {"tool": "send", "args": args}
    asks = {"id": "q", "interrupt_id": "i", "thread_id": "t0", "kind": "approval", "value": value}
    asks |= {"prompt": "", "options": []}
    intercept(page, "**/v1/threads/t0/approvals", lambda route: route.fulfill(json=[asks]))
    page.reload()
    page.goto(f"{served.url}/ui/#/approvals")
    form = page.get_by_role("article", name="send, 1 of 1 in x")
    expect(form.get_by_label("to")).to_have_value(f'"{args["to"]}"', timeout=WAIT)
    told = ['"anna@bank.example\\u{202e}/moc.live//:ptth"', '"a\\u{200b}b"']
    expect(form.locator(".fields pre")).to_have_text(told)


ODD = [
    {"$blob": "x"},
    {"$blob": "0" * 64, "$text": 5, "$chars": "9"},
    {"role": "x", "content": 1, "tool_calls": "text"},
    {"role": "x", "content": {"a": 1}, "tool_calls": [None, {"name": {"x": 1}}]},
    {"role": "x", "content": None, "name": {"type": "script", "props": {"children": "owned=1"}}},
    {"__proto__": {"x": 1}, "constructor": {"name": 1}, "$more": "x"},
]
"""Data of others that looks like what the page has forms for."""


def test_data_that_looks_like_the_pages_own_is_shown(
    served: Served, token: str, watched: Watched
) -> None:
    thread = asked(served, token, "default", "Look at odd data.")
    page = watched.opened(token)
    answer = {"path": "", "value": [*ODD, "after all of them"], "offset": 0, "total": 7}
    intercept(page, "**/state?*", lambda route: route.fulfill(json=answer))
    page.goto(f"{served.url}/ui/#/threads/{thread}")
    page.get_by_role("tab", name="State").click()
    expect(page.get_by_text("after all of them")).to_be_visible(timeout=WAIT)
    check(page)


def test_a_running_thread_is_followed_again_after_its_stream_broke_off(
    served: Served, token: str, watched: Watched
) -> None:
    thread = asked(served, token, "default", "Break off.")
    page = watched.opened(token)
    intercept(page, "**/stream?follow=*", lambda route: route.fulfill(body=""))
    with page.expect_request("**/stream?follow=*"):
        page.goto(f"{served.url}/ui/#/threads/{thread}")
    with page.expect_request("**/stream?follow=*"):
        expect(page.get_by_role("heading", name="Break off.")).to_be_visible(timeout=WAIT)


def check(page: Page) -> None:
    assert page.evaluate("window.owned") is None
    assert page.locator(f"#app :is({MARKUP})").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 900, 1_600])
def test_nothing_is_wider_than_the_window(
    served: Served, token: str, chromium: Browser, width: int, scheme: Any
) -> None:
    thread = asked(served, token, "default", "How wide is it?" + "x" * 300)
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    made = Watched(context, served)
    page = made.opened(token)
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) <= width
    page.goto(f"{served.url}/ui/#/threads/{thread}")
    panel = page.get_by_role("tabpanel")
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        expect(panel).not_to_contain_text("Loading", timeout=WAIT)
        assert page.evaluate(wide) <= width, tab
    context.close()
    made.check()
