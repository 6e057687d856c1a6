"""The docker backend on a real engine: one user's life cycle, hardening, and what is left."""

from __future__ import annotations

import contextlib
import importlib
import select
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.fixtures import OPTIONS
from tests.source import ROOT
from tests.support.containers import IMAGE, ContainerEngine
from wick_graph.backends import Stop
from wick_graph.backends.docker import BoxOptions, DockerBackend, Sandboxes, container, reap
from wick_graph.backends.docker.backend import Names
from wick_graph.backends.docker.engine import is_alive, owner
from wick_graph.errors import ConfigError, RefusedError, ToolError


@pytest.fixture
def client(container_engine: ContainerEngine) -> Iterator[Any]:
    found = importlib.import_module("docker").DockerClient(base_url=container_engine.host)
    yield found
    found.close()


@pytest.fixture
def boxes(container_engine: ContainerEngine, tmp_path: Path) -> Iterator[Sandboxes]:
    made = Sandboxes(tmp_path / "users", options=OPTIONS, host=container_engine.host)
    yield made
    made.close()


def named(client: Any, user: str) -> list[Any]:
    """Return a user's containers; one that ends meanwhile is not asked about."""
    return [
        c
        for c in client.containers.list(all=True, sparse=True)
        if name_of(c).startswith(f"wick-sandbox-{user}-")
    ]


def name_of(box: Any) -> str:
    """Return the name of a container from a list."""
    return str(box.attrs["Names"][0]).lstrip("/")


def gone(client: Any, user: str) -> bool:
    until = time.monotonic() + 60
    while named(client, user):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_a_users_life_cycle(boxes: Sandboxes, client: Any) -> None:
    assert boxes.status("ann") == "idle"
    ann = boxes.create("ann")
    assert (ann.status, boxes.status("ann")) == ("launched", "launched")
    (first,) = named(client, "ann")
    assert boxes.get("ann") is ann
    assert ann.exec("echo kept > file; hostname").stdout == "sandbox\n"
    assert [one.id for one in named(client, "ann")] == [first.id], "it is used again"
    assert boxes.restart("ann") is ann
    (second,) = named(client, "ann")
    assert second.id != first.id
    boxes.stop("ann")
    assert boxes.status("ann") == "idle"
    assert gone(client, "ann")
    assert ann.exec("cat file").stdout == "kept\n", "files stay, and a container comes"
    assert boxes.status("bob") == "idle"
    boxes.stop("bob")


class Dawdling(socketserver.StreamRequestHandler):
    """Hands on what the engine says late, in one piece: on a busy machine it comes like that."""

    engine = ""

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(self.engine)
            asking = threading.Thread(target=self._ask, args=(there,), daemon=True)
            asking.start()
            while True:
                with contextlib.suppress(OSError):
                    select.select([there], [], [])
                    time.sleep(0.2)
                    if said := there.recv(2**20):
                        self.connection.sendall(said)
                        continue
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_WR)
                return

    def _ask(self, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while asked := self.connection.recv(2**16):
                there.sendall(asked)
            there.shutdown(socket.SHUT_WR)


@pytest.mark.slow
def test_output_that_comes_with_the_headers_is_not_lost(
    container_engine: ContainerEngine, tmp_path: Path
) -> None:
    path = str(tmp_path / "relay")
    engine = container_engine.host.removeprefix("unix://")
    handler = type("To", (Dawdling,), {"engine": engine})
    with socketserver.ThreadingUnixStreamServer(path, handler) as relay:
        relay.daemon_threads = True
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        (work := tmp_path / "w").mkdir()
        with DockerBackend(work, options=OPTIONS, host=f"unix://{path}") as backend:
            done = backend.exec("echo out; echo err >&2")
        relay.shutdown()
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0)


def test_users_share_nothing(boxes: Sandboxes) -> None:
    ann, bob = boxes.get("ann"), boxes.get("bob")
    ann.exec("echo secret > file; echo x > /tmp/x")
    assert bob.exec("cat file; ls -A /tmp").stdout == ""
    with pytest.raises(ToolError, match="does not exist"):
        bob.read("file")
    with pytest.raises(RefusedError, match="leads outside"):
        bob.read("../ann/file")
    for name in ("", "../ann", "a/b", "a b", "x" * 64, "-a"):
        with pytest.raises(ConfigError, match="cannot have a container"):
            boxes.get(name)


