"""A browser whose requests, errors and dialogs are noted, and texts that are hostile to a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sized
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.server.support import Served
from tests.support.browser import WAIT, launched

HOSTILE = (
    "<script>window.owned=1</script>",
    "<img src=x onerror=window.owned=1>",
    "<svg onload=window.owned=1>",
    "<svg><script>window.owned=1</script></svg>",
    "<iframe srcdoc='<script>parent.owned=1</script>'></iframe>",
    "<a href='javascript:window.owned=1'>x</a>",
    "javascript:window.owned=1",
    "</pre><script>window.owned=1</script>",
    "</script><script>window.owned=1</script>",
    "<body onload=window.owned=1>",
    "<details open ontoggle=window.owned=1>x</details>",
    "<input autofocus onfocus=window.owned=1>",
    "<object data='javascript:window.owned=1'></object>",
    "<embed src='javascript:window.owned=1'>",
    "<math><mtext><img src=x onerror=window.owned=1></mtext></math>",
    "<style>@import 'http://127.0.0.1:9/x.css';</style>",
    "<link rel=stylesheet href='http://127.0.0.1:9/x.css'>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<base href='http://127.0.0.1:9/'>",
    "<form action='http://127.0.0.1:9/'><button>x</button></form>",
    "![x](http://127.0.0.1:9/x.png)",
    "[x](javascript:window.owned=1)",
    "${window.owned=1} {{constructor.constructor('window.owned=1')()}}",
    '"><img src=x onerror=window.owned=1>',
    "' onmouseover=window.owned=1 x='",
    "<template><script>window.owned=1</script></template>",
)
"""Texts that would run as code if one of them were ever read as markup."""

TRICKS = (
    "[a](JaVaScRiPt:window.owned=1)",
    "[b]( javascript:window.owned=1)",
    "[c](java\tscript:window.owned=1)",
    "[d](data:text/html,<script>parent.owned=1</script>)",
    "[e](vbscript:window.owned=1)",
    "[f](//127.0.0.1:9/x)",
    "[g](&#106;avascript:window.owned=1)",
    "[h](%6Aavascript:window.owned=1)",
    "[i](\x01javascript:window.owned=1)",
    "[![x](http://127.0.0.1:9/y.png)](javascript:window.owned=1)",
    "[j]: javascript:window.owned=1\n\n[j]",
    "<javascript:window.owned=1>",
    "![<img src=x onerror=window.owned=1>](x)",
    "![x](data:image/svg+xml,<svg onload=parent.owned=1>)",
    "# <img src=x onerror=window.owned=1>",
    "> <script>window.owned=1</script>",
    "- <img src=x onerror=window.owned=1>",
    "| <img src=x onerror=window.owned=1> | b |\n|---|---|\n| <svg onload=window.owned=1> | d |",
    "```html\n<script>window.owned=1</script>\n```",
    '```"><img src=x onerror=window.owned=1>\nx\n```',
    "`<img src=x onerror=window.owned=1>`",
    "**<img src=x onerror=window.owned=1>**",
    "_<script>window.owned=1</script>_",
    "~~<iframe src=javascript:parent.owned=1></iframe>~~",
    'http://127.0.0.1:9/"onmouseover=window.owned=1',
    "http://127.0.0.1:9/'><script>window.owned=1</script>",
    "\\<script>window.owned=1\\</script>",
    "&lt;script&gt;window.owned=1&lt;/script&gt;",
    "&#60;script&#62;window.owned=1&#60;/script&#62;",
    "\u003cscript\u003ewindow.owned=1\u003c/script\u003e",
    "\ufeff<script>window.owned=1</script>",
    "<scr\u0000ipt>window.owned=1</script>",
    "<ScRiPt>window.owned=1</sCrIpT>",
    "<<script>window.owned=1//<</script>",
    "<svg><animate onbegin=window.owned=1 attributeName=x dur=1s>",
    "<video><source onerror=window.owned=1></video>",
    "<audio src=x onerror=window.owned=1>",
    "<marquee onstart=window.owned=1>x</marquee>",
    "<isindex type=image src=1 onerror=window.owned=1>",
    "<noscript><p title='</noscript><img src=x onerror=window.owned=1>'>",
    "<textarea></textarea><img src=x onerror=window.owned=1>",
    "<title></title><script>window.owned=1</script>",
)
"""Tricks of Markdown and of encodings."""

MARKUP = (
    "script, img, iframe, object, embed, style, link, meta, base, math, template, a[href^=java]"
)


class Watched:
    """A browser whose requests, errors and dialogs are noted."""

    def __init__(self, context: BrowserContext, served: Served) -> None:
        self.context, self.served = context, served
        self.foreign: list[str] = []
        self.said: list[str] = []
        # Before the first sign-in, and for what is not recorded of a moment.
        self.expected = ["status of 401", "status of 404"]
        context.set_default_timeout(WAIT)
        context.on("request", self._request)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.said.append(str(error.error)))
        context.on("dialog", self._dialog)

    def _request(self, request: Any) -> None:
        if not request.url.startswith((f"{self.served.url}/", "data:,")):
            self.foreign.append(request.url)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.said.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.said.append(dialog.message)
        dialog.dismiss()

    def opened(self, token: str) -> Page:
        page = self.context.new_page()
        page.goto(f"{self.served.url}/ui/")
        page.get_by_label("Access token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Threads")).to_be_visible(timeout=WAIT)
        return page

    def check(self) -> None:
        assert self.foreign == []
        assert [text for text in self.said if not any(e in text for e in self.expected)] == []


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until something has the focus."""
    for _ in range(80):
        if wanted.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {wanted}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium."""
    with launched() as browser:
        yield browser


@pytest.fixture
def watched(chromium: Browser, served: Served) -> Iterator[Watched]:
    """A browser of a test's own, before the server of its module."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    made = Watched(context, served)
    yield made
    context.close()
    made.check()


def asked(served: Served, token: str, agent: str, text: str) -> str:
    """Have an agent answer in a new thread, and return the thread."""
    with served.http(token) as http:
        body = {"messages": [{"role": "user", "content": text}]}
        done = http.post(f"/agents/{agent}/invoke", json=body)
        assert done.status_code == 200, done.text
        return str(done.json()["thread_id"])


def intercept(page: Page, what: str | re.Pattern[str], answer: Any, **more: Any) -> None:
    """Intercept what a page that is open asks for from now on.

    Chromium says that it routes before each of the page's requests is: a request that follows at
    once may reach the server. So the page asks for what only a route answers.
    """
    page.route("**/routed", lambda it: it.fulfill(body="yes"))
    page.route(what, answer, **more)
    for _ in range(WAIT // 50):
        if page.evaluate("fetch('routed').then((it) => it.text())") == "yes":
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{what} is not routed")


def come(page: Page, held: Sized) -> None:
    """Wait until a route of the page holds something; the browser goes on meanwhile."""
    for _ in range(WAIT // 50):
        if held:
            return
        page.wait_for_timeout(50)
    raise AssertionError("the page did not ask")


def to(page: Page, place: str) -> None:
    """Go to a place of the page."""
    page.evaluate("place => { location.hash = place }", place)
