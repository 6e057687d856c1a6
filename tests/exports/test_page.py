"""The page: whole, harmless, and working from a disk in a real browser."""

from __future__ import annotations

import cProfile
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.journal.support import agent_of
from tests.source import PACKAGE
from tests.support import axe
from tests.support.browser import PATH, launched
from wick_graph import tool
from wick_graph.exports.page import as_page
from wick_graph.exports.plain import LONGEST, Hider
from wick_graph.journal import Journal
from wick_graph.picture import picture_of
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, call

ATTACK = (
    "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
    "<!--<script> ]]> \u2028 &lt;b&gt; ${1} \\u003c"
)


def page_of(journal: Journal) -> str:
    return as_page(journal, Hider.of(journal))


def test_the_page_loads_nothing(journal: Journal) -> None:
    agent, _ = agent_of(False)
    page = as_page(journal, Hider.of(journal), None, picture_of(agent.graph))
    assert '"layout":{' in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    outside = re.findall(r"""(?:src|href)\s*=\s*["'][^"'#]|@import|url\((?!#)""", page)
    assert outside == []


def attacked(saver: SqlSaver) -> Journal:
    @tool(name="look")
    def look(where: str) -> str:
        """Look."""
        return ATTACK

    model = ScriptedModel([call("look", where=ATTACK), ATTACK])
    agent, _ = agent_of(saver, hooks=[], tools=[look], model=model)
    agent.invoke(ATTACK, thread_id="x")
    return Journal(saver, "x")


def test_no_value_is_markup(saver: SqlSaver) -> None:
    page = page_of(attacked(saver))
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert "<!--" not in page
    assert "document.title='owned'" in page  # as data


def test_no_line_shows_what_a_field_hides(saver: SqlSaver) -> None:
    @tool(name="enter")
    def enter(password: str) -> str:
        """Enter."""
        return "in"

    model = ScriptedModel([call("enter", password="open-sesame"), "ok"])
    agent, _ = agent_of(saver, hooks=[], tools=[enter], model=model)
    agent.invoke("?", thread_id="s")
    assert "open-sesame" not in page_of(Journal(saver, "s"))


def test_a_huge_value_is_cut_and_says_so(saver: SqlSaver) -> None:
    @tool(name="look")
    def look() -> str:
        """Look."""
        return "x" * 70_000

    model = ScriptedModel([call("look"), "ok"])
    agent, _ = agent_of(saver, hooks=[], tools=[look], model=model)
    agent.invoke("?", thread_id="h")
    page = page_of(Journal(saver, "h"))
    assert "x" * LONGEST in page
    assert "x" * (LONGEST + 1) not in page
    assert "… (70,000 characters in all)" in page


@pytest.mark.parametrize("text", ["§1", "§", "§ 5 of the contract, which is long enough to share"])
def test_a_text_that_looks_like_a_place_is_itself(
    saver: SqlSaver, tmp_path: Path, text: str
) -> None:
    @tool(name="look")
    def look(where: str) -> str:
        """Look."""
        return "seen"

    model = ScriptedModel([call("look", where=text), "ok"])
    agent, _ = agent_of(saver, hooks=[], tools=[look], model=model)
    agent.invoke("?", thread_id="p")
    with shown_in_a_browser(page_of(Journal(saver, "p")), tmp_path) as page:
        at = f"/threads/p/moments/{Journal(saver, 'p').last()}/state"
        state = page.evaluate(f"page['file.js'].ask('{at}')")
    [called] = [one for one in state["value"]["messages"] if one.get("tool_calls")]
    assert called["tool_calls"][0]["args"] == {"where": text}


def chain_of(turns: int, saver: SqlSaver) -> Journal:
    @tool(name="look")
    def look(at: int) -> str:
        """Look."""
        return f"seen {at}"

    model = ScriptedModel([*(call("look", at=at) for at in range(turns)), "done"])
    agent, _ = agent_of(saver, hooks=[], tools=[look], model=model, max_iterations=turns + 2)
    agent.invoke("look", thread_id=f"{turns}")
    return Journal(saver, f"{turns}")


def test_the_cost_grows_with_the_number_of_moments(saver: SqlSaver) -> None:
    spent = []
    for turns in (30, 120):
        journal = chain_of(turns, saver)
        hider = Hider.of(journal)
        as_page(journal, hider)  # so that what is done once is done
        counted = cProfile.Profile()
        counted.runcall(as_page, journal, hider)
        spent.append(sum(entry.callcount for entry in counted.getstats()) / journal.last())
    assert spent[1] < spent[0] * 1.1, spent


def test_a_thread_without_a_journal_says_so(saver: SqlSaver, tmp_path: Path) -> None:
    agent, _ = agent_of(saver, journal="off")
    agent.invoke("add", thread_id="v")
    page = page_of(Journal(saver, "v"))
    assert '"moments":[]' in page
    with shown_in_a_browser(page, tmp_path) as browser:
        expect(browser.get_by_text("Nothing is recorded in this thread.")).to_be_visible()