def test_a_container_is_hardened(boxes: Sandboxes, client: Any) -> None:
    ann = boxes.create("ann")
    (box,) = named(client, "ann")
    box.reload()
    host = box.attrs["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert host["PidsLimit"] == OPTIONS.processes
    assert host["Memory"] == host["MemorySwap"] == OPTIONS.memory
    assert not host["Privileged"]
    status = ann.exec("cat /proc/self/status; id -u; touch /x; ls /run/docker.sock").stdout
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")
    assert {lines[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh")} == {"0" * 16}
    assert status.splitlines()[-1] != "0"


def test_a_name_is_never_a_command(boxes: Sandboxes) -> None:
    ann = boxes.get("ann")
    name = "a';id;'$(id) `id` \"x\""
    ann.write(name, b"one two\n")
    assert [entry.name for entry in ann.ls().entries if entry.type == "file"] == [name]
    assert ann.read(name).text == "one two\n"
    assert ann.grep("two").matches[0].file == f"/workspace/{name}"
    assert ann.edit(name, "two", "three").path == f"/workspace/{name}"
    assert "uid=" not in ann.exec("cat a*").stdout


def test_a_long_file_comes_whole(boxes: Sandboxes) -> None:
    ann = boxes.get("ann")
    text = "x" * 500_000
    ann.write("long", text.encode())
    assert ann.read("long").text == text
    done = ann.exec("cat long; echo; cat long >&2")
    assert (done.stdout_bytes, done.stderr_bytes) == (500_001, 500_000)
    assert done.stdout_file is not None
    assert ann.read(done.stdout_file).text == text + "\n"


def test_paths_are_those_of_the_container(boxes: Sandboxes, tmp_path: Path) -> None:
    ann = boxes.get("ann")
    assert ann.workdir == "/workspace"
    assert ann.write("/workspace/./d//f", b"x").path == "/workspace/d/f"
    assert ann.glob("f", "/workspace").files == ["/workspace/d/f"]
    assert ann.exec("pwd; cat /workspace/d/f").stdout == "/workspace\nx"
    with pytest.raises(ToolError) as caught:
        ann.write(".git/config", b"x")
    assert str(tmp_path) not in str(caught.value)
    assert "'/workspace/.git/config' is protected" in str(caught.value)
    seen = {"/workspace/d/f": "another digest"}
    with pytest.raises(ToolError, match="'/workspace/d/f' changed on disk"):
        ann.edit("d/f", "x", "y", seen=seen)


@pytest.mark.parametrize(
    ("given", "inside"),
    [
        ("/workspace", "."),
        ("/workspace/", "."),
        ("//workspace//a/./b/", "a/b/"),
        ("/workspace/../x", "../x"),
        ("/workspaces/x", "/workspaces/x"),
        ("a/b", "a/b"),
        ("/etc", "/etc"),
    ],
)
def test_names_are_translated(given: str, inside: str) -> None:
    assert Names("/srv/files", "/workspace").inward(given) == inside


def test_names_come_back() -> None:
    names = Names("/srv/files", "/workspace")
    assert names.outward("/srv/files") == "/workspace"
    assert names.outward("/srv/files/a") == "/workspace/a"
    assert names.outward("/srv/files2/a") == "/srv/files2/a"


@pytest.mark.slow
def test_a_cancelled_command_ends_its_container_and_another_comes(boxes: Sandboxes) -> None:
    ann = boxes.create("ann")
    stop = Stop()
    threading.Timer(0.5, stop.set).start()
    done = ann.exec("sleep 300", stop=stop)
    assert done.notes == ("killed: the run was cancelled",)
    assert not done.timed_out
    assert ann.exec("echo well").stdout == "well\n"


def test_what_ended_processes_left_is_removed(
    client: Any, container_engine: ContainerEngine, boxes: Sandboxes
) -> None:
    boxes.create("ann")
    left = client.containers.run(
        IMAGE, ["sleep", "300"], name="wick-sandbox-left-1", detach=True, network_mode="none",
        labels={"wick-graph.owner": owner().rsplit(":", 2)[0] + ":999999999:1"},
    )  # fmt: skip
    other = client.containers.run(
        IMAGE, ["sleep", "300"], name="not-ours", detach=True, network_mode="none"
    )
    assert reap(container_engine.host) == 1
    names = {name_of(one) for one in client.containers.list(all=True, sparse=True)}
    assert left.name not in names
    assert other.name in names
    assert len(named(client, "ann")) == 1, "who lives keeps his"
    other.remove(force=True)


def test_an_owner_is_alive_as_long_as_its_process() -> None:
    assert is_alive(owner())
    machine, pid, started = owner().rsplit(":", 2)
    assert not is_alive(f"{machine}:{pid}:{int(started) + 1}")
    assert is_alive("elsewhere:1:1"), "nobody here can say"
    assert not is_alive("")


def test_a_container_ends_with_a_process_that_is_killed(
    client: Any, container_engine: ContainerEngine, tmp_path: Path
) -> None:
    code = (
        "import time; from tests.sandbox.fixtures import OPTIONS; "
        "from wick_graph.backends.docker import Sandboxes; "
        f"b = Sandboxes({str(tmp_path)!r}, options=OPTIONS, host={container_engine.host!r}); "
        "b.create('eve'); print('up', flush=True); time.sleep(300)"
    )
    engine = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    with engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == b"up\n"
        assert len(named(client, "eve")) == 1
        engine.kill()
    assert gone(client, "eve")


def test_what_is_missing_is_said(container_engine: ContainerEngine, tmp_path: Path) -> None:
    host = container_engine.host
    absent = DockerBackend(tmp_path, options=BoxOptions(image="localhost/none"), host=host)
    with absent, pytest.raises(ConfigError, match=r"the engine does not have the image"):
        absent.launch()
    assert absent.status == "idle"
    nobody = DockerBackend(tmp_path, options=OPTIONS, host=f"unix://{tmp_path}/no.sock")
    with nobody, pytest.raises(ToolError, match="no container engine answers"):
        nobody.exec("true")
    with pytest.raises(ConfigError, match="absolute path below /"):
        DockerBackend(tmp_path, options=BoxOptions(workdir="w"))


def test_the_sdk_is_an_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['docker'] = None\n"
        "from wick_graph.backends.docker import DockerBackend\n"
        "from wick_graph.errors import ConfigError\n"
        f"fs = DockerBackend({str(tmp_path)!r})\n"
        "try: fs.launch()\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip().endswith('pip install "wick-graph[docker]"')


def test_an_engine_that_shows_another_folder_is_refused(
    container_engine: ContainerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    mounts = container._mounts  # as an engine on another machine would mount its own folder
    monkeypatch.setattr(container, "_mounts", lambda _, *rest: mounts(str(there), *rest))
    with (
        DockerBackend(here, options=OPTIONS, host=container_engine.host) as fs,
        pytest.raises(ConfigError, match="does not see .*the engine must be on this host"),
    ):
        fs.launch()


class Slow:
    """A container that is there once the test lets it."""

    def __init__(self, ready: threading.Event) -> None:
        assert ready.wait(60)
        self.parts, self.name, self.stopped, self.killed = (), "slow", False, False

    def runs(self) -> bool:
        return True

    def kill(self) -> None:
        self.killed = True


def test_a_stop_reaches_a_container_that_is_being_launched() -> None:
    made: list[Slow] = []
    begun, ready = threading.Event(), threading.Event()

    def make(parts: Any) -> Any:
        begun.set()
        made.append(Slow(ready))
        return made[-1]

    pool, said, seen = container.Boxes(make), list[str](), list[str]()
    pool.on_status = seen.append

    def take() -> None:
        try:
            pool.take(())
        except ConfigError as error:
            said.append(str(error))

    taking = threading.Thread(target=take)
    taking.start()
    assert begun.wait(60)
    pool.stop()
    ready.set()
    taking.join(60)
    assert said == ["the container was stopped before it ran; try again"]
    assert made[0].killed
    assert (pool.status, pool.names) == ("idle", [])
    for _ in range(container._AT_ONCE):  # no place in the pool is lost
        pool.take(())
    assert seen == ["launching", "idle", *["launching", "launched"] * container._AT_ONCE]
