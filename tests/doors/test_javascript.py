"""JavaScript's clients against our doors, as users install them: `make test-doors`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.support import write
from tests.server.support import Served, serving

pytestmark = [pytest.mark.doors, pytest.mark.xdist_group("doors")]

HERE = Path(__file__).parent
SECONDS = 120


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(tmp_path_factory.mktemp("doors")) as served:
        yield served


def told(program: str, *args: str) -> Any:
    """Run a program, and return what it says."""
    done = subprocess.run(
        ["node", HERE / program, *args], capture_output=True, text=True, timeout=SECONDS
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


def test_the_ai_sdk_s_chat_with_an_approval(served: Served) -> None:
    seen = told("ai_chat.mjs", f"{served.url}/ai-sdk/careful", "ai-chat")
    assert [part["type"] for part in seen["asked"]] == ["step-start", "text", "tool-calculate"]
    assert seen["asked"][-1]["state"] == "approval-requested"
    assert (seen["finished"], seen["errors"]) == (["tool-calls", "stop"], [])
    assert shown(seen["messages"]) == ["What is 21*2?", "Let me see.", "42", "It is 42."]
    assert seen["messages"][1]["parts"][2]["approval"]["approved"] is True


def test_the_ai_sdk_s_chat_sees_all_once_although_the_server_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        port = served.port
        program: list[Any] = [
            "node",
            HERE / "ai_chat.mjs",
            f"{served.url}/ai-sdk/slow",
            "ai-chat",
            "breaks",
        ]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "some words\n"
            served.kill()
            served.start(port=port)
            seen = json.loads(client.communicate(timeout=SECONDS)[0])
        words = " ".join(f"word{i}" for i in range(120))
        assert shown(seen["messages"]) == ["What is 21*2?", "Let me see.", "42", words]
        with served.http() as http:
            text = http.get("/threads/ai-chat/state").text
        assert text.count('"tool_call_id"') == 1  # the call ran once


def shown(messages: Any) -> list[str]:
    """Return what a page shows of messages: texts and results."""
    parts = [part for message in messages for part in message["parts"]]
    return [part.get("text", part.get("output")) for part in parts if part["type"] != "step-start"]


def test_acp_s_client_with_an_approval_and_a_kill(tmp_path: Path) -> None:
    write(tmp_path)
    seen = told("acp_client.mjs", str(tmp_path), sys.executable)
    said = [["agent_message_chunk", "Let me see."]]
    call = [["tool_call_update", "in_progress"], ["tool_call_update", "completed"]]
    end = [*call, ["agent_message_chunk", "It is 42."]]
    assert seen["prompt"] == {
        "stopReason": "end_turn",
        "shown": [*said, ["tool_call", "pending"], *end],
    }
    assert seen["asked"] == 1
    before = [["user_message_chunk", "What is 21*2?"], *said, ["tool_call", "pending"]]
    assert seen["loaded"] == [*before, *end]
