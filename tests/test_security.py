"""SECURITY.md promises nothing that no test holds, and `make attack` attacks what it says."""

from __future__ import annotations

import ast
import re

import pytest

from tests.fuzz.__main__ import attack
from tests.fuzz.targets import TARGETS
from tests.source import ROOT

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)


def test_each_test_that_is_named_is_there() -> None:
    missing = []
    for file, name in NAMED:
        path = ROOT / file
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.exists() else ast.parse("")
        found = (n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        if name not in {function.name for function in found}:
            missing.append(f"{file}::{name}")
    assert missing == []
    assert len(NAMED) > 50


def test_each_promise_names_a_test() -> None:
    tables = re.findall(r"^\| Promise .*Tests \|\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(tables) >= 5
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py::\w+`", row)] == []


@pytest.mark.parametrize("name", TARGETS)
def test_each_target_is_attacked_for_a_moment(name: str) -> None:
    assert attack(name, 1) > 0
