"""What README.md and docs/ show is run: each document's blocks in order, in one folder.

- A `python` block is a program. If its first line is a comment with a file's name (`# hello.py`),
  it is kept under that name, as is a block of any other language, so that later blocks find it.
  Where a line ends in `# → text`, the text must be among what the program prints, in order.
- A `console` or `bash` block that starts with `$` and `wick`, `python`, `cd` or `curl` is a
  session. The commands run in `bash`, and where output is shown it is compared: `…` stands for any
  text in its line, and alone on a line for any lines. A command that is `wick` alone runs in this
  process, which saves its start. `wick serve` runs until the end of the page, on a free port in
  place of 8000; in `wick chat` the lines behind `> ` are typed at a terminal; `cd` is for the whole
  page.
- A `yaml` block is a part of agents.yaml: keys of an agent or of the file. It is read as such.
- A block under `<!-- no-run: reason -->` is left out.

The folder holds this checkout's `agents.yaml`; the default model is the scripted demo. A tutorial
begins in an empty folder, without a model.
"""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import pytest
import typer.core
import typer.main
import yaml

from tests.source import ROOT
from tests.support import forked
from tests.support.command import Folder
from wick_graph.cli.app import app, call
from wick_graph.config import AgentsFile, parse_config

LONG = ("debugging.md", "first-agent.md", "messages.md", "python.md", "testing.md")
"""Pages whose blocks take longest; they run by night."""
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAX_NOT_RUN = 4
SECONDS = 60
SHOWN_PORT = 8000
OR_CODE = ' || echo "exit code $?"'
UNSET = ("_API_KEY", "WICK_MODEL", "XDG_STATE_HOME", "PYTHONPATH", "OPENAI_BASE_URL")
PROMPT = "> "
PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "wick_graph.pytest_plugin"}
"""Of all that is installed here, a reader has ours."""

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^ *```", re.M | re.S)
NOT_RUN = re.compile(r"<!-- no-run: (\S[^>]*) -->\s*\Z")
PRINTED = re.compile(r"# → (.+?)\s*$", re.M)
FILE_NAME = re.compile(r"\A(?:#|//|--) ?([\w-]+(?:\.\w+)+)$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    document: str
    line: int
    language: str
    text: str
    reason: str
    """Why it is not run; empty if it is."""

    @property
    def file_name(self) -> str:
        named = FILE_NAME.match(self.text)
        return named[1] if named else ""

    @property
    def is_session(self) -> bool:
        shown = self.language in ("console", "bash", "shell", "sh")
        return shown and re.match(r"\$ (\w+=\S+ )*(wick|python|cd|curl) ", self.text) is not None


def blocks_of(text: str, document: str) -> list[Block]:
    found = []
    for fence in FENCE.finditer(text):
        before = text[: fence.start()]
        reason = NOT_RUN.search(before)
        line = before.count("\n") + 1
        body = textwrap.dedent(fence["text"])
        found.append(Block(document, line, fence["language"], body, reason[1] if reason else ""))
    return found


def session(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a session with the lines that are shown below it."""
    joined = text.replace("\\\n", " ")
    command, shown = "", list[str]()
    for line in joined.rstrip().splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line[2:], []
        else:
            shown.append(line)
    if command:
        yield command, shown


def fits(shown: list[str], printed: str) -> bool:
    """Compare shown lines with what was printed; blank lines at the end do not count."""
    while shown and not shown[-1].strip():
        shown = shown[:-1]
    pattern = ""
    for line in shown:
        text = re.escape(line.rstrip()).replace("…", ".*")
        pattern += r"(?:.*\n)*?" if line.strip() == "…" else text + r"\n"
    lines = [line.rstrip() for line in printed.rstrip().splitlines()]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


class Desk:
    """A folder in which a reader of a document works.

    Args:
        folder: the folder; it is made.
        bin_: a folder with the commands `python` and `wick`; made for this checkout if missing.
        learns: whether the folder is empty and there is no model, as for a tutorial.
    """

    def __init__(self, folder: Path, bin_: Path, *, learns: bool = False) -> None:
        self.folder = folder
        self.bin = bin_
        self.learns = learns
        self.own = not bin_.exists()
        self.port = SHOWN_PORT
        self._open = ExitStack()
        folder.mkdir()
        if self.own:
            self._make_commands()
        nowhere = "http://127.0.0.1:1"
        kept = {k: v for k, v in os.environ.items() if not k.endswith(UNSET)}
        self.env = {
            **kept,
            "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            **({"PYTHONPATH": str(ROOT), **PLUGINS} if self.own else {}),
            "HOME": str(folder.parent / "home"),  # MCP clients pass this one on
            "OLLAMA_HOST": nowhere,
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "NO_PROXY": "127.0.0.1,localhost",
        }
        if not learns:
            self.env["WICK_MODEL"] = "scripted:demo"
            text = (ROOT / "agents.yaml").read_text(encoding="utf-8")
            (folder / "agents.yaml").write_text(text, encoding="utf-8")

    def _make_commands(self) -> None:
        self.bin.mkdir()
        python = shlex.quote(sys.executable)
        start = "import sys; from wick_graph.cli import main; sys.argv[0] = sys.argv.pop(1); main()"
        for name, command in (("python", python), ("wick", f"{python} -c '{start}' \"$0\"")):
            (self.bin / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
            (self.bin / name).chmod(0o755)

    def run(self, command: list[str]) -> tuple[int, str]:
        """Run a command; return its exit code and what it printed, errors included."""
        done = forked.run(
            command,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        return done.returncode, done.stdout

    def shell(self, command: str, shown: list[str]) -> tuple[int, str]:
        """Run a command line, and play what is shown below it."""
        if command.startswith("wick debug ") and command.endswith(OR_CODE):
            code, printed = self.shell(command.removesuffix(OR_CODE), shown)
            return 0, f"{printed}exit code {code}\n" if code else printed
        words = plain_words(command)
        if words[:1] == ["cd"]:
            self.folder /= words[1]
            return 0, ""
        if words[:2] == ["wick", "serve"]:
            return 0, self._serve([*words[1:], "--port", str(self._free_port())])
        if words[:2] == ["wick", "chat"]:
            return self._chat(words[1:], shown)
        if words[:1] == ["wick"] and self.own:
            return self._inside(words, lambda: call(words[1:]))
        if words[:2] == ["python", "-m"] and self.own:
            return self.run([sys.executable, *words[1:]])
        return self.run(["bash", "-c", command])

    def here(self, text: str) -> str:
        """Replace the port that a document shows by the one of its server."""
        return text.replace(f":{SHOWN_PORT}", f":{self.port}")

    def python(self, name: str) -> tuple[int, str]:
        """Run a program of the folder; those of tutorials in this process, which saves its start.

        Others may leave open what only the end of a process closes.
        """
        if not (self.own and self.learns):
            return self.run([sys.executable if self.own else str(self.bin / "python"), name])

        def program() -> int:
            sys.path.insert(0, str(self.folder))
            try:
                runpy.run_path(name, run_name="__main__")
            except BaseException:
                traceback.print_exc()
                return 1
            return 0

        return self._inside(["python", name], program)

    def _inside(self, argv: list[str], program: Callable[[], int]) -> tuple[int, str]:
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as said,  # a program's own may write it
            patch.dict(os.environ, self.env, clear=True),
            patch.object(sys, "argv", [str(self.bin / argv[0]), *argv[1:]]),
            patch.object(sys, "stdin", io.StringIO()),
            Folder(self.folder).entered(),
            redirect_stdout(said),
            redirect_stderr(said),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # as `main` does
            code = program()
            said.seek(0)
            return code, said.read()

    def _free_port(self) -> int:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        return self.port

    def _serve(self, args: list[str]) -> str:
        """Start a server, and return its first line."""
        wick = [sys.executable, "-m", "wick_graph"] if self.own else [str(self.bin / "wick")]
        server = forked.Popen(
            [*wick, *args],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._open.callback(server.communicate, timeout=SECONDS)
        self._open.callback(server.send_signal, signal.SIGTERM)
        assert server.stdout is not None
        lines = []
        for line in server.stdout:
            lines.append(line.replace(f":{self.port}", f":{SHOWN_PORT}"))
            if f":{self.port}" in line:
                break
        return "".join(lines)

    def _chat(self, args: list[str], shown: list[str]) -> tuple[int, str]:
        typed = [line.removeprefix(PROMPT) for line in shown if line.startswith(PROMPT)]
        with Chat(self).at_terminal(*args) as terminal:
            for line in typed:
                terminal.wait_for(PROMPT)
                terminal.press(f"{line}\n")
            code, _ = terminal.end()
            return code, terminal.shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


class Chat(Folder):
    """The folder of a desk, with the desk's own command at a terminal."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk.folder)
        self.desk = desk

    @property
    def command(self) -> list[str]:
        return [str(self.desk.bin / "wick")]

    @property
    def env(self) -> dict[str, str]:
        return {**self.desk.env, "TERM": "dumb", "INPUTRC": "/dev/null"}


def plain_words(command: str) -> list[str]:
    """Return the words of a command line; none if a shell must read it."""
    command = command.removesuffix(" < /dev/null")  # no command of these tests has a terminal
    bare = re.sub(r"'[^']*'|\"[^\"$`\\]*\"", "", command)
    return [] if re.search(r"[|&;<>`$*?~(){}\"'\\]|\A\w+=", bare) else shlex.split(command)


