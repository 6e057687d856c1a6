"""FilesystemHook in an agent's run, and a backend of files that is a dictionary."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from tests.engine.support import Door, sync_door, wild
from wick_graph import Agent, Result
from wick_graph.backends import (
    Edited,
    Entry,
    Executed,
    Found,
    Listing,
    Match,
    Matches,
    Stop,
    Text,
    Written,
)
from wick_graph.errors import ToolError
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.testing import ScriptedModel


class MemoryFiles:
    """The protocol on a dictionary: the tools must not know the difference."""

    workdir = "/workspace"
    can_execute = True
    level = ""
    confinement = ""
    notices = ()

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.kept: dict[str, bytes] = {}

    def _at(self, path: str) -> str:
        parts = [p for p in path.removeprefix(self.workdir).split("/") if p not in ("", ".")]
        return "/".join((self.workdir, *parts))

    def _text(self, path: str) -> str:
        try:
            return self.files[self._at(path)]
        except KeyError:
            raise ToolError(f"{path!r} does not exist") from None

    def ls(self, path: str = ".", limit: int | None = None) -> Listing:
        base = f"{self._at(path).rstrip('/')}/"
        below = {p[len(base) :]: t for p, t in self.files.items() if p.startswith(base)}
        names = sorted({name.partition("/")[0] for name in below})
        entries = [
            Entry(n, "file", len(below[n])) if n in below else Entry(n, "dir", 0) for n in names
        ]
        return Listing(entries[:limit], len(entries))

    def read(self, path: str, *, line: int = 1, lines: int | None = None, byte: int = 0) -> Text:
        text = self._text(path)
        return Text(self._at(path), text, len(text), str(hash(text)))

    def asks(self, path: str) -> str:
        return ""

    def write(self, path: str, data: bytes, *, allowed: bool = False) -> Written:
        self.files[self._at(path)] = data.decode()
        return Written(self._at(path), len(data), str(hash(data.decode())))

    def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        unique: bool = False,
        seen: Mapping[str, str] | None = None,
        key: str = "",
        allowed: bool = False,
    ) -> Edited:
        text = self._text(path)
        if old not in text:
            raise ToolError("old_text not found in file")
        changed = text.replace(old, new, 1)
        self.files[self._at(path)] = changed
        return Edited(self._at(path), changed, str(hash(changed)), text.count(old) - 1)

    def glob(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Found:
        names = sorted(p for p in self.files if fnmatch.fnmatchcase(p.rpartition("/")[2], pattern))
        return Found(names, False)

    def grep(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Matches:
        found = [
            Match(name, number, line)
            for name, text in sorted(self.files.items())
            for number, line in enumerate(text.splitlines(), 1)
            if pattern in line
        ]
        return Matches(found, False)

    def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        name: str = "",
        stop: Stop | None = None,
    ) -> Executed:
        return Executed(command.removeprefix("echo ") + "\n", "", 0, False)

    def keep(self, name: str, data: bytes) -> str:
        self.kept[name] = data
        return f"/kept/{name}"


def run(fs: Any, *steps: Any, door: Door = sync_door, **options: Any) -> Result:
    hook = FilesystemHook(fs, **options.pop("hook", {}))
    script = ScriptedModel([*steps, "done"])
    agent = Agent(model=script, hooks=[*options.pop("hooks", ()), hook], **options)
    return door(agent, "go")


def told(result: Result) -> list[str]:
    return [message.text for message in result.messages if message.type == "tool"]


def one(fs: Any, name: str, /, **args: Any) -> str:
    (text,) = told(run(fs, wild(name, **args)))
    return text
