"""Pictures of the page in the browser: each view, of runs of the agent that `wick init` writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import Page, expect

from tests.server.support import Served
from tests.support.browser import PATH, WAIT, launched
from tests.support.site import SiteError
from wick_graph.cli.init import write_files

VIEWS: Final = {
    "page-threads": ("", ".row"),
    "page-agents": ("agents/default", "svg.graph"),
    "page-chat": ("chat/{first}", ".theirs"),
    "page-approvals": ("approvals", "article"),
    "page-run": ("threads/{first}/21", ".change"),
    "page-graph": ("threads/{first}/21", "svg.graph .here"),
    "page-compare": ("compare/{first}/1/{first}-fork1/2", ".compared"),
    "page-traces": ("traces", ".listed"),
    "page-gateway": ("gateway", "[aria-pressed=true]"),
}
"""By the names of their pictures: the view, and what is there once it is whole."""

TALK: Final = (
    'Where is my order? find_order(number="A-17")',
    'Pay it back, please. refund(number="A-17", amount=80)',
)


def made() -> dict[str, bytes]:
    """Return the pictures by their places on the site.

    Raises:
        SiteError: There is no Chromium.
    """
    if PATH is None:
        raise SiteError("the pictures of the page need Debian's chromium; install it")
    with TemporaryDirectory() as folder, served(Path(folder)) as server, launched() as browser:
        token = server.wick("token", "create", "--scope", "run,approve,debug,admin")
        first, _ = [run(server, token, text) for text in TALK]
        page = browser.new_page(viewport={"width": 1_280, "height": 800})
        page.goto(f"{server.url}/ui/")
        page.get_by_label("Access token").fill(token)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Threads")).to_be_visible(timeout=WAIT)
        taken = {"page-debugger": forked(page, first)}
        taken |= {name: taken_of(page, name, first) for name in VIEWS}
    return {f"pictures/{name}.png": data for name, data in taken.items()}


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    write_files(folder)
    server = Served(folder, ("--host", "127.0.0.1", "--trust"), {"WICK_MODEL": "scripted:demo"})
    try:
        yield server.start()
    finally:
        if server.process is not None:
            server.process.kill()
            server.process.communicate()


def run(server: Served, token: str, text: str) -> str:
    with server.http(token) as http:
        body = {"messages": [{"role": "user", "content": text}]}
        return str(http.post("/agents/default/invoke", json=body).json()["thread_id"])


def show(page: Page, view: str) -> None:
    page.evaluate("place => { location.hash = place }", f"#/{view}")
    expect(page.locator("main h1").first).to_be_visible(timeout=WAIT)
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=WAIT)


def forked(page: Page, thread: str) -> bytes:
    """Run a fork of a thread, for the comparison; return the picture of what it will execute."""
    show(page, f"threads/{thread}/11")
    page.get_by_role("grid", name="Moments").press("k")
    fork = page.get_by_role("button", name="Run the fork")
    expect(fork).to_be_visible(timeout=WAIT)
    taken = page.screenshot()
    fork.click()
    expect(page.get_by_role("heading", name="-fork1")).to_be_visible(timeout=WAIT)
    page.get_by_role("grid", name="Moments").press("c")
    expect(page.locator(".said")).to_contain_text("the run is over", timeout=WAIT)
    return taken


def taken_of(page: Page, name: str, thread: str) -> bytes:
    view, whole = VIEWS[name]
    show(page, view.format(first=thread))
    if name == "page-graph":
        page.get_by_role("tab", name="Graph").click()
    expect(page.locator(whole).first).to_be_visible(timeout=WAIT)
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=WAIT)
    return page.screenshot()
