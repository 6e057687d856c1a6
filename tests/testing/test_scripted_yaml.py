"""Scripts in YAML: the same steps, and errors that name file and step."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.exceptions import ContextOverflowError, ModelAPIError, ModelRateLimitError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from wick_graph.errors import ConfigError
from wick_graph.models.scripted.reply import ScriptedCut, ScriptedTimeout
from wick_graph.testing import ScriptedModel

WHOLE = """
profile: {max_input_tokens: 500}
chunk_delay: 0
steps:
  - Good morning.
  - text: Let me look.
    calls: [{tool: look, args: {at: sky}}, {tool: look, args: {at: sea}, id: mine}]
  - {call: look, args: {at: ground}}
  - {calls: [{tool: look, args: {at: 1}}], unchecked: true, usage: [3, 4]}
  - {text: ab, chunks: [a, b], id: my-message, usage: {input_tokens: 1, output_tokens: 2}}
  - {malformed_args: {tool: look, raw: 'not json'}}
  - {unknown_tool: fly}
  - {delay: 0, text: late}
lanes:
  - name: summary
    when: {purpose: summarize}
    cursor: fifo
    steps: [first summary, second summary]
"""


def look(at: str) -> str:
    """Look at something."""
    return at


def write(folder: Path, content: str) -> Path:
    path = folder / "script.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def test_a_script_from_a_file_plays_like_one_from_code(tmp_path: Path) -> None:
    model = ScriptedModel.from_yaml(write(tmp_path, WHOLE))
    thread: list[BaseMessage] = []
    replies: list[AIMessage] = []
    for _ in range(8):
        thread.append(HumanMessage("go on"))
        replies.append(model.bind_tools([look]).invoke(thread))
        thread.append(replies[-1])
    greeting, both, short, unchecked, chunked, broken, unknown, late = replies
    assert greeting.content == "Good morning."
    assert both.content == "Let me look."
    assert [(c["args"], c["id"]) for c in both.tool_calls] == [
        ({"at": "sky"}, "call_script_2_1"),
        ({"at": "sea"}, "mine"),
    ]
    assert short.tool_calls[0]["args"] == {"at": "ground"}
    assert unchecked.tool_calls[0]["args"] == {"at": 1}
    assert unchecked.usage_metadata
    assert unchecked.usage_metadata["total_tokens"] == 7
    assert (chunked.content, chunked.id) == ("ab", "my-message")
    assert chunked.usage_metadata
    assert chunked.usage_metadata["total_tokens"] == 3
    assert broken.invalid_tool_calls[0]["args"] == "not json"
    assert unknown.tool_calls[0]["name"] == "fly"
    assert late.content == "late"
    assert model.model_name == "scripted:script.yaml"
    assert model.profile == {"max_input_tokens": 500}
    summaries = [
        model.invoke("sum up", {"metadata": {"wick_purpose": "summarize"}}).content
        for _ in range(2)
    ]
    assert summaries == ["first summary", "second summary"]
    model.assert_complete()


FAULTS = """
- {rate_limit: {retry_after: 1.5}}
- {rate_limit: 1}
- {timeout: true}
- {cut_stream: 1}
- {cut_stream: {after_chunks: 1, step: one two}}
- {error: plain words}
- {error: {type: ModelAPIError, text: server error}}
- {error: {type: KeyError, text: a key}}
- {context_overflow: 2}
- {attempts: [{rate_limit: 2}, {empty: true}, {empty: }, done]}
"""


def test_every_fault_can_be_written(tmp_path: Path) -> None:
    model = ScriptedModel.from_yaml(write(tmp_path, "steps:\n" + FAULTS))
    long = [HumanMessage("a long prompt")]
    waits = []
    for kind in (
        *(ModelRateLimitError, ModelRateLimitError, ScriptedTimeout, ScriptedCut, ScriptedCut),
        *(RuntimeError, ModelAPIError, KeyError, ContextOverflowError),
    ):
        with pytest.raises(kind) as problem:
            model.invoke(long)
        waits.append(getattr(problem.value, "retry_after", None))
    assert waits[:2] == [1.5, 1]
    short = [HumanMessage("hi")]  # a conversation of its own: its faults come anew
    for kind in (ModelRateLimitError, ModelRateLimitError, ScriptedTimeout, ScriptedCut):
        with pytest.raises(kind):
            model.invoke(short)
    for kind in (ScriptedCut, RuntimeError, ModelAPIError, KeyError, ModelRateLimitError):
        with pytest.raises(kind):
            model.invoke(short)
    assert [model.invoke(short).content for _ in range(3)] == ["", "", "done"]
    model.assert_complete()


def test_settings_in_code_win(tmp_path: Path) -> None:
    path = write(tmp_path, "cursor: fifo\nsteps: [a]\n")
    assert ScriptedModel.from_yaml(path).cursor == "fifo"
    assert ScriptedModel.from_yaml(path, cursor="prompt").cursor == "prompt"


def test_a_mapping_is_a_script_too() -> None:
    model = ScriptedModel.from_mapping({"steps": ["hello"]}, model_name="inline")
    assert model.invoke("hi").content == "hello"
    assert model.model_name == "inline"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param("- a\n", "a script is a mapping", id="list"),
        pytest.param("", "a script is a mapping", id="empty-file"),
        pytest.param("steps: []\n", "the script is empty", id="no-steps"),
        pytest.param("stpes: [a]\n", "no key 'stpes'", id="unknown-key"),
        pytest.param("steps: hello\n", "steps must be a list", id="steps-text"),
        pytest.param("steps: [a, 5]\n", r"steps\[1\]: a step is a text or a mapping", id="number"),
        pytest.param("steps: [a, {}]\n", r"steps\[1\]: .* none", id="no-kind"),
        pytest.param(
            "steps: [{rate_limt: 1}]\n", r"steps\[0\]: there is no step 'rate_limt'", id="kind"
        ),
        pytest.param(
            "steps: [{timeout: true, text: x}]\n", r"steps\[0\]: .*timeout, text", id="two-kinds"
        ),
        pytest.param(
            "steps: [{rate_limit: {after: 1}}]\n", r"steps\[0\]: .*'after'", id="bad-option"
        ),
        pytest.param("steps: [{delay: soon, text: x}]\n", r"steps\[0\]: .*'soon'", id="delay"),
        pytest.param("steps: [{delay: 1}]\n", r"steps\[0\]: ", id="delay-of-nothing"),
        pytest.param("steps: [{text: a, args: {}}]\n", r"steps\[0\]: .*'args'", id="args-alone"),
        pytest.param(
            "steps: [{calls: [{name: x}]}]\n", r"steps\[0\]: .*'tool'", id="call-without-tool"
        ),
        pytest.param(
            "steps: [{text: ab, chunks: [a]}]\n", r"steps\[0\]: .*do not add up", id="chunks"
        ),
        pytest.param("steps: [{error: {type: Nope}}]\n", r"steps\[0\]: .*'Nope'", id="error-type"),
        pytest.param(
            "steps: [{attempts: [{timeout: true}, {tmeout: true}]}]\n",
            r"steps\[0\]\.attempts\[1\]: there is no step 'tmeout'",
            id="inside-attempts",
        ),
        pytest.param(
            "steps: [{attempts: [a, b]}]\n", r"steps\[0\]: attempts\(\)", id="two-answers"
        ),
        pytest.param(
            "lanes: [{steps: [a]}]\n", r"lanes\[0\]: '' is not a lane's name", id="lane-name"
        ),
        pytest.param(
            "lanes: [{name: a, steps: [a, {x: 1}]}]\n",
            r"lanes\[0\]\.steps\[1\]: there is no step 'x'",
            id="lane-step",
        ),
        pytest.param(
            "lanes: [{name: a, when: {agnet: x}, steps: [a]}]\n",
            r"lanes\[0\]: .*'agnet'",
            id="matcher",
        ),
        pytest.param("lanes: [{name: a, if: x}]\n", r"lanes\[0\] has no key 'if'", id="lane-key"),
        pytest.param("steps:\n- {text: a\n", "not valid YAML.*line", id="syntax"),
        pytest.param("steps: [a]\nsteps: [b]\n", "'steps' is given twice", id="duplicate"),
    ],
)
def test_a_mistake_is_named_with_file_and_step(tmp_path: Path, content: str, says: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ConfigError, match=f"(?s){says}") as problem:
        ScriptedModel.from_yaml(path)
    assert str(path) in str(problem.value)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml cannot be read"):
        ScriptedModel.from_yaml(tmp_path / "absent.yaml")
