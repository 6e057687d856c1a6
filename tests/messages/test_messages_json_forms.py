"""Messages as data: the wick form, byte for byte, and records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    ToolMessage,
)

from wick_graph.errors import MessageError
from wick_graph.messages import (
    ToolCall,
    ToolResult,
    agent_call,
    agent_response,
    ai,
    dumps,
    error_message,
    from_record,
    from_wick,
    human,
    loads,
    message,
    messages_from_wick,
    messages_to_wick,
    new_messages,
    system,
    to_record,
    to_wick,
    tool_msg,
    validate,
)

READ_A_FILE = """\
[
  {
    "role": "system",
    "content": "You are a coding assistant."
  },
  {
    "role": "user",
    "content": "Read the main.py file"
  },
  {
    "role": "assistant",
    "content": "",
    "tool_calls": [
      {
        "id": "call_abc123",
        "name": "read_file",
        "args": {
          "path": "/workspace/main.py"
        }
      }
    ]
  },
  {
    "role": "tool",
    "content": "from fastapi import FastAPI\\napp = FastAPI()\\n\\n@app.get('/')\\ndef root():\\n    return {'status': 'ok'}",
    "tool_call_id": "call_abc123",
    "name": "read_file"
  },
  {
    "role": "assistant",
    "content": "The file contains a FastAPI app with a single GET endpoint at / that returns {\\"status\\": \\"ok\\"}."
  }
]"""  # noqa: E501  # the bytes are the test

WITH_MEMORY = READ_A_FILE.replace(
    "You are a coding assistant.",
    "You are a coding assistant.\\n\\n<agent_memory>\\n# Project notes\\n- Using FastAPI\\n"
    "</agent_memory>",
)

WRITE_A_FILE = (
    '[{"role":"system","content":"You are a coding assistant."},'
    '{"role":"user","content":"Create a hello.py file"},'
    '{"role":"assistant","content":"","tool_calls":[{"id":"call_w01","name":"write_file",'
    '"args":{"path":"/workspace/hello.py","content":"print(\'hello\')"}}]},'
    '{"role":"tool","content":"{\\"path\\":\\"/workspace/hello.py\\",\\"bytes_written\\":14}",'
    '"tool_call_id":"call_w01","name":"write_file"},'
    '{"role":"assistant","content":"Created hello.py with a simple print statement."}]'
)

EDIT_CALL = (
    '{"id":"call_xyz789","name":"edit_file","args":{"path":"/workspace/main.py",'
    "\"old_text\":\"return {'status': 'ok'}\","
    "\"new_text\":\"return {'status': 'ok', 'version': '1.0'}\"}}"
)

GREP_RESULT = (
    '{"tool_call_id":"call_grep01","name":"grep","output":"{\\"matches\\":[{\\"file\\":'
    '\\"/workspace/main.py\\",\\"line\\":4,\\"text\\":\\"def root():\\"}],\\"truncated\\":false}"}'
)

UNICODE = (
    '[{"role":"user","content":"größe 😀 \u2028 \\u0000 \\u001f <b>&amp;"},'
    '{"role":"assistant","content":"","tool_calls":[{"id":"c","name":"t",'
    '"args":{"ключ":{"b":[1,2.5,true,null,"é"],"a":{}}}}]}]'
)


class TestReferenceConversations:
    @pytest.mark.parametrize(
        ("text", "indent"),
        [
            pytest.param(READ_A_FILE, 2, id="M-14"),
            pytest.param(WITH_MEMORY, 2, id="M-14-memory"),
            pytest.param(WRITE_A_FILE, None, id="M-14-write"),
            pytest.param(UNICODE, None, id="unicode"),
            pytest.param("[]", None, id="empty"),
        ],
    )
    def test_in_and_out_are_the_same_bytes(self, text: str, indent: int | None) -> None:
        chain = loads(text.encode())
        chain.validate()
        assert dumps(chain, indent=indent).encode() == text.encode()

    def test_a_conversation_is_what_the_constructors_make(self) -> None:
        chain = loads(READ_A_FILE)
        assert chain[:3] == [
            system("You are a coding assistant."),
            human("Read the main.py file"),
            ai("", ToolCall("call_abc123", "read_file", {"path": "/workspace/main.py"})),
        ]
        answer = chain[3]
        assert isinstance(answer, ToolMessage)
        assert (answer.tool_call_id, answer.name) == ("call_abc123", "read_file")

    def test_a_call(self) -> None:  # M-09
        call = ToolCall.of(json.loads(EDIT_CALL))
        dumped = json.dumps(call.to_dict(), separators=(",", ":"), ensure_ascii=False)
        assert dumped == EDIT_CALL

    def test_a_result(self) -> None:  # M-12, M-15
        match = '{"file":"/workspace/main.py","line":4,"text":"def root():"}'
        output = f'{{"matches":[{match}],"truncated":false}}'
        result = ToolResult("call_grep01", "grep", output)
        assert json.dumps(result.to_dict(), separators=(",", ":")) == GREP_RESULT


class TestWickForm:
    def test_five_keys_in_their_order(self) -> None:  # M-01
        keys = [
            list(to_wick(made)) for made in (ai("x", ToolCall("c", "t")), tool_msg("c", "t", "x"))
        ]
        assert keys == [
            ["role", "content", "tool_calls"],
            ["role", "content", "tool_call_id", "name"],
        ]

    @pytest.mark.parametrize(
        ("made", "text"),
        [
            pytest.param(human("x"), '[{"role":"user","content":"x"}]', id="M-03"),
            pytest.param(
                ai("", ToolCall("c", "t")),
                '[{"role":"assistant","content":"","tool_calls":[{"id":"c","name":"t","args":{}}]}]',
                id="M-02",
            ),
            pytest.param(
                ToolMessage("x", tool_call_id=""),
                '[{"role":"tool","content":"x"}]',
                id="M-03-empty",
            ),
            pytest.param(human("x", id="m1"), '[{"role":"user","content":"x"}]', id="no-id"),
            pytest.param(
                message("user", "x", metadata={"a": 1}),
                '[{"role":"user","content":"x"}]',
                id="no-notes",
            ),
            pytest.param(
                ai("", ToolCall("c", "t", {"a": 1}, '{ "a":1 }')),
                '[{"role":"assistant","content":"","tool_calls":[{"id":"c","name":"t","args":{"a":1}}]}]',
                id="M-10",
            ),
            pytest.param(
                human(["a", {"type": "text", "text": "b"}, {"type": "image", "url": "x"}]),
                '[{"role":"user","content":"ab"}]',
                id="blocks",
            ),
            pytest.param(
                ChatMessage(content="x", role="error", name="me"),
                '[{"role":"error","content":"x","name":"me"}]',
                id="record",
            ),
            pytest.param(human("\ud800"), '[{"role":"user","content":"\\ud800"}]', id="half-pair"),
        ],
    )
    def test_dumps(self, made: BaseMessage, text: str) -> None:
        dumped = dumps([made])
        assert dumped == text
        dumped.encode()

    def test_a_call_that_was_no_json_keeps_its_link(self) -> None:
        broken: Any = {"id": "c2", "name": None, "args": "{", "error": None}
        made = AIMessage(
            "", tool_calls=ai("", ToolCall("c1", "t")).tool_calls, invalid_tool_calls=[broken]
        )
        assert to_wick(made)["tool_calls"] == [
            {"id": "c1", "name": "t", "args": {}},
            {"id": "c2", "name": "", "args": {}},
        ]

    def test_a_dictionary_shares_nothing(self) -> None:  # QS-14
        made = ai("", ToolCall("c", "t", {"a": [1]}))
        to_wick(made)["tool_calls"][0]["args"]["a"].append(2)
        assert made.tool_calls[0]["args"] == {"a": [1]}
        data: dict[str, Any] = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "name": "t", "args": {"a": [1]}}],
        }
        read = from_wick(data)
        data["tool_calls"][0]["args"]["a"].append(2)
        assert isinstance(read, AIMessage)
        assert read.tool_calls[0]["args"] == {"a": [1]}

    @pytest.mark.parametrize(
        "args", [{"a": float("nan")}, {"a": float("inf")}, {"a": {1, 2}}, {"a": b"x"}]
    )
    def test_what_json_cannot_say_is_refused(self, args: dict[str, Any]) -> None:
        with pytest.raises(MessageError, match="cannot be written as JSON"):
            dumps([ai("", ToolCall("c", "t", args))])

    @pytest.mark.parametrize(
        ("data", "made"),
        [
            ({"role": "user"}, HumanMessage("")),
            ({"role": "user", "content": None, "tool_calls": None, "name": ""}, HumanMessage("")),
            ({"role": "user", "content": "x", "tool_calls": []}, HumanMessage("x")),
            ({"role": "assistant", "content": "x", "name": "n"}, AIMessage("x", name="n")),
            ({"role": "tool", "content": "x"}, ToolMessage("x", tool_call_id="")),
            ({"role": "hacker", "content": "inject"}, ChatMessage(content="inject", role="hacker")),
            (
                {"role": "assistant", "tool_calls": [{"id": "c", "name": "t", "args": None}]},
                ai("", ToolCall("c", "t")),
            ),
        ],
    )
    def test_lenient_where_go_is(self, data: dict[str, Any], made: BaseMessage) -> None:
        read = from_wick(data)
        assert type(read) is type(made)
        assert read == made

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("{", "not valid JSON"),
            ("", "not valid JSON"),
            ("NaN", "NaN is not a JSON number"),
            pytest.param("[" * 100_000, "nested too deeply", id="deep"),
            ('{"role":"user"}', "messages are a dict; give a list of messages"),
            ('["hi"]', "message[0]: a message is a str; give an object with role and content"),
            ('[{"role":"user","content":"a"},7]', "message[1]: a message is a int"),
            ('[{"content":"x"}]', "message[0]: a message has no role"),
            ('[{"role":1,"content":"x"}]', "message[0]: role is a int; give a text"),
            ('[{"role":"user","content":7}]', "message[0]: content is a int; give a text"),
            ('[{"role":"user","content":["x"]}]', "message[0]: content is a list; give a text"),
            ('[{"role":"user","content":"x","name":7}]', "message[0]: name is a int"),
            ('[{"role":"tool","content":"x","tool_call_id":7}]', "tool_call_id is a int"),
            (
                '[{"role":"user","content":"x","id":"m"}]',
                "unknown key 'id' in a message; known are",
            ),
            ('[{"role":"assistant","tool_calls":{}}]', "tool_calls is a dict; give a list"),
            ('[{"role":"assistant","tool_calls":["c"]}]', "a tool call is a str"),
            (
                '[{"role":"assistant","tool_calls":[{"args":[]}]}]',
                "args are a list; give an object",
            ),
            ('[{"role":"user","tool_calls":[{}]}]', 'a "user" message has tool_calls'),
            ('[{"role":"user","tool_call_id":"c"}]', 'a "user" message has a tool_call_id'),
        ],
    )
    def test_a_wrong_shape_is_refused_in_one_sentence(self, text: str, error: str) -> None:
        with pytest.raises(MessageError) as caught:
            loads(text)
        assert error in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_bytes_that_are_no_text(self) -> None:
        with pytest.raises(MessageError, match="not valid JSON"):
            loads(b"[\xff]")

    def test_lists_both_ways(self) -> None:
        chain = new_messages().human("a").ai("b")
        assert messages_from_wick(messages_to_wick(chain)) == chain
        assert messages_from_wick([]).human("x").len() == 1


BROKEN_CALL: Any = {
    "id": "c2",
    "name": "u",
    "args": "{",
    "error": "no",
    "type": "invalid_tool_call",
}

EVERYTHING = [
    human("x", id="m1", name="ada"),
    human([{"type": "text", "text": "a"}, {"type": "image", "url": "u"}, "b"]),
    HumanMessage("x", example=True),
    system("x"),
    AIMessage(
        "x",
        id="m2",
        name="bot",
        tool_calls=[{"id": "c1", "name": "t", "args": {"a": [1, {"b": None}]}}],
        invalid_tool_calls=[BROKEN_CALL],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model_name": "m", "wick": {"step": "s"}},
        additional_kwargs={"refusal": "no", "nested": {"a": [1]}},
    ),
    AIMessage("", tool_calls=[{"id": None, "name": "t", "args": {}}]),
    tool_msg("c1", "t", "", id="m3"),
    ToolMessage("x", tool_call_id="", name=None),
    ToolMessage("no", tool_call_id="c1", name="t", status="error"),
    error_message(ValueError("x"), "me", tool_call_id="c1"),
    agent_call("do", "worker", caller="boss", tool_call_id="c1"),
    agent_response("done", "worker", task_id="t", completion_time=0.5),
    message("user", "x", metadata={"a": {"b": 1}}),
    ChatMessage(content="x", role="hacker"),
]


class TestRecords:
    @pytest.mark.parametrize("made", EVERYTHING, ids=lambda made: type(made).__name__)
    def test_nothing_is_lost(self, made: BaseMessage) -> None:
        text = json.dumps(to_record(made))
        back = from_record(json.loads(text))
        assert type(back) is type(made)
        assert back == made

    def test_only_what_is_there_is_written(self) -> None:
        assert to_record(human("x")) == {"role": "user", "content": "x"}

    def test_raw_arguments_and_artifacts_stay_out(self) -> None:  # M-10
        made = ai("", ToolCall("c", "t", {"a": 1}, '{ "a":1 }'))
        assert to_record(made) == {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "name": "t", "args": {"a": 1}}],
        }
        made.additional_kwargs["kept"] = 1
        assert to_record(made)["additional_kwargs"] == {"kept": 1}
        assert made.additional_kwargs["raw_args"] == {"c": '{ "a":1 }'}
        assert "artifact" not in to_record(ToolMessage("x", tool_call_id="c", artifact=object()))

    def test_a_record_shares_nothing(self) -> None:  # QS-14
        made = EVERYTHING[4]
        before = to_record(made)
        changed = to_record(made)
        changed["tool_calls"][0]["args"]["a"].append(2)
        changed["additional_kwargs"]["nested"]["a"].append(2)
        assert to_record(made) == before
        data = to_record(made)
        read = from_record(data)
        data["response_metadata"]["wick"]["step"] = "other"
        data["tool_calls"][0]["args"]["a"].append(2)
        assert to_record(read) == before

    @pytest.mark.parametrize(
        ("data", "error"),
        [
            ("x", "a record is a str; give an object"),
            ({}, "a record has no role"),
            ({"role": 1, "content": "x"}, "a record has no role"),
            ({"role": "user"}, "a record has no content"),
            ({"role": "user", "content": 7}, "a record has no content"),
            (
                {"role": "user", "content": "x", "kind": 1},
                "unknown key 'kind' in a record of role user",
            ),
            ({"role": "user", "content": "x", "tool_calls": []}, "unknown key 'tool_calls'"),
            ({"role": "assistant", "content": "x", "tool_calls": ["c"]}, "malformed"),
            ({"role": "assistant", "content": "x", "tool_calls": [{"id": "c"}]}, "malformed"),
            ({"role": "assistant", "content": "x", "usage_metadata": 7}, "usage_metadata"),
            ({"role": "tool", "content": "x", "status": "great"}, "status"),
            ({"role": "user", "content": "x", "name": 7}, "name"),
            ({"role": "user", "content": [7]}, "content"),
        ],
    )
    def test_a_wrong_shape_is_refused_in_one_sentence(self, data: Any, error: str) -> None:
        with pytest.raises(MessageError) as caught:
            from_record(data)
        assert error in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_import_is_validated_in_the_known_words() -> None:
    chain = loads('[{"role":"hacker","content":"inject"}]')
    with pytest.raises(MessageError) as caught:
        validate(chain)
    assert str(caught.value) == 'message[0]: unknown role "hacker"'