def follow(block: Block, desk: Desk) -> None:
    """Do what a block shows."""
    where, text = f"{block.document}:{block.line}", desk.here(block.text)
    if block.file_name:
        (desk.folder / block.file_name).write_text(text, encoding="utf-8")
    if block.language == "python":
        name = block.file_name or f"line_{block.line}.py"
        (desk.folder / name).write_text(text, encoding="utf-8")
        code, printed = desk.python(name)
        assert code == 0, f"{where} ended with {code}:\n{printed}"
        told = "".join(f".*{re.escape(text)}" for text in PRINTED.findall(block.text))
        assert re.match(told, printed, re.DOTALL), f"{where} printed:\n{printed}"
    elif block.is_session:
        for command, shown in session(block.text):
            assert "…" not in command, f"{where}: {command!r} cannot be run; write it in full"
            code, printed = desk.shell(desk.here(command), shown)
            assert code == 0, f"{where}: {command!r} ended with {code}:\n{printed}"
            if any(line.strip() for line in shown):
                told = "\n".join(shown)
                assert fits(shown, printed), f"{where}: {command}\n{told}\n--- printed:\n{printed}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.slow] * (path.name in LONG))
        for path in DOCUMENTS
    ],
)
def test_what_a_document_shows_works(document: Path, tmp_path: Path) -> None:
    learns = document.parent.name == "tutorials"
    with Desk(tmp_path / "desk", tmp_path / "bin", learns=learns) as desk:
        for block in blocks_of(document.read_text(encoding="utf-8"), document.name):
            if not block.reason:
                follow(block, desk)


