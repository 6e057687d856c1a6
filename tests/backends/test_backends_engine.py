"""What a container engine says it is, asked of servers that answer as Docker and Podman do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.containers import ContainerEngine
from wick_graph.backends.docker.engine import Engine
from wick_graph.errors import ConfigError

VERSION = {"ApiVersion": "1.44", "Version": "25.0"}
"""The engine of `tests/sandbox` is Podman with root's rights: others are played here."""


@contextmanager
def engine_of(answers: dict[str, Any], asked: list[str]) -> Iterator[Engine]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            what = next((one for one in answers if self.path.endswith(one)), "")
            asked.append(what)
            body = json.dumps(answers.get(what, {"message": "page not found"})).encode()
            self.send_response(200 if what else 404)
            if what == "/_ping":
                self.send_header("Api-Version", answers[what])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        engine = Engine(f"tcp://127.0.0.1:{server.server_port}")
        try:
            yield engine
        finally:
            engine.close()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("options", "is_rootless"),
    [(["name=seccomp,profile=builtin"], False), (["name=rootless"], True), (None, False)],
)
def test_docker_says_by_its_options_whose_it_is(options: Any, is_rootless: bool) -> None:
    answers = {"/_ping": "1.44", "v1.44/info": {"SecurityOptions": options}}
    with engine_of(answers, []) as engine:
        assert engine.facts() == (is_rootless, "")


@pytest.mark.parametrize("is_rootless", [False, True])
def test_podman_is_asked_once_and_by_its_own_name(is_rootless: bool) -> None:
    security = {"rootless": is_rootless, "seccompProfilePath": "/usr/share/seccomp.json"}
    answers = {"/_ping": "1.41", "libpod/info": {"host": {"security": security}}}
    asked: list[str] = []
    with engine_of(answers, asked) as engine:
        assert engine.facts() == (is_rootless, "/usr/share/seccomp.json")
    assert asked == ["/_ping", "libpod/info"], "and not for its version, which takes it 0.5 s"


def test_an_engine_that_names_no_form_of_the_api_is_asked_for_it() -> None:
    answers = {"/version": VERSION, "v1.44/info": {"SecurityOptions": ["name=rootless"]}}
    asked: list[str] = []
    with engine_of(answers, asked) as engine:
        assert engine.facts() == (True, "")
    assert asked == ["", "/version", "", "v1.44/info"]


def test_an_engine_is_asked_anew_when_its_socket_is_another(
    container_engine: ContainerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Engine] = []
    ask = Engine._facts

    def noted(engine: Engine) -> tuple[bool, str]:
        asked.append(engine)
        return ask(engine)

    monkeypatch.setattr(Engine, "_facts", noted)
    (tmp_path / "one").symlink_to(container_engine.host.removeprefix("unix://"))
    host = f"unix://{tmp_path / 'one'}"
    one, other = Engine(host), Engine(host)
    with closing(one), closing(other):
        assert one.facts() == other.facts() == one.facts()
        assert asked == [one]
        (tmp_path / "two").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "two").replace(tmp_path / "one")
        with pytest.raises(ConfigError):
            other.facts()
