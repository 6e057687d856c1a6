"""What docs/how-to/server.md shows, against a real server."""

from __future__ import annotations

import re
import sys

import pytest

from tests.server.support import Served
from tests.source import ROOT
from tests.support import forked
from tests.test_readme import PRINTED, Block, blocks_of

TEXT = (ROOT / "docs" / "how-to" / "server.md").read_text("utf-8")
PYTHON = [
    block for block in blocks_of(TEXT, "server.md") if block.language == "python" and block.reason
]
"""Those that speak to a server; the others run with all documents."""


@pytest.mark.sisters
@pytest.mark.parametrize("block", PYTHON, ids=lambda block: f"line {block.line}")
def test_a_program_of_the_document_runs(guarded: Served, block: Block) -> None:
    token = guarded.wick("token", "create")
    text = block.text.replace("http://127.0.0.1:8000", guarded.url)
    program = f"TOKEN = {token!r}\n{text}"
    done = forked.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    told = "".join(f".*{re.escape(text)}" for text in PRINTED.findall(block.text))
    assert re.match(told, done.stdout, re.DOTALL), done.stdout


def test_the_document_has_programs() -> None:
    assert len(PYTHON) == 2
