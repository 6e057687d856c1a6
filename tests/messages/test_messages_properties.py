"""Properties that hold for every chain, found by generated examples."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given as given_any
from hypothesis import settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, ToolMessage

from wick_graph.errors import MessageError
from wick_graph.messages import (
    VALID_ROLES,
    Lowering,
    Messages,
    PrefixEstimate,
    PrefixValidator,
    ToolCall,
    agent_call,
    agent_response,
    ai,
    dumps,
    error_message,
    estimate_tokens,
    from_record,
    from_wick,
    go_value,
    human,
    json_text,
    loads,
    lower,
    role_of,
    system,
    text_of,
    to_record,
    to_wick,
    tool_msg,
    validate,
)


def given(
    *strategies: st.SearchStrategy[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with generated values; a busy machine is no reason to fail."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        return settings(deadline=None, database=None)(given_any(*strategies)(test))

    return decorate


TEXT = st.text(max_size=12)
SOME_TEXT = st.text(min_size=1, max_size=12)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
"""Text with halves of surrogate pairs in it."""
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
IDS = st.sampled_from(["c1", "c2", "c3"])
CALLS = st.builds(ToolCall, id=IDS, name=SOME_TEXT, args=OBJECTS, raw_args=TEXT)
NAMES = st.none() | SOME_TEXT

REPLIES = st.builds(
    lambda text, calls, name: ai(text or "x", *calls, name=name),
    TEXT,
    st.lists(CALLS, max_size=3),
    NAMES,
)
FOUR = st.one_of(
    st.builds(human, SOME_TEXT, name=NAMES),
    st.builds(system, SOME_TEXT),
    REPLIES,
    st.builds(tool_msg, IDS, SOME_TEXT, TEXT),
)
RECORDS = st.one_of(
    st.builds(error_message, TEXT, NAMES, tool_call_id=st.none() | IDS),
    st.builds(agent_call, TEXT, SOME_TEXT, caller=TEXT, tool_call_id=st.none() | IDS),
    st.builds(agent_response, TEXT, SOME_TEXT, task_id=TEXT, tool_call_id=st.none() | IDS),
    st.builds(
        lambda role, text: ChatMessage(content=text, role=role),
        st.sampled_from(["user", "system", "assistant"]),
        SOME_TEXT,
    ),
)
CHAINS = st.lists(FOUR, max_size=8)
THREADS = st.lists(FOUR | RECORDS, max_size=10)

BLOCKS = st.lists(
    SOME_TEXT
    | st.builds(lambda text: {"type": "text", "text": text}, TEXT)
    | st.builds(lambda url: {"type": "image", "url": url}, TEXT),
    max_size=3,
)
NOTES = st.dictionaries(SOME_TEXT.filter(lambda key: key not in ("raw_args", "tool_calls")), JSON)
COMMON: dict[str, Any] = {
    "content": TEXT | BLOCKS,
    "id": st.none() | SOME_TEXT,
    "name": st.none() | TEXT,
    "additional_kwargs": NOTES,
    "response_metadata": NOTES,
}
COUNTS = st.integers(min_value=0, max_value=9)
ANY_MESSAGE = st.one_of(
    st.builds(HumanMessage, **COMMON),
    st.builds(
        AIMessage,
        **COMMON,
        tool_calls=st.lists(
            st.fixed_dictionaries({"id": st.none() | TEXT, "name": TEXT, "args": OBJECTS}),
            max_size=2,
        ),
        invalid_tool_calls=st.lists(
            st.fixed_dictionaries({"id": TEXT, "name": TEXT, "args": TEXT, "error": TEXT}),
            max_size=2,
        ),
        usage_metadata=st.none()
        | st.fixed_dictionaries(
            {"input_tokens": COUNTS, "output_tokens": COUNTS, "total_tokens": COUNTS}
        ),
    ),
    st.builds(
        ToolMessage, **COMMON, tool_call_id=TEXT, status=st.sampled_from(["success", "error"])
    ),
    st.builds(
        ChatMessage,
        **COMMON,
        role=st.sampled_from(["error", "agent_call", "agent_response"]),
    ),
)


@given(CHAINS)
def test_wick_json_comes_back_as_it_went(chain: list[BaseMessage]) -> None:
    text = dumps(chain)
    back = loads(text.encode())
    assert dumps(back) == text
    assert [(role_of(made), text_of(made), made.name) for made in back] == [
        (role_of(made), text_of(made), made.name) for made in chain
    ]
    for made, original in zip(back, chain, strict=True):
        if isinstance(original, AIMessage):
            assert isinstance(made, AIMessage)
            assert made.tool_calls == original.tool_calls


@given(ANY_TEXT)
def test_wick_json_can_always_be_encoded(text: str) -> None:
    dumped = dumps([human(text), ai("", ToolCall("c", "t", {text: text}))])
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert text_of(loads(dumped.encode())[0]) == whole


@given(CHAINS)
def test_what_was_valid_is_valid_after_a_round_trip(chain: list[BaseMessage]) -> None:
    validate(chain)
    loads(dumps(chain)).validate()


NEARLY = st.fixed_dictionaries(
    {"role": JSON | st.sampled_from(sorted(VALID_ROLES))},
    optional={
        "content": JSON | TEXT,
        "tool_calls": JSON | st.lists(OBJECTS | JSON, max_size=2),
        "tool_call_id": JSON | TEXT,
        "name": JSON | TEXT,
    },
)
"""What is nearly a message in wick form, and sometimes is one."""


@given(NEARLY | JSON)
def test_what_is_nearly_a_message_is_read_or_refused_in_one_line(value: Any) -> None:
    made, refusal = None, ""
    try:
        made = from_wick(value)
    except MessageError as error:
        refusal = str(error)
    assert "\n" not in refusal
    assert refusal or (made and to_wick(made)["role"] == value["role"])


@given(ANY_MESSAGE)
def test_a_record_comes_back_as_it_went(made: BaseMessage) -> None:
    back = from_record(json.loads(json.dumps(to_record(made))))
    assert type(back) is type(made)
    assert back == made
    assert to_record(back) == to_record(made)


@given(THREADS, st.booleans(), st.booleans())
def test_a_lowered_chain_is_valid_and_the_thread_is_untouched(
    thread: list[BaseMessage], errors: bool, results: bool
) -> None:
    before = [made.model_dump() for made in thread]
    lowered = lower(thread, "me", include_errors=errors, inject_subagent_results=results)
    validate(lowered)
    assert lower(lowered) == lowered
    assert [made.model_dump() for made in thread] == before
    made_up = [made for made in lowered if not any(made is kept for kept in thread)]
    asked = {
        call["id"] for made in lowered if isinstance(made, AIMessage) for call in made.tool_calls
    }
    for made in made_up:
        assert not isinstance(made, ToolMessage) or made.tool_call_id in asked


@given(st.lists(st.sampled_from(sorted(VALID_ROLES)), max_size=6), TEXT)
def test_lowering_takes_every_role(roles: list[str], text: str) -> None:
    thread: list[BaseMessage] = [ChatMessage(content=text, role=role) for role in roles]
    lowered = lower(thread)
    assert all(role_of(made) in {"system", "user", "assistant", "tool"} for made in lowered)


@given(THREADS, st.data())
def test_cached_forms_say_what_the_plain_ones_say(
    thread: list[BaseMessage], data: st.DataObject
) -> None:
    lowering, estimate, validator = Lowering("me"), PrefixEstimate(), PrefixValidator()
    for _ in range(4):
        step = thread[: data.draw(st.integers(0, len(thread)))]
        changes: bool = data.draw(st.booleans())
        if step and changes:
            step[data.draw(st.integers(0, len(step) - 1))] = data.draw(FOUR | RECORDS)
        lowered = lowering.lower(step)
        expected = lower(step, "me")
        assert [(type(a), a.content, a.name, a.id) for a in lowered] == [
            (type(a), a.content, a.name, a.id) for a in expected
        ]
        assert estimate.tokens(lowered) == estimate_tokens(lowered)
        validator.check(lowered)


@given(CHAINS, CHAINS, CHAINS)
def test_forks_never_share(
    base: list[BaseMessage], one: list[BaseMessage], two: list[BaseMessage]
) -> None:
    chain = Messages(base)
    first = chain.concat(one).human("1")
    second = chain.add(*two).human("2")
    assert first[: len(base)] == second[: len(base)] == chain == base
    assert (first.last_content(), second.last_content()) == ("1", "2")
    first.clear()
    assert len(second) == len(base) + len(two) + 1


@given(FOUR)
def test_a_changed_copy_leaves_the_original(made: BaseMessage) -> None:
    before = made.model_dump()
    (twin,) = Messages([made]).copies()
    twin.content = "changed"
    twin.additional_kwargs["changed"] = True
    for call in getattr(twin, "tool_calls", ()):
        _spoil(call["args"])
    assert made.model_dump() == before


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_shown_is_the_number(value: float) -> None:
    assert float(go_value(value)) == value


@given(JSON)
def test_json_text_is_json(value: Any) -> None:
    assert json.loads(json_text(value)) == value
    assert json_text(json.loads(json_text(value))) == json_text(value)


def _spoil(value: Any) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _spoil(inner)
        value["spoilt"] = True
    elif isinstance(value, list):
        for inner in value:
            _spoil(inner)
        value.append("spoilt")


def test_the_spoiler_spoils() -> None:
    value: dict[str, Any] = {"a": [{"b": 1}]}
    _spoil(value)
    assert value == {"a": [{"b": 1, "spoilt": True}, "spoilt"], "spoilt": True}