def opened(page: str, tmp_path: Path, at: str = "") -> str:
    """Return what a browser makes of the page, from the disk and with no network."""
    assert PATH is not None, "install Debian's chromium-headless-shell, as .ci/run does"
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            PATH,
            *(
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--host-resolver-rules=MAP * ~NOTFOUND",
            ),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000"),
            *("--dump-dom", f"{path.as_uri()}{at}"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout


def test_a_browser_shows_it_from_the_disk(journal: Journal, tmp_path: Path) -> None:
    shown = opened(page_of(journal), tmp_path, "#55,Request")
    assert f'aria-rowcount="{journal.last()}"' in shown
    assert "62 moments" in shown
    assert "added by guard" in shown
    assert "exactly what was sent" in shown


def test_an_attack_is_shown_and_not_run(saver: SqlSaver, tmp_path: Path) -> None:
    shown = opened(page_of(attacked(saver)), tmp_path, "#9,State")
    assert "<title>x, recorded</title>" in shown
    assert "<img" not in shown
    assert "&lt;img src=x onerror=" in shown


def test_it_is_made_of_the_modules_of_the_served_page(journal: Journal) -> None:
    page = page_of(journal)
    for name in ("run", "inspector", "values", "lanes", "graph"):
        text = (PACKAGE / f"server/page/small/{name}.js").read_text("utf-8")
        body = text.rpartition('.js";')[2].replace("export ", "")
        assert body in page, name
    assert page.count("<script") == 2
    assert not re.search(r"\b(?:import|export)\s*[{*]", page)


@contextmanager
def shown_in_a_browser(page: str, tmp_path: Path, at: str = "") -> Iterator[Page]:
    """Show the page from the disk; a request, a refusal or an error fails."""
    path = tmp_path / "shown.html"
    path.write_text(page, encoding="utf-8")
    said: list[str] = []
    with launched() as browser:
        context = browser.new_context(viewport={"width": 1_280, "height": 900})
        context.on("request", lambda request: said.append(request.url))
        context.on("console", lambda message: said.append(message.text))
        context.on("weberror", lambda error: said.append(str(error.error)))
        shown = context.new_page()
        shown.goto(f"{path.as_uri()}{at}")
        yield shown
    assert said == [path.as_uri()]


def test_a_file_answers_as_the_server_does(journal: Journal, tmp_path: Path) -> None:
    agent, _ = agent_of(False)
    made = as_page(journal, Hider.of(journal), None, picture_of(agent.graph))
    with shown_in_a_browser(made, tmp_path) as page:
        grid, panel = page.get_by_role("grid", name="Moments"), page.get_by_role("tabpanel")
        chosen = grid.get_by_role("row", selected=True)
        expect(chosen).to_contain_text("tool add")  # the first error
        for key, text in (("s", "node tools"), ("M", "node tools"), ("t", "model"), ("C", "run")):
            grid.press(key)
            expect(chosen).to_contain_text(text)
        grid.press("m")
        expect(panel).to_contain_text("be brief")  # what the step changed
        for tab, text in {
            "Request": "added by todo",
            "State": "messages",
            "Moment": "before_agent",
            "Graph": "modify_request",
            "Lanes": "node",
            "Route": "the reply calls 3 tool(s)",
            "Tokens": "73",
        }.items():
            page.get_by_role("tab", name=tab).click()
            expect(panel).to_contain_text(text)
            page.evaluate(axe.FILE.read_text("utf-8"))
            found = page.evaluate("async () => (await axe.run(document)).violations")
            assert [one["id"] for one in found] == [], tab
        page.get_by_role("searchbox").fill("13!")
        page.get_by_role("searchbox").press("Enter")
        page.get_by_role("listitem").get_by_role("button").first.click()
        expect(chosen).to_contain_text("wrap_tool_call")
        assert page.url.rpartition("#")[2].isdigit()


def test_a_file_of_one_run_begins_there(saver: SqlSaver, tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two."])
    agent, _ = agent_of(saver, hooks=[], model=model)
    agent.invoke("first", thread_id="r")
    agent.invoke("second", thread_id="r")
    journal = Journal(saver, "r")
    begins = journal.run(2).first
    with shown_in_a_browser(as_page(journal, Hider.of(journal), 2), tmp_path) as page:
        grid = page.get_by_role("grid", name="Moments")
        expect(grid.get_by_role("row", selected=True)).to_contain_text("run adder")
        expect(grid.get_by_role("row").first).to_contain_text(f"{begins}")
        grid.press("End")
        expect(grid.get_by_role("row", selected=True)).to_contain_text(f"{journal.last()}")