def every_block() -> list[Block]:
    return [b for d in DOCUMENTS for b in blocks_of(d.read_text(encoding="utf-8"), d.name)]


TOKENS = dict.fromkeys(
    [
        *("TICKETS_TOKEN", "TELEGRAM_TOKEN", "HOOK_TOKEN", "HOOK_SECRET"),
        *("DISCORD_TOKEN", "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "MAIL_PASSWORD"),
        "OPENAI_API_KEY",
    ],
    "t",
)
PARTS = [block for block in every_block() if block.language == "yaml"]


@pytest.mark.parametrize("block", PARTS, ids=lambda block: f"{block.document}:{block.line}")
def test_a_part_of_agents_yaml_that_is_shown_is_read(block: Block, tmp_path: Path) -> None:
    keys = yaml.safe_load(block.text)
    whole: dict[str, Any] = {"agents": {"default": {}}}
    if keys.keys() <= AgentsFile.model_fields.keys():
        whole |= keys
    else:
        whole["agents"]["default"] = keys
    made = parse_config(yaml.safe_dump(whole), source="agents.yaml", base_dir=tmp_path, env=TOKENS)
    assert made.agents


def test_few_blocks_are_left_out() -> None:
    every = every_block()
    left_out = [f"{b.document}:{b.line}: {b.reason}" for b in every if b.reason]
    assert len(left_out) <= MAX_NOT_RUN, left_out
    assert any(b.language == "python" and not b.reason for b in every)


def test_make_commands_that_are_shown_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    guides = [*DOCUMENTS, ROOT / "AGENTS.md", ROOT / "SECURITY.md", ROOT / "benchmarks/README.md"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in guides)
    code = re.findall(r"^ *```.*?^ *```|`[^`\n]+`", text, re.M | re.S)
    shown = {verb for part in code for verb in re.findall(r"\bmake ([a-z][\w-]*)", part)}
    assert {"run", "test"} <= shown
    assert shown <= targets, sorted(shown - targets)


def test_wick_commands_that_are_shown_exist() -> None:
    known = typer.main.get_command(app)
    assert isinstance(known, typer.core.TyperGroup)
    options = {name: options_of(command) for name, command in known.commands.items()}
    found = []
    for path in [*DOCUMENTS, ROOT / "AGENTS.md", ROOT / "SECURITY.md"]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            shown = re.search(r"(?:^|[`$ ])wick ([a-z]+)", line)
            named = shown and (
                line.lstrip().startswith("wick ") or "`wick " in line or "$ " in line
            )
            if not (shown and named):
                continue
            wrong = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", line)) - options.get(shown[1], set())
            if shown[1] not in options or wrong:
                found.append(f"{path.name}:{number}: {shown[1]} {' '.join(sorted(wrong))}")
    assert found == []


def options_of(command: Any) -> set[str]:
    """Name the options of a command, and of the commands below it."""
    own = {name for p in command.params for name in [*p.opts, *p.secondary_opts]}
    below = getattr(command, "commands", {}).values()
    return own.union(*(options_of(each) for each in below))


# --- the checks above, checked -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "printed", "fit"),
    [
        (["a", "b"], "a\nb\n", True),
        (["a", "b"], "a\nb\nc\n", False),
        (["a", ""], "a\n\n", True),
        (["thread th_… (new)"], "thread th_1f (new)\n", True),
        (["thread th_… (new)"], "thread th_1f\n", False),
        (["a", "…", "z"], "a\nb\nc\nz\n", True),
        (["a", "…", "z"], "a\nz\n", True),
        (["a", "…"], "b\n", False),
        (["1.5 (x)"], "1a5 (x)\n", False),
    ],
)
def test_shown_output_is_compared_line_by_line(shown: list[str], printed: str, fit: bool) -> None:
    assert fits(shown, printed) is fit


SAMPLE = """\
# Title

```python
# hello.py
print("hello")  # → hello
```

- in a list

  ```console
  $ python hello.py
  hello
  $ python -c 'print(2)' \\
      | tail -n 1
  2
  ```

<!-- no-run: takes a key -->
```python
raise SystemExit("not run")
```
"""


def test_blocks_are_found_and_followed(tmp_path: Path) -> None:
    first, second, third = blocks_of(SAMPLE, "sample")
    assert (first.line, first.file_name, third.reason) == (3, "hello.py", "takes a key")
    assert second.is_session
    assert [shown for _, shown in session(second.text)] == [["hello"], ["2"]]
    desk = Desk(tmp_path / "desk", tmp_path / "bin")
    follow(first, desk)
    follow(second, desk)
    with pytest.raises(AssertionError, match="not run"):
        follow(third, desk)
    for language, text in [
        ("console", "$ python hello.py\ngoodbye\n"),
        ("python", "print('hello')  # → goodbye\n"),
        ("console", "$ python -c 'raise SystemExit(3)' goodbye\n"),
    ]:
        with pytest.raises(AssertionError, match=r"sample:1(.|\n)*(goodbye|hello)"):
            follow(Block("sample", 1, language, text, ""), desk)
