"""Attacks on the page: other origins, hosts, ports, tenants; forms; ended and weak tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.server.support import Served, serving
from tests.source import PACKAGE
from wick_graph.config import AgentsFile
from wick_graph.engine.agent import Agent
from wick_graph.server.app import create_app
from wick_graph.server.sign_in import LASTS, LINK_LASTS, Signed, SignIns
from wick_graph.service.options import ServerOptions
from wick_graph.service.service import Service

pytestmark = pytest.mark.xdist_group("page_attacks")  # they share two servers

BASE = "/ui/api/v1"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
PAGE = PACKAGE / "server/page"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("page"), "--host", "127.0.0.1") as made:
        yield made


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of somebody else on another port."""
    with serving(tmp_path_factory.mktemp("other"), "--host", "127.0.0.1") as made:
        yield made


def token(served: Served, tenant: str = "anna", scope: str = "run,debug") -> str:
    return served.wick("token", "create", "--tenant", tenant, "--scope", scope)


class Browser:
    """What a browser that has signed in sends: a cookie, the secret and its origin."""

    def __init__(self, served: Served, given: str) -> None:
        self.served = served
        self.http = served.http()
        headers = {"Authorization": f"Bearer {given}", "Origin": served.url}
        made = self.http.post(f"{BASE}/sign-in", json={}, headers=headers)
        assert made.status_code == 200, made.text
        self.set_cookie = made.headers["set-cookie"]
        (self.cookie,) = (f"{n}={m.value}" for n, m in SimpleCookie(self.set_cookie).items())
        self.secret = made.json()["secret"]
        self.http.cookies.clear()

    def ask(self, path: str, method: str = "GET", **changed: Any) -> httpx.Response:
        """Send a request; a header that is None is left out."""
        headers = {
            "Cookie": self.cookie,
            "X-Wick-Secret": self.secret,
            **changed.pop("headers", {}),
        }
        if method != "GET":
            headers = {"Origin": self.served.url, "Content-Type": "application/json", **headers}
            changed.setdefault("content", "{}")
        sent = {name: value for name, value in headers.items() if value is not None}
        return self.http.request(method, f"{BASE}{path}", headers=sent, **changed)


@pytest.fixture(scope="module")
def anna(served: Served) -> Iterator[Browser]:
    made = Browser(served, token(served))
    yield made
    made.http.close()


@pytest.fixture(scope="module")
def thread(served: Served) -> str:
    with served.http(token(served)) as http:
        done = http.post("/agents/default/invoke", json=ASK)
        assert done.status_code == 200, done.text
        return str(done.json()["thread_id"])


@pytest.fixture(scope="module")
def routes(served: Served) -> list[tuple[str, str]]:
    """All routes that the page reaches, its own ones and the server's, by method and path."""
    with served.http(token(served)) as http:
        paths = http.get("/openapi.json").json()["paths"]
    for path in [path for path in paths if path.startswith(("/langgraph", "/a2a"))]:
        del paths[path]  # other doors', with their own tests
    found = {(m.upper(), path.removeprefix(BASE)) for path, ms in paths.items() for m in ms}
    own = [path for path in paths if path.startswith(f"{BASE}/")]
    assert len(own) > 15
    assert len(found) > 50
    return sorted(found)


def filled(path: str, thread: str, run: str = "0" * 8 + "-0000" * 3 + "-" + "0" * 12) -> str:
    values = {"thread_id": thread, "seq": "1", "name": "0" * 64, "session": "0" * 16, "number": "1"}
    values |= {
        "agent_id": "default",
        "model": "default",
        "row": "1",
        "run_id": run,
        "trace_id": run,
        "request_id": f"{thread}~x",
    }
    asked = {
        "/move": "?verb=step",
        "/why": "?path=messages",
        "/search": "?q=x",
        "/compare": "?run=1&theirs=1",
    }
    asked |= {"/stream": f"?follow=moments:0:{thread}", "/read": "?path=x", "/download": "?path=x"}
    more = next(
        (v for k, v in asked.items() if path.endswith(f"{{seq}}{k}") or path.endswith(k)), ""
    )
    return path.format(**values) + ("" if "/sessions/" in path else more)


