"""Chat, approvals, agents and threads in Debian's Chromium: streams, forks, crashes, two tabs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import APIResponse, Locator, Page, Route, expect

from tests.server.browsing import (
    Watched,
    asked,
    chromium,
    come,
    intercept,
    tab_to,
    to,
    watched,
)
from tests.server.support import ENDLESS, Served, serving
from tests.support.browser import WAIT
from tests.support.often import BY_NIGHT
from tests.support.waiting import until

__all__ = ["chromium", "watched"]

pytestmark = pytest.mark.xdist_group("page_chat")  # they share a browser and a server


def calculate(text: str) -> dict[str, Any]:
    return {"tool": "calculate", "args": {"expression": text}}


SUM = {"text": "Let me **see**.", "calls": [calculate("21*2"), calculate("1/0")]}
THREE = {"text": "Three.", "calls": [calculate(f"{n}+1") for n in range(3)]}
TODOS = [{"title": "Look around", "status": "done"}, {"title": "Go on", "status": "pending"}]
PLAN = {"tool": "write_todos", "args": {"todos": TODOS}}
TASK = {"tool": "delegate_to_agent", "args": {"agent": "helper", "task": "Count."}}
AGENTS = """\
store: sqlite:///wick.db
defaults: {ttl: 7d, tools: [calculate]}
agents:
  talker: {model: 'scripted:talker.yaml', max_iterations: 9}
  endless: {model: 'scripted:endless.yaml'}
  careful: {model: 'scripted:careful.yaml', approvals: {calculate: true}}
  slow: {model: 'scripted:slow.yaml', approvals: {calculate: true}}
  steady: {model: 'scripted:steady.yaml'}
  long: {model: 'scripted:long.yaml', max_iterations: 99}
  helper: {model: 'scripted:helper.yaml'}
  boss: {model: 'scripted:boss.yaml', tools: [], subagents: {helper: {description: counts}}}
