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
SECONDS = 600


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


WORDS = " ".join(f"word{i}" for i in range(120))


def broken(folder: Path, program: str, path: str, *args: str) -> tuple[Any, str]:
    """Run a program whose server is killed after some words; return what it says, and the state.

    The state is that of the only thread.
    """
    with serving(folder) as served:
        port = served.port
        command: list[Any] = ["node", HERE / program, f"{served.url}/{path}", *args]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "some words\n"
            served.kill()
            served.start(port=port)
            seen = json.loads(client.communicate(timeout=SECONDS)[0])
        with served.http() as http:
            [thread] = http.get("/threads").json()
            return seen, http.get(f"/threads/{thread['thread_id']}/state").text


def ran_once(state: str) -> bool:
    """Tell whether the only call of a thread ran once."""
    return state.count('"tool_call_id"') == 1


def test_langgraph_s_client_sees_all_once_although_the_server_is_killed(tmp_path: Path) -> None:
    seen, state = broken(tmp_path, "langgraph_sdk.mjs", "langgraph", "breaks")
    assert seen["told"].endswith(WORDS)  # a reply that was cut off is said again, as it is stored
    assert seen["messages"] == ["What is 21*2?", "Let me see.", "42", WORDS]
    assert (seen["updates"], seen["last"]) == (["model", "tools", "model"], "end")
    assert ran_once(state)


def test_use_stream_shows_all_once_although_the_server_is_killed(tmp_path: Path) -> None:
    seen, state = broken(tmp_path, "use_stream.mjs", "langgraph", "breaks")
    assert seen["shown"] == ["What is 21*2?", "Let me see.", "42", WORDS]
    assert ran_once(state)


def test_ag_ui_s_client_sees_all_once_although_the_server_is_killed(tmp_path: Path) -> None:
    seen, state = broken(tmp_path, "ag_ui_client.mjs", "ag-ui/slow", "breaks")
    assert [text for _, text in seen["messages"]] == ["What is 21*2?", "Let me see.", "42", WORDS]
    assert ran_once(state)


def test_the_ai_sdk_s_chat_sees_all_once_although_the_server_is_killed(tmp_path: Path) -> None:
    seen, state = broken(tmp_path, "ai_chat.mjs", "ai-sdk/slow", "ai-chat", "breaks")
    assert shown(seen["messages"]) == ["What is 21*2?", "Let me see.", "42", WORDS]
    assert ran_once(state)


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
