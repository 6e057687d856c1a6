"""MemoryStore on real files, whose memory a conversation reaches, and its tools in an agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from wick_graph import Agent
from wick_graph.backends import Root
from wick_graph.errors import ConfigError, ToolError
from wick_graph.gateway import memory
from wick_graph.gateway.memory import (
    MAX_FILE,
    MAX_NOTE,
    Memories,
    MemoryStore,
    memory_tools,
    scope_folder,
)
from wick_graph.testing import ScriptedModel, call

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()

DAY = 86_400.0

SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"

OWNER = {"channel": "cli", "chat_id": "me", "sender_id": "1", "group": False, "role": "owner"}


def person(sender: str = "7", **more: Any) -> dict[str, Any]:
    return {**OWNER, "channel": "telegram", "sender_id": sender, "role": "user", **more}


def group(chat: str = "-100", **more: Any) -> dict[str, Any]:
    return person(chat_id=chat, group=True, **more)


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> MemoryStore:
    return MemoryStore(tmp_path / "ws", "UTC", clock)


# --- Formats.


def test_the_files_have_the_documented_names_and_forms(store: MemoryStore) -> None:
    assert (store.read_long_term(), store.read_day(), store.context()) == ("", "", "")
    assert not store.folder.exists(), "to read makes nothing"
    store.append_today("tea")
    store.append_today("coffee")
    store.write_long_term("old")
    store.write_long_term("new")
    notes = store.folder / "memory/202603/20260310.md"
    assert notes.read_text() == "# 2026-03-10\n\ntea\ncoffee"
    assert (store.folder / "memory/MEMORY.md").read_text() == "new"
    assert store.read_day() == notes.read_text()


def test_the_last_three_days_come_newest_first(store: MemoryStore, clock: Clock) -> None:
    for back in (3, 2, 0):
        clock.now = NOON - back * DAY
        store.append_today(f"{back} days ago")
    recent = "# 2026-03-10\n\n0 days ago\n\n---\n\n# 2026-03-08\n\n2 days ago"
    assert store.context() == f"## Recent Daily Notes\n\n{recent}"
    store.write_long_term("facts")
    assert store.context() == (
        f"## Long-term Memory\n\nfacts\n\n---\n\n## Recent Daily Notes\n\n{recent}"
    )


@pytest.mark.parametrize(
    ("zone", "minute", "day"),
    [
        ("UTC", "2026-03-10T23:59", "2026-03-10"),
        ("UTC", "2026-03-11T00:01", "2026-03-11"),
        ("Europe/Berlin", "2026-03-10T22:59", "2026-03-10"),
        ("Europe/Berlin", "2026-03-10T23:01", "2026-03-11"),
    ],
)
def test_a_day_begins_in_the_configured_zone(
    tmp_path: Path, zone: str, minute: str, day: str
) -> None:
    clock = Clock(datetime.fromisoformat(f"{minute}+00:00").timestamp())
    store = MemoryStore(tmp_path, zone, clock)
    store.append_today("x")
    assert store.read_day(date.fromisoformat(day)) == f"# {day}\n\nx"


@pytest.mark.parametrize("zone", ["Mars/Base", "../etc/passwd", "", "a\0b"])
def test_an_unknown_zone_is_named(tmp_path: Path, zone: str) -> None:
    with pytest.raises(ConfigError, match="there is no time zone"):
        MemoryStore(tmp_path, zone)


# --- Writers at the same time, and calls that are repeated.


def test_notes_that_come_together_are_all_kept(store: MemoryStore) -> None:
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(store.append_today, (f"note {n}" for n in range(20))))
    assert sorted(store.read_day().splitlines()[2:]) == sorted(f"note {n}" for n in range(20))


def test_notes_of_two_processes_are_all_kept(store: MemoryStore) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from wick_graph.gateway.memory import MemoryStore\n"
        f"store = MemoryStore(Path(sys.argv[1]), clock=lambda: {NOON})\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for n in range(10): store.append_today(f'{sys.argv[2]} {n}')\n"
    )
    both = [
        forked.Popen(
            [sys.executable, "-c", code, str(store.folder), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for one in both:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in both:
        one.communicate("go\n", timeout=60)
        assert one.returncode == 0
    lines = store.read_day().splitlines()[2:]
    assert sorted(lines) == sorted(f"{name} {n}" for name in "ab" for n in range(10))
    assert [one for one in lines if one[0] == "a"] == [f"a {n}" for n in range(10)]


def test_a_repeated_call_adds_its_note_once(store: MemoryStore, clock: Clock) -> None:
    store.append_today("one", "key 1")
    store.append_today("two", "key 2")
    clock.now += DAY  # the process was down over midnight
    store.append_today("one", "key 1")
    store.append_today("one", "key 3")
    clock.now -= DAY
    assert store.read_day() == "# 2026-03-10\n\none\ntwo"
    clock.now += DAY
    assert store.read_day() == "# 2026-03-11\n\none", "another call with the same text counts"


def test_a_call_killed_before_its_write_is_made_up_for(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append_today("before")
    replace = Root.replace

    def killed(root: Any, rel: str, data: bytes) -> None:
        if rel.endswith(".md"):
            raise KeyboardInterrupt
        replace(root, rel, data)

    monkeypatch.setattr(Root, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        store.append_today("mine", "key")
    monkeypatch.undo()
    store.append_today("of another call")
    store.append_today("mine", "key")
    store.append_today("mine", "key")
    assert store.read_day().splitlines()[2:] == ["before", "of another call", "mine"]


def test_a_repeated_replacement_does_not_undo_a_newer_one(store: MemoryStore) -> None:
    store.write_long_term("first", "key 1")
    store.write_long_term("first", "key 1")
    store.write_long_term("second", "key 2")
    with pytest.raises(ToolError, match="changed since this call was interrupted"):
        store.write_long_term("first", "key 1")
    assert store.read_long_term() == "second"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"key": 1}', '{"key": {"file": 3}}', "9" * 9999])
def test_a_damaged_record_of_calls_hides_no_note(store: MemoryStore, text: str) -> None:
    store.append_today("one")
    (store.folder / "memory/.calls.json").write_text(text)
    store.append_today("two", "key")
    store.append_today("two", "key")
    assert store.read_day() == "# 2026-03-10\n\none\ntwo"


def test_the_record_of_calls_stays_small(store: MemoryStore) -> None:
    for n in range(memory._MOST_CALLS + 5):
        store.write_long_term(str(n), f"key {n}")
    known = json.loads((store.folder / "memory/.calls.json").read_text())
    assert len(known) == memory._MOST_CALLS
    assert f"key {memory._MOST_CALLS + 4}" in known


# --- What is refused, and what is cut.


@pytest.mark.parametrize(
    "text",
    [
        f"my key is {SECRET}",
        "a\u200b key sk-ant-\u200bapi03-abcdefghijkl\u2060mnopqrstuvwxyz",
        "\uff53\uff4b-ant-api03-abcdefghijklmnopqrstuvwxyz",
        "password: hunter22hunter22",
        "-----BEGIN RSA PRIVATE KEY-----\nAAAA",
    ],
)
def test_a_secret_is_refused(store: MemoryStore, text: str, caplog: Any) -> None:
    store.append_today("before")
    for write in (store.append_today, store.write_long_term):
        with pytest.raises(ToolError, match="looks like a secret"):
            write(text)
    assert store.read_day() == "# 2026-03-10\n\nbefore"
    assert store.read_long_term() == ""


def test_a_secret_in_two_notes_is_refused(store: MemoryStore) -> None:
    store.append_today("the password:")
    with pytest.raises(ToolError, match="looks like a secret"):
        store.append_today("hunter22hunter22")
    store.append_today("a harmless note")


def test_a_secret_that_a_person_wrote_is_not_shown(store: MemoryStore) -> None:
    (store.folder / "memory").mkdir(parents=True)
    (store.folder / "memory/MEMORY.md").write_text(f"key {SECRET}")
    assert SECRET not in store.context() + store.read_long_term() + "".join(store.search("key"))
    store.append_today("a note beside it is possible")


def test_hidden_characters_become_visible(store: MemoryStore) -> None:
    store.append_today("a\0b\u202ec\ud800")
    assert store.read_day().splitlines()[-1] == r"a\u{0}b\u{202e}c" + "\ufffd"


@pytest.mark.parametrize("text", ["", " \n\t", "\r\n"])
def test_an_empty_note_is_refused(store: MemoryStore, text: str) -> None:
    with pytest.raises(ToolError, match="the note is empty"):
        store.append_today(text)


def test_sizes_are_bounded(store: MemoryStore) -> None:
    with pytest.raises(ToolError, match="more than 8,192"):
        store.append_today("ä" * (MAX_NOTE // 2 + 1))
    with pytest.raises(ToolError, match="more than 65,536"):
        store.write_long_term("x" * (MAX_FILE + 1))
    for n in range(8):
        store.append_today(f"{n}" + "x" * (MAX_NOTE - 30))
    with pytest.raises(ToolError, match="today's notes are full"):
        store.append_today("y" * MAX_NOTE)
    store.write_long_term("long " * 10_000)
    shown = store.context()
    assert len(shown) < 30_000
    assert "[cut: 16,384 of 50,000 bytes; use memory_read]" in shown
    assert "[cut: 4,096 of " in shown
    assert "# 2026-03-10" in shown
    assert shown.rstrip("x").endswith("7") or shown.endswith("x"), "the newest notes are kept"


@pytest.mark.parametrize("at", ["memory", "memory/MEMORY.md", "memory/202603", "memory/.lock"])
def test_links_are_not_followed(store: MemoryStore, tmp_path: Path, at: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "20260310.md").write_text("of somebody else")
    (outside / "MEMORY.md").write_text("of somebody else")
    link = store.folder / at
    link.parent.mkdir(parents=True)
    is_file = link.suffix or link.name == ".lock"
    link.symlink_to(outside / "MEMORY.md" if is_file else outside)
    before = {one.name: one.read_text() for one in outside.iterdir()}
    acts: list[Callable[[], Any]] = [
        store.context,
        lambda: store.append_today("x"),
        lambda: store.write_long_term("x"),
        lambda: "".join(store.search("somebody")),
    ]
    for act in acts:
        said = ""
        with suppress(ToolError):
            said = act() or ""
        assert "somebody" not in said
    assert {one.name: one.read_text() for one in outside.iterdir()} == before


# --- The search.


def test_search_finds_lines_with_all_words(store: MemoryStore, clock: Clock) -> None:
    clock.now = NOON - 40 * DAY
    store.append_today("Anna likes green tea\nBob likes .*+?[ coffee")
    clock.now = NOON
    store.append_today("ANNA moved")
    store.write_long_term("Anna is a friend")
    assert store.search("anna") == [
        "MEMORY: Anna is a friend",
        "20260310: ANNA moved",
        "20260129: Anna likes green tea",
    ]
    assert store.search("likes ANNA") == ["20260129: Anna likes green tea"]
    assert store.search(".*+?[") == ["20260129: Bob likes .*+?[ coffee"]
    assert store.search("nothing") == []
    with pytest.raises(ToolError, match="the query is empty"):
        store.search(" ")


def test_search_is_bounded_and_reads_only_notes(store: MemoryStore) -> None:
    store.append_today("\n".join(f"word {n} " + "x" * 20 for n in range(200)))
    folder = store.folder / "memory/202603"
    (folder / "20260309.md.bak").write_text("word in a copy")
    (folder / "evil.md").symlink_to("/etc/passwd")
    found = store.search("word")
    assert len(found) == 50
    assert not any("copy" in one for one in found)


# --- Whose memory.


IDS = [
    *("a:b", "a_b", "a/b", "../x", "..", ".", "", "CON", "nul", "aux.md", "x\0y", "x\0", "A:B"),
    *("a b", "é", "e\u0301", "x" * 4096, "x" * 4097, "\ud800", "\ud801", "-", "~", "%2e%2e"),
]


def test_every_id_has_a_folder_of_its_own(tmp_path: Path) -> None:
    made = [scope_folder(tmp_path, person(one)) for one in IDS]
    made += [scope_folder(tmp_path, group(one)) for one in IDS]
    made += [scope_folder(tmp_path, person(one, channel="tele")) for one in IDS if one]
    made += [scope_folder(tmp_path, person("gram1", channel="tele"))]
    made += [scope_folder(tmp_path, person("1", channel="telegram"))]
    names = [one.name for one in made]
    assert len({name.casefold() for name in names}) == len(names) == len(set(names))
    for one in made:
        assert one.parent == tmp_path / ".people"
        assert len(one.name) < 120
        assert one.name.isascii()
        one.mkdir(parents=True)


def test_the_workspace_is_the_owner_s_alone(tmp_path: Path) -> None:
    assert scope_folder(tmp_path, OWNER) == tmp_path
    others = [
        person(),
        group(),
        {**OWNER, "group": True},
        {**OWNER, "role": "untrusted"},
        {**OWNER, "role": "Owner"},
        {key: value for key, value in OWNER.items() if key != "group"},
        {},
    ]
    for one in others:
        assert scope_folder(tmp_path, one).parent == tmp_path / ".people"


@pytest.mark.parametrize(
    ("scope", "origin", "has"),
    [
        ("owner", OWNER, True),
        ("sender", OWNER, True),
        ("chat", OWNER, True),
        ("owner", person(), False),
        ("sender", person(), True),
        ("chat", person(), True),
        ("owner", group(), False),
        ("sender", group(), False),
        ("chat", group(), True),
        ("chat", group(role="owner"), True),
        ("sender", group(role="owner"), False),
        ("chat", person(role="untrusted"), False),
        ("chat", {**OWNER, "role": "untrusted"}, False),
        ("chat", {}, False),
    ],
)
def test_who_has_a_memory(tmp_path: Path, scope: Any, origin: dict[str, Any], has: bool) -> None:
    found = Memories(tmp_path, scope).of(origin)
    assert (found is not None) is has
    if found is not None and origin is not OWNER:
        assert found.folder != tmp_path


def talk(memories: Memories, origin: dict[str, Any], *steps: Any, **options: Any) -> list[str]:
    """Let a conversation call the tools; return the results."""
    agent = Agent(model=ScriptedModel([*steps, "ok"]), tools=memory_tools(memories), **options)
    result = agent.invoke({"messages": [("user", "?")], "origin": origin})
    return [m.text for m in result.messages if m.type == "tool"]


def test_an_agent_writes_reads_and_finds_notes(tmp_path: Path, clock: Clock) -> None:
    memories = Memories(tmp_path, clock=clock)
    said = talk(
        memories,
        OWNER,
        call("memory_append", text="Anna likes tea"),
        call("memory_write", text="facts"),
        call("memory_read"),
        call("memory_read", date="2026-03-10"),
        call("memory_read", date="2026-03-09"),
        call("memory_read", date="../../MEMORY"),
        call("memory_search", query="tea"),
        call("memory_append", text=f"key {SECRET}"),
    )
    assert said[:5] == [
        "The note is added.",
        "MEMORY.md is replaced.",
        "facts",
        "# 2026-03-10\n\nAnna likes tea",
        "There are no notes.",
    ]
    assert "is no date" in said[5]
    assert said[6] == "20260310: Anna likes tea"
    assert "looks like a secret" in said[7]
    assert SECRET.encode() not in b"".join(p.read_bytes() for p in tmp_path.rglob("*.*"))


def test_no_conversation_reaches_the_memory_of_another(tmp_path: Path, clock: Clock) -> None:
    memories = Memories(tmp_path, "chat", clock=clock)
    every = [OWNER, person("1"), person("2"), group("1"), group("2"), person("1", channel="x")]
    for n, origin in enumerate(every):
        talk(memories, origin, call("memory_append", text=f"secret plan {n}"))
    for n, origin in enumerate(every):
        found = talk(memories, origin, call("memory_search", query="plan"))
        assert found == [f"20260310: secret plan {n}"]


def test_a_stranger_s_tools_are_refused_and_make_nothing(tmp_path: Path) -> None:
    calls = (call("memory_read"), call("memory_append", text="x"), call("memory_write", text="x"))
    said = talk(Memories(tmp_path), person(), *calls, call("memory_search", query="x"))
    assert all("this conversation has no memory" in one for one in said)
    assert len(said) == 4
    assert [*tmp_path.iterdir()] == []


def test_a_killed_append_is_noted_once(tmp_path: Path) -> None:
    """The process dies after the note is written, and before its result is stored."""
    code = (
        "import os; from pathlib import Path\n"
        "from wick_graph import Agent\n"
        "from wick_graph.gateway import memory\n"
        "from wick_graph.testing import ScriptedModel, call\n"
        f"origin = {OWNER!r}\n"
        "replace = memory.Root.replace\n"
        "def killed(root, rel, data, *more):\n"
        "    replace(root, rel, data, *more)\n"
        "    if rel.endswith('.md'): os._exit(9)\n"
        "memory.Root.replace = killed\n"
        f"memories = memory.Memories(Path({str(tmp_path)!r}), clock=lambda: {NOON})\n"
        "model = ScriptedModel([call('memory_append', text='once'), 'ok'])\n"
        f"store = 'sqlite:///{tmp_path}/t.db'\n"
        "tools = memory.memory_tools(memories)\n"
        "with Agent(model=model, tools=tools, store=store) as agent:\n"
        "    agent.invoke({'messages': [('user', '?')], 'origin': origin}, thread_id='t')\n"
    )
    done = forked.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 9, done.stderr
    file = tmp_path / "memory/202603/20260310.md"
    assert file.read_text() == "# 2026-03-10\n\nonce"
    model = ScriptedModel([call("memory_append", text="once"), "ok"])
    tools = memory_tools(Memories(tmp_path, clock=Clock(NOON + DAY)))
    with Agent(model=model, tools=tools, store=f"sqlite:///{tmp_path}/t.db") as agent:
        assert agent.resume("t").text == "ok"
    assert [*tmp_path.rglob("2026*.md")] == [file]
    assert (tmp_path / "memory/202603/20260310.md").read_text() == "# 2026-03-10\n\nonce"


def test_a_full_disk_or_a_closed_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("a file")
    store = MemoryStore(tmp_path)
    with pytest.raises(ToolError):
        store.append_today("x")
    with pytest.raises(ToolError):
        store.read_long_term()
    (tmp_path / "memory").unlink()
    (tmp_path / "memory").mkdir()
    os.mkfifo(tmp_path / "memory/MEMORY.md")
    with pytest.raises(ToolError):
        store.read_long_term()
