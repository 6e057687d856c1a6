"""The pictures of the site: graphs that `wick` draws, and what its debugger prints.

They are made from the agent that `docs/how-to/debugging.md` shows, so each is of a real run.
"""

from __future__ import annotations

import io
import os
import re
import runpy
from contextlib import chdir, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

from rich.console import Console
from rich.text import Text

from tests.source import ROOT
from tests.support.site import SiteError
from wick_graph.cli.app import call

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
    settings = {"COLUMNS": str(WIDTH), "WICK_MODEL": "scripted:demo", "NO_COLOR": "1"}
    with TemporaryDirectory() as name, chdir(name), patch.dict(os.environ, settings):
        for file, text in BLOCK.findall(PAGE.read_text("utf-8")):
            Path(file).write_text(text, encoding="utf-8")
        with redirect_stdout(io.StringIO()):
            runpy.run_path("bank.py")
        shown = _wick("debug", "--thread", "monday", "--batch", "-e", SCRIPT)
        _wick("graph", "bank", "--thread", "monday", "-o", "run.svg")
        _wick("export", "--thread", "monday", "--to", "html", "-o", "recording.html")
        typed = f'$ wick debug --thread monday -e "{SCRIPT}"'
        return {
            "pictures/run.svg": Path("run.svg").read_text("utf-8"),
            "pictures/debugger.svg": terminal(f"{typed}\n{shown}"),
            "files/recording.html": Path("recording.html").read_text("utf-8"),
        }


def terminal(text: str) -> str:
    """Draw what a terminal shows."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in [*text.rstrip().splitlines(), ""]:
        style = "bold cyan" if line.startswith(("$", "▶")) else "red" if "✕" in line else ""
        console.print(Text(line, style=style), soft_wrap=False)
    return console.export_svg(title="wick debug", code_format=FRAME, unique_id="wick")


def _wick(*words: str) -> str:
    """Run a command; return what it prints. The debugger ends with 3 at a breakpoint."""
    with redirect_stdout(io.StringIO()) as said:
        code = call([*words])
    if code not in (0, 3):
        raise SiteError(f"wick {' '.join(words)} ended with {code}:\n{said.getvalue()}")
    return said.getvalue()
