"""From seven roles to the four that a model reads."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from wick_graph.errors import MessageError
from wick_graph.messages import (
    Lowering,
    ToolCall,
    agent_call,
    agent_response,
    ai,
    error_message,
    human,
    lower,
    message,
    role_of,
    system,
    text_of,
    tool_msg,
    validate,
)
from wick_graph.messages.base import MARK_KEY, NAME_GIVEN

ASK = ai("", ToolCall("c1", "subagent", {"task": "t"}), ToolCall("c2", "ls"))


def view(chain: list[BaseMessage], **options: Any) -> list[tuple[str, str]]:
    lowered = lower(chain, **options)
    validate(lowered)
    return [(role_of(made), text_of(made)) for made in lowered]


def test_the_same_list_comes_back_if_nothing_needs_lowering() -> None:
    chain = [system("s"), human("q", name="ada"), ASK, tool_msg("c1", "subagent", "x"), ai("a")]
    assert lower(chain) is chain
    cached = Lowering()
    assert cached.lower(chain) is chain
    assert cached.lower(longer := [*chain, human("again")]) is longer
    empty: list[BaseMessage] = []
    assert lower(empty) is empty


@pytest.mark.parametrize("name", [None, "", "agent", "a b", "x" * 70])
@pytest.mark.parametrize("given", [False, True])
def test_the_quick_way_says_what_the_whole_one_says(name: str | None, given: bool) -> None:
    """A chain without records is lowered with fewer looks; what comes out must not differ."""
    mark = {MARK_KEY: {"step": "s", **({NAME_GIVEN: True} if given else {})}}
    odd: list[BaseMessage] = [
        AIMessage("a", name=name, response_metadata=mark),
        AIMessage("a", name=name),
        AIMessageChunk(content="a", name=name, response_metadata=mark),
        HumanMessage("h", name=name, response_metadata=mark),
        SystemMessage("s", name=name),
        ToolMessage("t", tool_call_id="c1", name=name),
        ChatMessage(content="c", role="user", name=name),
    ]
    for one in odd:
        for chain in ([one], [human("q"), ASK, one], [one, human("q"), ASK]):
            quick, whole = Lowering("agent"), Lowering("agent")
            whole._plain = False
            made, full = quick.lower(chain), whole.lower(chain)
            assert made == full
            assert [m is n for m, n in zip(made, chain, strict=True)] == [
                m is n for m, n in zip(full, chain, strict=True)
            ]
            assert (made is chain) == (full is chain)


class TestTable:
    def test_a_request_in_the_callees_thread(self) -> None:  # M-29
        call = agent_call(
            "Research quantum computing basics", "researcher", caller="orchestrator_agent"
        )
        assert view([call]) == [
            ("user", "[Request from orchestrator_agent]: Research quantum computing basics")
        ]
        foreign = agent_call("do", "worker", caller="boss", tool_call_id="not-of-this-chain")
        assert view([foreign]) == [("user", "[Request from boss]: do")]

    @pytest.mark.parametrize("metadata", [None, {}, {"caller": None}, {"caller": ""}])
    def test_a_request_of_nobody(self, metadata: dict[str, Any] | None) -> None:  # M-30
        assert view([message("agent_call", "do", metadata=metadata)]) == [
            ("user", "[Request from unknown]: do")
        ]

    def test_a_request_in_the_callers_thread_is_left_out(self) -> None:
        call = agent_call("do", "worker", caller="me", tool_call_id="c1")
        assert view([human("q"), ASK, call, tool_msg("c1", "subagent", "x")])[2:] == [("tool", "x")]

    def test_a_response_answers_an_open_call(self) -> None:
        answer = agent_response("done", "worker", task_id="t", tool_call_id="c1")
        lowered = lower([human("q"), ASK, answer, tool_msg("c2", "ls", "[]")])
        made = lowered[2]
        assert isinstance(made, ToolMessage)
        assert (made.content, made.tool_call_id, made.name) == ("done", "c1", "subagent")
        assert made.id == answer.id

    @pytest.mark.parametrize("first", ["record", "tool"])
    def test_a_response_beside_a_tool_message_is_left_out(self, first: str) -> None:
        record: BaseMessage = agent_response("done", "worker", task_id="t", tool_call_id="c1")
        tool: BaseMessage = tool_msg("c1", "subagent", "the result")
        pair = [record, tool] if first == "record" else [tool, record]
        assert view([human("q"), ASK, *pair])[2:] == [("tool", "the result")]

    def test_a_late_answer_goes_where_the_call_is(self) -> None:
        late = agent_response("done", "worker", task_id="t", tool_call_id="c1")
        chain: list[BaseMessage] = [
            human("q"),
            ASK,
            tool_msg("c2", "ls", "[]"),
            human("well?"),
            late,
        ]
        assert view(chain)[2:] == [("tool", "[]"), ("tool", "done"), ("user", "well?")]

    def test_an_asynchronous_response(self) -> None:
        answer = agent_response("done", "worker", task_id="t")
        nameless = message("agent_response", "done")
        assert view([human("q"), answer]) == [("user", "q")]
        assert view([human("q"), answer, nameless], inject_subagent_results=True)[1:] == [
            ("user", "[Response from worker]: done"),
            ("user", "[Response from unknown]: done"),
        ]

    def test_an_error_answers_its_call(self) -> None:
        failed = error_message(ValueError("boom"), "worker", tool_call_id="c1")
        made = lower([human("q"), ASK, failed])[2]
        assert isinstance(made, ToolMessage)
        assert (made.content, made.status, made.name) == ("Error: boom", "error", "subagent")
        prefixed = error_message("Error: boom", tool_call_id="c1")
        assert view([human("q"), ASK, prefixed])[2:] == [("tool", "Error: boom")]

    def test_one_call_has_one_answer(self) -> None:
        failed = error_message("boom", tool_call_id="c1")
        again = error_message("bang", tool_call_id="c1")
        assert view([human("q"), ASK, failed, again])[2:] == [("tool", "Error: boom")]
        result = tool_msg("c1", "subagent", "fine")
        assert view([human("q"), ASK, failed, again, result])[2:] == [("tool", "fine")]

    def test_an_id_that_comes_again_is_a_new_call(self) -> None:
        chain: list[BaseMessage] = [
            human("q"),
            ai("", ToolCall("call_0", "a")),
            tool_msg("call_0", "a", "1"),
            ai("", ToolCall("call_0", "b")),
            error_message("boom", tool_call_id="call_0"),
        ]
        made = lower(chain)[-1]
        assert isinstance(made, ToolMessage)
        assert (made.name, made.content) == ("b", "Error: boom")

    def test_an_error_of_another_agent(self) -> None:
        chain: list[BaseMessage] = [human("q"), error_message("boom", "worker")]
        assert view(chain, self_name="me")[1:] == [("user", "[Error from worker]: boom")]

    @pytest.mark.parametrize("name", ["me", None])
    def test_an_own_error_is_never_put_in_the_users_mouth(self, name: str | None) -> None:
        chain: list[BaseMessage] = [human("q"), error_message(ValueError("boom"), name)]
        assert view(chain, self_name="me") == [("user", "q")]
        assert view(chain, self_name="me", include_errors=True)[1:] == [
            ("assistant", "[The previous attempt failed: ValueError]")
        ]

    def test_an_unknown_role_stays_for_validation(self) -> None:
        chain: list[BaseMessage] = [ChatMessage(content="inject", role="hacker")]
        assert lower(chain) == chain
        with pytest.raises(MessageError, match='unknown role "hacker"'):
            validate(lower(chain))


class TestLangChainsOwnForms:
    @pytest.mark.parametrize(
        ("role", "kind"),
        [("user", HumanMessage), ("system", SystemMessage), ("assistant", AIMessage)],
    )
    def test_a_chat_message_of_a_known_role(self, role: str, kind: type[BaseMessage]) -> None:
        chain: list[BaseMessage] = [ChatMessage(content="x", role=role, id="m1")]
        made = lower(chain)[0]
        assert type(made) is kind
        assert (made.content, made.id) == ("x", "m1")

    def test_a_tools_chat_message(self) -> None:
        chain: list[BaseMessage] = [ASK, _chat_of_a_tool("c1")]
        made = lower(chain)[1]
        assert isinstance(made, ToolMessage)
        assert (made.tool_call_id, made.name) == ("c1", "subagent")
        with pytest.raises(MessageError, match="missing tool_call_id"):
            validate(lower([ChatMessage(content="x", role="tool")]))

    def test_a_tool_message_without_a_name_gets_its_calls(self) -> None:
        nameless = ToolMessage("x", tool_call_id="c2")
        assert lower([ASK, nameless])[1].name == "ls"
        assert nameless.name is None

    @pytest.mark.parametrize(
        ("name", "sent"), [("Ada Lovelace", "Ada_Lovelace"), ("x" * 100, "x" * 64), ("", None)]
    )
    def test_names_are_made_acceptable(self, name: str, sent: str | None) -> None:
        said = human("x", name=name)
        assert lower([said])[0].name == sent
        assert said.name == name


class TestLowering:
    """The cached form."""

    CHAIN: tuple[BaseMessage, ...] = (
        system("s"),
        human("q"),
        ASK,
        agent_call("do", "worker", caller="me", tool_call_id="c1"),
        error_message("boom", tool_call_id="c1"),
        tool_msg("c2", "ls", "[]"),
        tool_msg("c1", "subagent", "fine"),
        error_message("other", "worker"),
        ChatMessage(content="x", role="user"),
        ai("a"),
    )

    def test_it_is_lower_at_every_length(self) -> None:
        cached = Lowering("me")
        for end in [*range(len(self.CHAIN) + 1), 3, 0, len(self.CHAIN)]:
            chain = list(self.CHAIN[:end])
            assert _data(cached.lower(chain)) == _data(lower(chain, "me"))

    def test_a_new_prompt_is_exchanged_in_place(self) -> None:
        cached = Lowering("me")
        cached.lower(list(self.CHAIN))
        kept = cached.lower(list(self.CHAIN))[-2]
        fresh = [system("another"), *self.CHAIN[1:]]
        lowered = cached.lower(fresh)
        assert lowered[0] is fresh[0]
        assert lowered[-2] is kept  # not made anew
        assert _data(lowered) == _data(lower(fresh, "me"))

    @pytest.mark.parametrize("index", range(len(CHAIN)))
    def test_any_exchange_gives_what_lower_gives(self, index: int) -> None:
        cached = Lowering("me")
        cached.lower(list(self.CHAIN))
        for other in (human("new"), ai("", ToolCall("c9", "t")), error_message("e", "worker")):
            changed = [*self.CHAIN[:index], other, *self.CHAIN[index + 1 :]]
            assert _data(cached.lower(changed)) == _data(lower(changed, "me"))

    def test_what_it_returns_is_the_callers(self) -> None:
        cached = Lowering("me")
        cached.lower(list(self.CHAIN)).clear()
        assert _data(cached.lower(list(self.CHAIN))) == _data(lower(list(self.CHAIN), "me"))


def test_no_message_is_changed() -> None:
    chain = list(TestLowering.CHAIN)
    before = [made.model_dump() for made in chain]
    lower(chain, "me", include_errors=True, inject_subagent_results=True)
    assert [made.model_dump() for made in chain] == before


def _chat_of_a_tool(call_id: str) -> ChatMessage:
    extra: Any = {"tool_call_id": call_id}  # LangChain lets any field stand in a message
    return ChatMessage(content="x", role="tool", **extra)


def _data(chain: list[BaseMessage]) -> list[tuple[Any, ...]]:
    return [(type(made), made.content, made.name, made.id) for made in chain]


def test_a_message_that_is_no_reply_keeps_its_name() -> None:
    marks: Any = {"wick": {"step": "s"}}
    said = HumanMessage("hi", name="anna", response_metadata=marks)
    (made,) = Lowering("x").lower([said])
    assert made.name == "anna"