def test_a_signed_in_browser_reads(anna: Browser, thread: str) -> None:
    listed = [one["thread_id"] for one in anna.ask("/threads").json()]
    assert thread in listed  # beside those of tests that ran before
    assert anna.ask("/me").json() == {"tenant": "anna", "scopes": ["read", "run", "debug"]}


# --- The files.


def test_each_file_has_the_policy(served: Served) -> None:
    names = [path.name for path in (PAGE / "small").iterdir()]
    with served.http() as http:
        for name in ["", "index.html", "vendor/preact.js", *names]:
            got = http.get(f"/ui/{name}")
            assert got.status_code == 200, name
            assert got.headers.get_list("content-security-policy") == [POLICY]
            assert got.headers["x-content-type-options"] == "nosniff"
        assert http.get("/ui").headers["location"] == "/ui/"
        for name in ("app.py", "../app.py", "%2e%2e/app.py", "vendor/", "api", "x.js"):
            assert http.get(f"/ui/{name}").status_code in (401, 404), name


def test_the_page_has_no_inline_code_and_makes_no_markup_of_texts() -> None:
    index = (PAGE / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:", index)
    for path in PAGE.glob("*.js"):
        text = path.read_text("utf-8")
        words = r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|eval\(|new Function"
        assert not re.search(rf"{words}|https?://|dangerouslySet", text), path.name


# --- Other origins, hosts and ports.


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_no_other_origin_reads_or_writes(
    anna: Browser, thread: str, headers: dict[str, str]
) -> None:
    assert anna.ask("/threads", headers=headers).status_code == 403
    path = f"/threads/{thread}/sessions"
    assert anna.ask(path, "POST", headers=headers).status_code == 403


def test_a_rebound_host_name_is_refused(anna: Browser, served: Served) -> None:
    host = f"evil.example:{served.port}"
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert anna.ask("/threads", headers=headers).status_code == 403
    with served.http() as http:
        assert http.get("/ui/", headers={"Host": host}).status_code == 403


def test_a_form_of_another_page_writes_nothing(anna: Browser, served: Served, thread: str) -> None:
    path = f"/threads/{thread}/sessions"
    assert anna.ask(path, "POST", headers={"Origin": None}).status_code == 403
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data", None):
        assert anna.ask(path, "POST", headers={"Content-Type": kind}).status_code == 415
    with served.http(token(served)) as http:
        assert http.post(f"{BASE}/sign-in", json={}).status_code == 403  # it names no origin
        assert http.post(f"{BASE}/sign-in", data={"a": "b"}).status_code in (403, 415)


def test_who_has_not_signed_in_is_told_so_before_anything_else(
    served: Served, routes: list[tuple[str, str]]
) -> None:
    with served.http() as http:
        for method, path in routes:
            got = http.request(method, f"{BASE}{filled(path, 'th_1')}")
            assert got.status_code == 401, (method, path, got.text)


def test_a_cookie_of_another_port_opens_nothing(
    anna: Browser, served: Served, other: Served
) -> None:
    theirs = Browser(other, token(other))
    assert theirs.cookie.partition("=")[0] != anna.cookie.partition("=")[0]
    assert anna.ask("/threads", headers={"Cookie": theirs.cookie}).status_code == 401
    renamed = f"{anna.cookie.partition('=')[0]}={theirs.cookie.partition('=')[2]}"
    secret = {"X-Wick-Secret": theirs.secret}
    assert anna.ask("/threads", headers={"Cookie": renamed, **secret}).status_code == 401
    both = f"{theirs.cookie}; {anna.cookie}"
    assert anna.ask("/threads", headers={"Cookie": both}).status_code == 200
    theirs.http.close()


@pytest.mark.parametrize("secret", [None, "", "x" * 43])
def test_a_cookie_alone_opens_nothing(anna: Browser, secret: str | None) -> None:
    assert anna.ask("/threads", headers={"X-Wick-Secret": secret}).status_code == 401
    assert anna.ask("/threads", headers={"Cookie": None}).status_code == 401


def test_the_cookie_is_the_browsers_own(served: Served, anna: Browser) -> None:
    parts = {part.strip().lower() for part in anna.set_cookie.split(";")[1:]}
    assert parts == {"httponly", "samesite=strict", f"path={BASE}", f"max-age={LASTS}"}
    secure = {"Authorization": f"Bearer {token(served)}"}
    secure["Origin"] = served.url.replace("http:", "https:")  # what is behind TLS
    with served.http() as http:
        cookie = http.post(f"{BASE}/sign-in", json={}, headers=secure).headers["set-cookie"]
    assert cookie.startswith("__Host-wick_")
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts == {"httponly", "samesite=strict", "path=/", f"max-age={LASTS}", "secure"}


# --- Other tenants, ended tokens, weak scopes.


FOREIGN = ("{thread_id}", "{session}", "{run_id}", "{trace_id}", "{request_id}")
BODIES = {"/sessions/{session}": '{"line": "step"}'}


def test_another_tenant_finds_nothing_on_any_route(
    served: Served, anna: Browser, thread: str, routes: list[tuple[str, str]]
) -> None:
    made = anna.ask(f"/threads/{thread}/sessions", "POST")
    assert made.status_code == 201, made.text
    session = made.json()["session"]
    run = anna.ask(f"/threads/{thread}/runs").json()[0]["run_id"]
    bert = Browser(served, token(served, "bert", "admin"))
    tried = 0
    for method, path in routes:
        if path != "/stream" and not any(name in path for name in FOREIGN):
            continue
        body = next((text for end, text in BODIES.items() if path.endswith(end)), "{}")
        more = {} if method == "GET" else {"content": body}
        got = bert.ask(filled(path, thread, run).replace("0" * 16, session), method, **more)
        assert got.status_code == 404, (method, path, got.text)
        tried += 1
    assert tried > 30
    for thread_id in (thread, "th_unknown"):
        form = json.dumps({"thread_id": thread_id, "answer": {"a": {"decision": "approve"}}})
        got = bert.ask("/agents/default/resume", "POST", content=form)
        assert (got.status_code, got.json()["error"]) == (404, "thread not found")
    assert bert.ask(f"/stream?follow=run:0:{thread}").json()["thread_id"] == thread
    assert anna.ask(f"/sessions/{session}").status_code == 200
    assert anna.ask(f"/sessions/{session}", "DELETE").status_code == 204
    assert anna.ask(f"/threads/{thread}").json()["status"] == "idle"
    bert.http.close()


@pytest.mark.parametrize("scope", ["read", "run", "approve", "debug"])
def test_a_token_writes_only_what_its_scope_allows(
    served: Served, thread: str, routes: list[tuple[str, str]], scope: str
) -> None:
    browser = Browser(served, token(served, scope=scope))
    endless = ("/events", "/stream", "/sign-in")
    for method, path in routes:
        if path.endswith(endless) or (path == "/threads/{thread_id}" and scope != "read"):
            continue
        got = browser.ask(filled(path, thread), method)
        if method != "GET" and scope == "read":
            assert got.status_code == 403, (method, path, got.text)
            assert "this needs" in got.json()["error"]
        elif "/sessions" in path:
            assert (got.status_code == 403) is (scope != "debug"), (method, path)
        elif path == "/metrics" or "/gateway" in path:
            assert got.status_code == 403
        elif method == "GET":
            assert got.status_code in (200, 400, 404, 409), (method, path, got.text)
        if got.status_code == 201 and "session" in got.json():
            browser.ask(f"/sessions/{got.json()['session']}", "DELETE")
        assert got.status_code < 500
    browser.http.close()


def test_a_cookie_ends_with_its_token_and_when_its_user_says_so(served: Served) -> None:
    given = token(served)
    one, two = Browser(served, given), Browser(served, given)
    assert one.ask("/me").status_code == two.ask("/me").status_code == 200
    assert one.ask("/sign-in", "DELETE").status_code == 204
    assert one.ask("/me").status_code == 401
    assert two.ask("/me").status_code == 200
    served.wick("token", "revoke", given)
    assert two.ask("/me").status_code == 401
    for browser in (one, two):
        browser.http.close()


def test_a_sign_in_lasts_half_a_day_and_a_link_once() -> None:
    now = [0.0]
    sign_ins, signed = SignIns(clock=lambda: now[0]), Signed("anna", "read", "t")
    cookie, secret = sign_ins.begin(signed)
    sent = f"{sign_ins.name(secure=False)}={cookie}"
    now[0] = LASTS - 1
    assert sign_ins.find(sent, secret) == signed
    now[0] = LASTS
    assert sign_ins.find(sent, secret) is None
    link = sign_ins.link(signed)
    assert sign_ins.redeem("wl_other") is None
    assert sign_ins.redeem(link) == signed
    assert sign_ins.redeem(link) is None
    late = sign_ins.link(signed)
    now[0] += LINK_LASTS
    assert sign_ins.redeem(late) is None


def test_a_hundred_browsers_of_a_token_stay_signed_in() -> None:
    sign_ins, signed = SignIns(), Signed("anna", "read", "t")
    name = sign_ins.name(secure=False)
    made = [sign_ins.begin(signed) for _ in range(101)]
    known = [sign_ins.find(f"{name}={cookie}", secret) for cookie, secret in made]
    assert known == [None, *[signed] * 100]


def test_a_link_opens_the_page_once(served: Served, tmp_path: Path) -> None:
    with served.http() as http:
        headers = {"Authorization": "Bearer wl_made-up", "Origin": served.url}
        assert http.post(f"{BASE}/sign-in", json={}, headers=headers).status_code == 401
        assert http.get(f"{BASE}/threads", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "changed",
    [{"Origin": "https://evil.example"}, {"Origin": None}, {"Content-Type": "text/plain"}],
)
def test_a_refused_request_does_not_use_a_link_up(
    tmp_path: Path, changed: dict[str, str | None]
) -> None:
    store = AgentsFile.of_code("agents.py", {"a": "a"}, f"sqlite:///{tmp_path}/wick.db")
    service = Service(store, ServerOptions(), given={"a": Agent("a", "scripted:demo")})
    app = create_app(service)
    link = app.state.sign_ins.link(Signed("local", "read", ""))
    own = {"Authorization": f"Bearer {link}", "Origin": "http://localhost"}
    own["Content-Type"] = "application/json"
    wrong = {name: value for name, value in (own | changed).items() if value is not None}
    with TestClient(app, "http://localhost") as http:
        assert http.get(f"{BASE}/sign-in", headers=own).status_code == 401
        assert http.post(f"{BASE}/sign-in", content="{}", headers=wrong).status_code >= 400
        assert http.post(f"{BASE}/sign-in", content="{}", headers=own).status_code == 200
        assert http.post(f"{BASE}/sign-in", content="{}", headers=own).status_code == 401


@pytest.mark.parametrize("before", ['a={"x": 1}', "b=[x y]", "c", "{name}=planted", "=;;é"])
def test_cookies_of_others_do_not_sign_a_browser_out(before: str) -> None:
    sign_ins, signed = SignIns(), Signed("anna", "read", "t")
    name = sign_ins.name(secure=False)
    cookie, secret = sign_ins.begin(signed)
    sent = f'{before.replace("{name}", name)}; {name}={cookie}; z="1'
    assert sign_ins.find(sent, secret) == signed
    assert sign_ins.find(sent, "x" * 43) is None
    sign_ins.end(sent)
    assert sign_ins.find(sent, secret) is None


def test_a_stream_ends_when_its_browser_signs_out(served: Served, thread: str) -> None:
    browser = Browser(served, token(served))
    headers = {"Cookie": browser.cookie, "X-Wick-Secret": browser.secret}
    where = f"{BASE}/stream?follow=moments:0:{thread}"
    with browser.http.stream("GET", where, headers=headers) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: news"
        assert browser.ask("/sign-in", "DELETE").status_code == 204
        assert "event: moments" in [line for line in lines if line.startswith("event: ")]
    browser.http.close()


def test_a_token_that_debugs_executes_nothing_without_run(served: Served, thread: str) -> None:
    browser = Browser(served, token(served, scope="debug"))
    made = browser.ask(f"/threads/{thread}/sessions", "POST")
    path = f"/sessions/{made.json()['session']}"
    runs = browser.ask(f"/threads/{thread}/recording").json()["runs"]

    def say(line: str, at: int = 1) -> str:
        got = browser.ask(path, "POST", content=json.dumps({"line": line, "at": at}))
        assert got.status_code == 200, got.text
        return str(got.json()["error"])

    assert say("next") == say("fork", 2) == ""
    for line in ("live", "run Hello.", "replay", "restart", "answer yes"):
        assert "scope" in say(line, 2), line
    assert browser.ask(f"/threads/{thread}/recording").json()["runs"] == runs
    assert browser.ask(path, "DELETE").status_code == 204
    browser.http.close()
