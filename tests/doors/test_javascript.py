"""JavaScript's clients against our doors, as users install them: `make test-doors`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.server.support import Served, serving

pytestmark = [pytest.mark.doors, pytest.mark.xdist_group("doors")]

HERE = Path(__file__).parent
SECONDS = 120


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(tmp_path_factory.mktemp("doors")) as served:
        yield served


def told(program: str, url: str) -> Any:
    """Run a program, and return what it says."""
    done = subprocess.run(
        ["node", HERE / program, url], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_langgraph_s_client(served: Served) -> None:
    seen = told("langgraph_sdk.mjs", f"{served.url}/langgraph")
    assert seen["assistants"] == ["default", "slow", "careful"]
    assert seen["answer"] == "It is 42."
    assert {*seen["events"]} == {"metadata", "values", "messages", "updates", "end"}
    assert seen["joined"] == seen["events"]
    assert seen["asked"] == ["calculate"]


def test_react_s_use_stream_with_an_approval(served: Served) -> None:
    seen = told("use_stream.mjs", f"{served.url}/langgraph")
    assert seen["asked"] == {"expression": "21*2"}
    assert seen["before"] == ["What is 21*2?", "Let me see."]
    assert seen["after"] == ["What is 21*2?", "Let me see.", "42", "It is 42."]
    assert seen["left"] == 0


def test_ag_ui_s_client_with_an_approval(served: Served) -> None:
    seen = told("ag_ui_client.mjs", f"{served.url}/ag-ui/careful")
    assert seen["question"]["metadata"] == {"tool": "calculate", "args": {"expression": "21*2"}}
    assert seen["outcome"] == "success"
    assert seen["kinds"].count("RUN_FINISHED") == 2
    assert seen["messages"] == [
        ["user", "What is 21*2?"],
        ["assistant", "Let me see."],
        ["tool", "42"],
        ["assistant", "It is 42."],
    ]
