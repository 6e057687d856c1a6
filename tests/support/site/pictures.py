"""The pictures of the site: graphs that `wick` draws, and what its debugger prints.

They are made from the agent that `docs/how-to/debugging.md` shows, so each is of a real run.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from tests.source import ROOT

PAGE: Final = ROOT / "docs" / "how-to" / "debugging.md"
BLOCK: Final = re.compile(r"^```(?:python|yaml)\n# (bank\.py|agents\.yaml)\n(.*?)^```", re.M | re.S)
SCRIPT: Final = "catch error; c; bt; why messages[-1].tool_calls[0].args; #10; blame"
WIDTH: Final = 100
FRAME: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""Rich's own frame without its fonts, which it would load from another host."""


def made() -> dict[str, str]:
    """Return the pictures, and the recording as a page, by their places on the site."""
    with tempfile.TemporaryDirectory() as name:
        desk = Path(name)
        for file, text in BLOCK.findall(PAGE.read_text("utf-8")):
            (desk / file).write_text(text, encoding="utf-8")
        _run(desk, "bank.py")
        debug = ["debug", "--thread", "monday", "--batch", "-e", SCRIPT]
        shown = "".join(_run(desk, "-m", "wick_graph", *debug, fails=True))
        _wick(desk, "graph", "bank", "--thread", "monday", "-o", "run.svg")
        _wick(desk, "export", "--thread", "monday", "--to", "html", "-o", "recording.html")
        return {
            "pictures/run.svg": (desk / "run.svg").read_text("utf-8"),
            "pictures/debugger.svg": terminal(
                f'$ wick debug --thread monday -e "{SCRIPT}"\n{shown}'
            ),
            "files/recording.html": (desk / "recording.html").read_text("utf-8"),
        }


def terminal(text: str) -> str:
    """Draw what a terminal shows."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in [*text.rstrip().splitlines(), ""]:
        style = "bold cyan" if line.startswith(("$", "▶")) else "red" if "✕" in line else ""
        console.print(Text(line, style=style), soft_wrap=False)
    return console.export_svg(title="wick debug", code_format=FRAME, unique_id="wick")


def _wick(desk: Path, *words: str) -> str:
    return _run(desk, "-m", "wick_graph", *words)


def _run(desk: Path, *words: str, fails: bool = False) -> str:
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "COLUMNS": str(WIDTH),
        "WICK_MODEL": "scripted:demo",
    }
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=desk, env=env, text=True, stdout=-1, stderr=-2, timeout=120)
    if done.returncode and not fails:
        raise SystemExit(f"wick {' '.join(words)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout
