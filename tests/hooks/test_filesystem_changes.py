"""Changes to files through an agent: kept in the state, made in order, made once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Door, async_door, sync_door, wild
from tests.hooks.filing import run, told
from wick_graph import Agent, BaseHook, ToolResult
from wick_graph.backends import FileSystem, LocalBackend
from wick_graph.errors import HookError, ToolError
from wick_graph.hooks import filesystem
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.testing import ScriptedModel, calls


def test_written_and_edited_files_are_in_the_state(fs: FileSystem) -> None:
    result = run(
        fs,
        wild("write_file", path="hello.py", content="print('hello')"),
        wild("edit_file", path=f"{fs.workdir}/hello.py", old_text="hello", new_text="bye"),
        wild("write_file", path="b", content="b"),
        wild("read_file", path="b"),
    )
    assert result.files == {
        f"{fs.workdir}/hello.py": "print('bye')",
        f"{fs.workdir}/b": "b",
    }


@pytest.mark.sisters
def test_the_state_does_not_keep_large_files(
    fs: FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "MAX_TRACKED_THREAD", 2_500_000)
    steps = [
        wild("write_file", path="exact", content="x" * 1_000_000),
        wild("write_file", path="more", content="x" * 1_000_001),
        wild("write_file", path="second", content="x" * 1_000_000),
        wild("write_file", path="third", content="x" * 1_000_000),
        wild("write_file", path="second", content="short"),
    ]
    files = run(fs, *steps).files
    kept = {path.rpartition("/")[2]: value for path, value in files.items()}
    assert kept["exact"] == "x" * 1_000_000
    assert kept["more"] == {"content": None, "size": 1_000_001}
    assert kept["third"] == {"content": None, "size": 1_000_000}
    assert kept["second"] == "short"


@pytest.mark.parametrize("door", [sync_door, async_door])
def test_parallel_writes_and_edits_of_one_reply(local: LocalBackend, door: Door) -> None:
    writes = [("write_file", {"path": f"d/{i}", "content": str(i) * 1_000}) for i in range(8)]
    edits = [("edit_file", {"path": "t", "old_text": f"<{i}>", "new_text": "!"}) for i in range(4)]
    result = run(
        local,
        calls(*writes, unchecked=True),
        wild("write_file", path="t", content="<0><1><2><3>"),
        calls(*edits, unchecked=True),
        wild("edit_file", path="t", old_text="!!!!", new_text="end"),
        door=door,
    )
    assert not [text for text in told(result) if text.startswith("Error")]
    assert [local.read(f"d/{i}").text for i in range(8)] == [str(i) * 1_000 for i in range(8)]
    assert local.read("t").text == "end"
    assert len(result.files) == 9
    assert result.files[f"{local.workdir}/t"] == "end"


@pytest.mark.parametrize("door", [sync_door, async_door])
def test_calls_that_change_one_file_do_so_in_their_order(local: LocalBackend, door: Door) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "t", "content": "0"}),
        *(
            ("edit_file", {"file_path": "./t", "old_text": f"{i}", "new_text": f"{i + 1}"})
            for i in range(12)
        ),
    ]
    local.write("t", b"before")
    result = run(local, wild("read_file", path="t"), calls(*asked, unchecked=True), door=door)
    assert not [text for text in told(result) if text.startswith("Error")]
    assert local.read("t").text == "12"
    assert result.files == {f"{local.workdir}/t": "12"}


def test_an_earlier_call_that_never_comes_is_not_waited_for_long(
    local: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuse(BaseHook):
        name = "refuse"

        def wrap_tool_call(self, call: Any, next: Callable[[Any], Any]) -> Any:
            if call.args.get("content") == "refused":
                return ToolResult(tool_call_id=call.id, name=call.name, output="no")
            return next(call)

    monkeypatch.setattr(filesystem, "WAIT_SECONDS", 0.05)
    asked = [("write_file", {"path": "t", "content": text}) for text in ("refused", "written")]
    result = run(local, calls(*asked, unchecked=True), hooks=[Refuse()])
    assert told(result)[0] == "no"
    assert local.read("t").text == "written"


class DieAfter(BaseHook):
    """End the run behind a tool's back, after it has run and before its result is stored."""

    name = "die"

    def __init__(self) -> None:
        self.times = 1

    def wrap_tool_call(self, call: Any, next: Callable[[Any], Any]) -> Any:
        result = next(call)
        if call.name == "edit_file" and self.times:
            self.times -= 1
            raise RuntimeError("died")
        return result


def test_an_edit_that_had_happened_is_not_done_again(local: LocalBackend, tmp_path: Path) -> None:
    local.write("t", b"a a a")
    script = ScriptedModel([wild("edit_file", path="t", old_text="a", new_text="aa"), "done"])
    hooks = [DieAfter(), FilesystemHook(local)]
    agent = Agent(model=script, hooks=hooks)
    with pytest.raises(HookError, match="died"):
        agent.invoke("go", thread_id="t")
    assert local.read("t").text == "aa a a"
    result = agent.resume("t")
    answer = json.loads(told(result)[-1])
    assert local.read("t").text == "aa a a"
    assert (answer["replacements"], "already changed" in answer["note"]) == (1, True)
    assert result.files == {f"{local.workdir}/t": "aa a a"}
    assert result.text == "done"


def test_an_interrupted_edit_is_done_once_or_said_to_be_unknown(local: LocalBackend) -> None:
    path = Path(local.workdir) / "t"
    path.write_text("a a")
    assert local.edit("t", "a", "aa", key="k:0").remaining == 1
    assert local.edit("t", "a", "aa", key="k:0").repeated
    path.write_text("a a")  # as if the process had died before the rename
    assert not local.edit("t", "a", "aa", key="k:0").repeated
    local.edit("t", "a", "b", key="k:1")
    with pytest.raises(ToolError, match="changed since this call was interrupted"):
        local.edit("t", "a", "aa", key="k:0")
    assert path.read_text() == "ba a"


def test_two_backends_of_one_folder_take_turns(tmp_path: Path) -> None:
    first, second = LocalBackend(tmp_path), LocalBackend(f"{tmp_path}/.")
    first.write("t", b"".join(b"<%d>" % i for i in range(20)))
    barrier = threading.Barrier(2)

    def edit(fs: LocalBackend, numbers: range) -> None:
        barrier.wait()
        for i in numbers:
            fs.edit("t", f"<{i}>", ".")

    threads = [
        threading.Thread(target=edit, args=(first, range(0, 20, 2))),
        threading.Thread(target=edit, args=(second, range(1, 20, 2))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert first.read("t").text == "." * 20