"""
SCRIPTS: dict[str, dict[str, Any]] = {
    "talker": {
        "steps": [SUM, "It is 42.", {"text": "Planned.", "calls": [PLAN]}, "Done.", "More."]
    },
    "careful": {"steps": [THREE, "All three are done."]},
    "slow": {
        "chunk_delay": 0.2,
        "steps": [{"calls": [calculate("21*2")]}, " ".join(f"word{n}" for n in range(500))],
    },
    "steady": {
        "chunk_delay": 0.1,
        "steps": [{"calls": [calculate("21*2")]}, " ".join(f"word{n}" for n in range(40))],
    },
    "long": {
        "steps": [
            *({"text": f"Step {n}.", "calls": [calculate(f"{n}")]} for n in range(60)),
            "End.",
        ]
    },
    "helper": {
        "chunk_delay": 0.01,
        "steps": [{"text": "Counting now.", "calls": [calculate("1+1")]}, "Two."],
    },
    "boss": {"steps": [{"text": "I delegate.", "calls": [TASK]}, "It said two."]},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("chat")
    texts: Any = {name: json.dumps(script) for name, script in SCRIPTS.items()}
    with serving(folder, "--host", "127.0.0.1", agents=AGENTS, endless=ENDLESS, **texts) as made:
        yield made


@pytest.fixture(scope="module")
def token(served: Served) -> str:
    return served.wick("token", "create", "--scope", "run,approve,debug")


def log(page: Page) -> Locator:
    return page.get_by_role("log", name="Messages")


def say(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_label("Message", exact=True).press("Enter")


def thread_in(page: Page) -> str:
    page.wait_for_url(re.compile("#/chat/"))
    return page.url.rpartition("/")[2]


def test_a_chat_from_an_agent_to_a_fork(token: str, watched: Watched) -> None:
    page = watched.opened(token)
    page.get_by_role("link", name="Agents").click()
    page.get_by_role("link", name="talker").first.click()
    expect(page.locator("svg .box").first).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("wrap_tool_call").first).to_be_visible()
    page.get_by_role("link", name="Start a chat").click()
    say(page, "What is <b>21*2</b>?")
    first = thread_in(page)
    expect(log(page)).to_contain_text("It is 42.", timeout=WAIT)
    expect(log(page).locator("strong")).to_have_text("see")
    expect(log(page)).to_contain_text("What is <b>21*2</b>?")
    card = log(page).locator("details.tool").nth(1)
    expect(card).to_contain_text(re.compile(r"failed · [\d.]+ m?s"), timeout=WAIT)
    card.locator("summary").click()
    expect(card).to_contain_text("division by zero")
    say(page, "Plan it.")
    expect(page.get_by_role("complementary")).to_contain_text("Look around: done", timeout=WAIT)
    expect(page.get_by_text("○ idle")).to_be_visible(timeout=WAIT)
    log(page).get_by_role("button", name="Edit: Plan it.").click()
    page.get_by_label("Say this in a fork").fill("Plan it otherwise.")
    page.get_by_role("button", name="Send in a fork").click()
    expect(log(page)).to_contain_text("Plan it otherwise.", timeout=WAIT)
    expect(page.get_by_text("○ idle")).to_be_visible(timeout=WAIT)
    expect(log(page)).to_contain_text("It is 42.")
    expect(log(page).get_by_text("Plan it.", exact=True)).to_have_count(0)
    assert thread_in(page) != first
    page.get_by_role("link", name="The thread that made this one").click()
    expect(log(page).get_by_text("Plan it.", exact=True)).to_be_visible(timeout=WAIT)


def test_a_run_is_stopped_and_a_message_waits_for_its_end(
    token: str, watched: Watched, served: Served
) -> None:
    page = watched.opened(token)
    to(page, "#/new/endless")
    say(page, "Begin.")
    thread = thread_in(page)
    expect(log(page)).to_contain_text("word5", timeout=WAIT)
    say(page, "And then this.")
    expect(page.get_by_text("After this run: And then this.")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(log(page)).to_contain_text("And then this.", timeout=WAIT)
    page.get_by_label("Message", exact=True).fill("Rather this.")
    page.get_by_label("While it runs").select_option("stop it first")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(log(page)).to_contain_text("Rather this.", timeout=WAIT)
    page.get_by_role("button", name="Stop").click()
    with served.http(token) as http:

        def found() -> list[str]:
            return [run["status"] for run in http.get(f"/threads/{thread}/runs").json()]

        until(lambda: found() == ["cancelled"] * 3, lambda: str(found()))
    expect(page.get_by_text("Stop", exact=True)).to_have_count(0, timeout=WAIT)


def test_what_a_sub_agent_does_is_under_its_call(token: str, watched: Watched) -> None:
    page = watched.opened(token)
    to(page, "#/new/boss")
    say(page, "Go.")
    inner = page.get_by_role("group", name="What delegate_to_agent does")
    expect(inner).to_contain_text("Counting now.", timeout=WAIT)
    expect(log(page)).to_contain_text("It said two.", timeout=WAIT)
    page.get_by_role("link", name="Threads").click()
    mine = page.get_by_role("link", name="Go.", exact=True)
    page.get_by_role("listitem").filter(has=mine).get_by_text("1 thread below").click()
    below = page.get_by_role("link", name="Count.", exact=True)
    expect(below).to_be_visible(timeout=WAIT)


def test_a_long_thread_comes_in_pages(served: Served, token: str, watched: Watched) -> None:
    thread = asked(served, token, "long", "Sixty steps.")
    page = watched.opened(token)
    to(page, f"#/chat/{thread}")
    expect(log(page)).to_contain_text("End.", timeout=WAIT)
    expect(log(page)).not_to_contain_text("Step 5.")
    page.get_by_role("button", name="Show earlier messages").click()
    expect(log(page)).to_contain_text("Step 30.")
    page.get_by_role("button", name="Show earlier messages").click()
    expect(log(page)).to_contain_text("Sixty steps.")
    assert page.evaluate("document.querySelectorAll('*').length") < 3_000


def test_what_is_opened_while_the_thread_loads_again_stays(
    served: Served, token: str, watched: Watched
) -> None:
    thread = asked(served, token, "long", "Sixty steps, and one.")
    page = watched.opened(token)
    to(page, f"#/chat/{thread}")
    expect(log(page)).to_contain_text("End.", timeout=WAIT)
    held: list[Route] = []
    last = re.compile(r"/state\?.*offset=7\d")
    intercept(page, last, lambda route: held.append(route), times=1)
    with served.http(token) as http:
        said = {"messages": [{"role": "user", "content": "One."}], "thread_id": thread}
        assert http.post("/agents/helper/invoke", json=said).status_code == 200
    come(page, held)
    page.get_by_role("button", name="Show earlier messages").click()
    page.wait_for_timeout(500)
    with page.expect_response(last):
        held[0].continue_()
    page.wait_for_timeout(500)
    expect(log(page)).to_contain_text("Step 30.")


def words(page: Page) -> list[int]:
    return [int(found) for found in re.findall(r"word(\d+)", log(page).inner_text())]


def test_a_killed_server_comes_back_and_no_event_is_there_twice(
    served: Served, token: str, watched: Watched
) -> None:
    page = watched.opened(token)
    to(page, "#/new/endless")
    say(page, "Begin.")
    expect(log(page)).to_contain_text("word20", timeout=WAIT)
    port = served.port
    watched.expected.append("net::ERR_")
    served.kill()
    expect(page.get_by_text("the server is not reached")).to_be_visible(timeout=WAIT)
    served.start(port=port)
    expect(page.get_by_text("the server is not reached")).to_have_count(0, timeout=WAIT)
    # The cookie ended with the server; the page asks for the token again, and goes on where it was.
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(log(page)).to_contain_text("word30", timeout=WAIT)
    seen = words(page)
    assert seen == [*range(len(seen))]
    assert len(log(page).locator("details.tool").all()) == 1
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0, timeout=WAIT)


TABS = 10 if BY_NIGHT else 4
"""A browser has six connections to a server: those of ten tabs that did not share would wait."""


def test_many_tabs_follow_a_run_by_one_stream(token: str, watched: Watched) -> None:
    streams: list[str] = []
    watched.context.on("request", lambda r: streams.extend([r.url] * ("/stream?" in r.url)))
    page = watched.opened(token)
    to(page, "#/new/endless")
    say(page, "Begin.")
    thread = thread_in(page)
    tabs = [page]
    for _ in range(TABS - 1):
        tabs.append(watched.context.new_page())
        tabs[-1].goto(f"{watched.served.url}/ui/#/chat/{thread}")
    for tab in tabs:
        expect(log(tab)).to_contain_text("word9", timeout=WAIT)
    before = len(streams)
    page.close()  # the one that reads
    last = tabs[-1]
    seen = max(words(last))
    expect(log(last)).to_contain_text(f"word{seen + 5} ", timeout=WAIT)
    found = words(last)
    assert found == [*range(len(found))]
    assert len(streams) - before <= 3
    last.get_by_role("button", name="Stop").click()
    for tab in tabs[1:]:
        expect(tab.get_by_text("Stop", exact=True)).to_have_count(0, timeout=WAIT)


def test_a_tab_takes_no_event_before_those_that_it_lacks(token: str, watched: Watched) -> None:
    page = watched.opened(token)
    to(page, "#/new/endless")
    say(page, "Begin.")
    thread = thread_in(page)
    expect(log(page)).to_contain_text("word9", timeout=WAIT)
    # A stream that is further on, as another tab passes it on while this one joins.
    page.evaluate(
        """thread => {
          const secret = sessionStorage["wick-secret"].slice(0, 8);
          const data = {event: "on_chat_model_stream", data: {delta: " AHEAD "}};
          const ahead = {thread_id: thread, number: 1e6 + 1, data};
          const event = {event: "run", prior: 1e6, data: ahead};
          new BroadcastChannel(`wick-stream-${secret}`).postMessage({events: [event]});
        }""",
        thread,
    )
    seen = max(words(page))
    expect(log(page)).to_contain_text(f"word{seen + 5} ", timeout=WAIT)
    expect(log(page)).not_to_contain_text("AHEAD")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stop", exact=True)).to_have_count(0, timeout=WAIT)


def test_a_call_that_was_approved_goes_on_in_its_own_card(token: str, watched: Watched) -> None:
    page = watched.opened(token)
    to(page, "#/new/slow")
    say(page, "How much?")
    page.get_by_role("button", name="Approve").click()
    expect(log(page)).to_contain_text("word3", timeout=WAIT)  # the run goes on
    card = log(page).locator("details.tool")
    expect(card).to_have_count(1)
    expect(card).to_contain_text("done")
    page.evaluate(  # the chat loads the thread again, as after a gap of news
        """() => new BroadcastChannel(
          "wick-stream-" + sessionStorage["wick-secret"].slice(0, 8)
        ).postMessage({events: [{event: "news", data: {event: "gap"}}]})"""
    )
    expect(log(page)).to_contain_text("word6", timeout=WAIT)
    expect(card).to_have_count(1)
    expect(card).to_contain_text("done")
    page.reload()  # and whoever comes to it in the middle
    expect(log(page)).to_contain_text("word9", timeout=WAIT)
    expect(card).to_have_count(1)
    expect(card).to_contain_text("done")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stop", exact=True)).to_have_count(0, timeout=WAIT)


def test_a_call_that_is_open_stays_open_when_its_run_ends(token: str, watched: Watched) -> None:
    page = watched.opened(token)
    to(page, "#/new/steady")
    say(page, "How much?")
    card = log(page).locator("details.tool")
    card.locator("summary").click(timeout=WAIT)
    expect(card.locator(".inside")).to_contain_text("42", timeout=WAIT)
    expect(log(page)).not_to_contain_text("word39", timeout=1)  # it is open while the run goes on
    expect(page.get_by_text("○ idle")).to_be_visible(timeout=WAIT)
    expect(log(page)).to_contain_text("word39")
    expect(card.locator(".inside")).to_contain_text("42")


def test_three_approvals_by_keyboard_alone(served: Served, token: str, watched: Watched) -> None:
    thread = asked(served, token, "careful", "Three by keyboard.")
    page = watched.opened(token)
    to(page, "#/approvals")
    box = page.get_by_role("article", name=re.compile("in Three by keyboard."))
    expect(box).to_have_count(3, timeout=WAIT)
    tab_to(page, box.first.get_by_role("button", name="Approve"))
    page.keyboard.press("a")
    expect(box.nth(1).get_by_role("button", name="Approve")).to_be_focused()
    page.keyboard.press("Enter")
    expect(box.nth(2).get_by_role("button", name="Approve")).to_be_focused()
    page.keyboard.press("r")
    tab_to(page, box.nth(2).get_by_label("Reason"))
    page.keyboard.type("Two are enough.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(box).to_have_count(0, timeout=WAIT)
    to(page, f"#/chat/{thread}")
    expect(log(page)).to_contain_text("All three are done.", timeout=WAIT)
    log(page).locator("details.tool summary").nth(2).click()
    expect(log(page)).to_contain_text(
        "the user rejected this call; it was not run: Two are enough."
    )


@pytest.mark.parametrize("fails", [False, True])
def test_a_late_answer_takes_no_question_away(
    served: Served, token: str, watched: Watched, fails: bool
) -> None:
    watched.expected.append("status of 500")
    page = watched.opened(token)
    to(page, "#/approvals")
    late: list[tuple[Route, APIResponse]] = []

    def answer(route: Route) -> None:
        if late:
            route.continue_()
        else:
            late.append((route, route.fetch()))

    intercept(page, "**/threads?status=waiting*", answer)
    asked(served, token, "talker", "No question.")
    come(page, late)
    text = "Later than a failure." if fails else "Later than that."
    asked(served, token, "careful", text)
    box = page.get_by_role("article", name=re.compile(f"in {text}"))
    expect(box).to_have_count(3, timeout=WAIT)
    route, response = late[0]
    with page.expect_response("**/threads?status=waiting*"):
        if fails:
            route.fulfill(status=500, json={"error": "Too late."})
        else:
            route.fulfill(response=response)
    page.wait_for_timeout(500)
    expect(box).to_have_count(3)
    expect(page.get_by_text("Too late.")).to_have_count(0)


def test_a_chat_loads_without_its_approvals(served: Served, token: str, watched: Watched) -> None:
    """Such as those of an agent that cannot be built today."""
    watched.expected.append("status of 500")
    thread = asked(served, token, "careful", "Ask me.")
    page = watched.opened(token)
    refuse = {"status": 500, "json": {"error": "No tool calculate."}}
    intercept(page, f"**/threads/{thread}/approvals", lambda route: route.fulfill(**refuse))
    to(page, f"#/chat/{thread}")
    expect(log(page)).to_contain_text("Ask me.", timeout=WAIT)


def test_a_run_that_a_debugger_left_goes_on_from_the_chat(token: str, watched: Watched) -> None:
    page = watched.opened(token)
    to(page, "#/new")
    page.get_by_label("Agent").select_option("talker")
    page.get_by_label("Message", exact=True).fill("How much?")
    page.get_by_role("button", name="Run, held").click()
    page.wait_for_url(re.compile("#/threads/"))
    page.get_by_role("link", name="Chat", exact=True).click()
    expect(page.get_by_text("The run stopped: interrupted.")).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("waits for an answer.")).to_have_count(0)
    page.get_by_role("button", name="Go on", exact=True).click()
    expect(log(page)).to_contain_text("It is 42.", timeout=WAIT)
    expect(page.get_by_text("○ idle")).to_be_visible(timeout=WAIT)


def test_a_draft_survives_and_of_two_tabs_one_decides(
    served: Served, token: str, watched: Watched
) -> None:
    watched.expected += ["status of 409", "ERR_FAILED"]
    thread = asked(served, token, "careful", "Two tabs.")
    page = watched.opened(token)
    to(page, "#/approvals")
    name = re.compile("calculate, 1 of 3 in Two tabs.")
    field = page.get_by_role("article", name=name).get_by_label("expression")
    expect(field).to_have_attribute("title", re.compile("^Such as"))  # its schema has come
    field.fill("5*5")
    expect(page.get_by_role("list", name="What you changed")).to_contain_text("0+1")
    page.reload()
    card = page.get_by_role("article", name=name)
    expect(card.get_by_label("expression")).to_have_value("5*5", timeout=WAIT)
    expect(page.get_by_role("list", name="What you changed")).to_contain_text("5*5")
    card.get_by_role("button", name="Approve with changes").click()
    other = watched.context.new_page()
    other.goto(f"{served.url}/ui/#/approvals")
    rest = other.get_by_role("article", name=re.compile("in Two tabs."))
    expect(rest).to_have_count(3, timeout=WAIT)
    # What the second tab knows stays old: news of others do not reach it.
    intercept(other, "**/threads?status=waiting*", lambda route: route.abort())
    mine = page.get_by_role("article", name=re.compile("in Two tabs."))
    for nth in (1, 2):
        mine.nth(nth).get_by_role("button", name="Approve", exact=True).click()
    expect(mine).to_have_count(0, timeout=WAIT)
    with other.expect_response("**/resume") as late:
        for nth in range(3):
            rest.nth(nth).get_by_role("button", name="Approve", exact=True).click()
    assert late.value.status == 409
    expect(other.get_by_text("another decision was made already")).to_be_visible(timeout=WAIT)
    with served.http(token) as http:
        until(lambda: http.get(f"/threads/{thread}").json()["status"] == "idle", "it ends")
        messages = http.get(f"/threads/{thread}/state").json()["messages"]
    assert [m["content"] for m in messages if m["role"] == "tool"] == ["25", "2", "3"]


def test_threads_are_found_counted_and_deleted(
    served: Served, token: str, watched: Watched
) -> None:
    asked(served, token, "talker", "A needle in a haystack.")
    page = watched.opened(token)
    page.get_by_label("Find").fill("needle talker")
    name = page.get_by_role("link", name="A needle in a haystack.", exact=True)
    expect(page.get_by_role("status").get_by_text("1 thread")).to_be_visible(timeout=WAIT)
    expect(page.get_by_role("listitem")).to_contain_text("expires ")
    page.get_by_role("button", name="Cost of A needle").click()
    expect(page.get_by_role("listitem")).to_contain_text("2 calls, no price is known")
    page.get_by_role("button", name="Delete A needle").click()
    page.get_by_role("button", name="Keep").click()
    expect(name).to_be_visible()
    page.get_by_role("button", name="Delete A needle").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(name).to_have_count(0, timeout=WAIT)
    page.reload()
    expect(page.get_by_role("heading", name="Threads")).to_be_visible(timeout=WAIT)
    expect(name).to_have_count(0)


def test_no_list_that_crosses_a_deletion_brings_a_thread_back(
    served: Served, token: str, watched: Watched
) -> None:
    for text in ("Gone first.", "Gone next."):
        asked(served, token, "talker", text)
    page = watched.opened(token)

    def name(text: str) -> Locator:
        return page.get_by_role("link", name=text, exact=True)

    def deleted(text: str) -> None:
        page.get_by_role("button", name=f"Delete {text}").click(timeout=WAIT)
        page.get_by_role("button", name="Delete", exact=True).click()

    lists: list[tuple[Route, APIResponse]] = []
    intercept(
        page, "**/threads?limit=*", lambda route: lists.append((route, route.fetch())), times=1
    )
    asked(served, token, "talker", "It stays.")
    come(page, lists)
    deleted("Gone first.")
    expect(name("Gone first.")).to_have_count(0, timeout=WAIT)
    route, answer = lists[0]
    with page.expect_response("**/threads?limit=*"):
        route.fulfill(response=answer)
    expect(name("It stays.")).to_be_visible(timeout=WAIT)
    expect(name("Gone first.")).to_have_count(0)

    deletions: list[Route] = []
    intercept(page, re.compile("/threads/[^/]+$"), lambda route: deletions.append(route))
    deleted("Gone next.")
    come(page, deletions)
    asked(served, token, "talker", "It stays too.")
    expect(name("It stays too.")).to_be_visible(timeout=WAIT)
    expect(name("Gone next.")).to_be_visible()
    deletions[0].continue_()
    expect(name("Gone next.")).to_have_count(0, timeout=WAIT)
