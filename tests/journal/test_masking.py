"""Secrets are found nowhere in the file."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from tests.engine.support import Door
from tests.journal.conftest import Opener
from tests.journal.support import agent_of, on_both
from tests.store.conftest import Outside
from tests.support.often import often
from wick_graph import Agent, BaseHook, ModelRequest, tool
from wick_graph.core.moments import JournalOptions
from wick_graph.core.redaction import ODD_CASES, PATTERNS, REDACTOR, WORDS
from wick_graph.errors import ConfigError
from wick_graph.hooks import ApprovalHook
from wick_graph.journal.value_store import Mask, known_secrets
from wick_graph.store.schema import metadata
from wick_graph.testing import ScriptedModel, call

FROM_ENV = "canary-environment-4711"
FROM_MODEL = "canary-model-4712"
FROM_PATTERN = "CANARY-4713"
BY_NAME = "canary-named-4714"
BY_FORM = "sk-canaryCANARYcanary4715abc"
CANARIES = (FROM_ENV, FROM_MODEL, FROM_PATTERN, BY_NAME, BY_FORM)


class Careless(BaseHook):
    """Put secrets into everything that only the journal writes down."""

    name = "careless"

    def wrap_model_call(self, request: ModelRequest, next: Any) -> Any:
        spread = " and ".join(CANARIES[:3] + CANARIES[4:])
        request = request.append_system(f"The keys are {spread}.")
        first = request.messages[0]
        request = request.replace(first, first.model_copy(update={"content": spread}))
        return next(request.with_settings(headers={"Authorization": BY_NAME, "x": FROM_ENV}))

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        token = {"api_key": BY_NAME, "note": f"use {FROM_MODEL} or {FROM_PATTERN}"}
        result = next(call.replace(args={**call.args, "auth": token}))
        return result.replace(output="fine", error=None)


@tool(replay="safe")  # what it returns stands in no ledger
def add(a: float, b: float, auth: dict[str, Any] | None = None) -> str:
    """Add two numbers."""
    raise RuntimeError(f"refused by {FROM_ENV}, {FROM_PATTERN}")


def stored(url: str, outside: Outside) -> bytes:
    """Return all bytes of a store: its files, or all of a server's rows."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        files = (p for p in path.parent.iterdir() if p.name.startswith(path.name))
        return b"".join(p.read_bytes() for p in files)
    rows = [row for table in metadata.tables for row in outside.run(f"SELECT * FROM {table}")]
    assert rows
    values = [value for row in rows for value in row]
    return b"\0".join(v if isinstance(v, bytes) else str(v).encode() for v in values)


@pytest.mark.sisters(2)
@on_both
def test_no_canary_reaches_the_file(
    door: Door, url: str, outside: Outside, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKEND_API_KEY", FROM_ENV)
    model = ScriptedModel([call("add", a=1, b=2), "Done."], api_key=SecretStr(FROM_MODEL))
    options = JournalOptions("steps", (r"CANARY-\d+",))
    agent, _ = agent_of(url, hooks=[Careless()], tools=[add], model=model, journal=options)
    assert door(agent, "add", thread_id="t").text == "Done."
    asked = model.calls[0]
    assert all(secret in asked.system for secret in (FROM_ENV, FROM_MODEL, FROM_PATTERN, BY_FORM))
    agent.close()
    held = stored(url, outside)
    assert b"add" in held
    assert [c for c in CANARIES if c.encode() in held] == []
    journal = opened()
    request = journal.request_at(journal.last())
    assert not request.exact
    assert request.note == "secrets are hidden"
    assert request.system_text.count("•••") == 4
    assert request.settings["headers"]["Authorization"].startswith("•••")
    hidden = {journal.request_at(m.seq).system_text for m in journal.moments(kind="model.request")}
    assert len(hidden) == 1, "equal secrets look equal"
    told = repr([journal.to_dict(m) for m in journal.moments()])
    assert [c for c in CANARIES if c in told] == []
    assert "'a': 1" in told


def test_a_question_that_waits_is_no_text_of_an_error(url: str, opened: Opener) -> None:
    """No field can be hidden in a text: the arguments of a call that asks hold secrets."""

    @tool
    def login(password: str) -> str:
        """Log in."""
        return password

    model = ScriptedModel([call("login", password=BY_NAME), "Done."])
    hooks = [ApprovalHook({"login": True})]
    with Agent("desk", model, tools=[login], hooks=hooks, store=url) as agent:
        assert agent.invoke("go", thread_id="t").interrupts
    left = [moment for moment in opened().moments() if moment.is_left]
    assert [moment.kind for moment in left] == ["hook", "tool", "node"]
    assert {str(moment.fields["e"]) for moment in left} == {"['GraphInterrupt', '']"}
    assert {moment.error for moment in left} == {"GraphInterrupt"}


def test_hidden_texts_differ_by_key_and_by_secret() -> None:
    one, other = Mask(b"k" * 16, ["secret-1", "secret-2"]), Mask(b"x" * 16, ["secret-1"])
    texts = {one.text("secret-1"), one.text("secret-2"), other.text("secret-1")}
    assert len(texts) == 3
    assert all(len(text) == len("•••") + 8 for text in texts)
    assert one.text("nothing of it") == "nothing of it"


@pytest.mark.parametrize(
    ("value", "changed"),
    [
        pytest.param({"token": "abc"}, True, id="a-text-under-a-secret-name"),
        pytest.param({"properties": {"token": {"type": "string"}}}, False, id="a-schema"),
        pytest.param({"max_tokens": 5, "tokens": "many"}, False, id="counts"),
        pytest.param(["a", {"b": "x hunter2hunter2 y"}], True, id="a-known-one-inside"),
        pytest.param("plain", False, id="plain"),
    ],
)
def test_what_is_hidden(value: Any, changed: bool) -> None:
    masked = Mask(b"k" * 16, ["hunter2hunter2"]).value(value)
    assert (masked != value) is changed
    assert (masked is value) is not changed


def test_names_of_variables_decide_what_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REDACTOR, "known", frozenset())  # other tests' tokens are known for ever
    env = {"OPENAI_API_KEY": "sk-1234567", "HOME": "/root-home", "DB_PASSWORD": "correct horse"}
    assert known_secrets(env={**env, "PIN_TOKEN": "123"}) == {"sk-1234567", "correct horse"}


def test_a_variable_that_is_set_later_is_secret_too(monkeypatch: pytest.MonkeyPatch) -> None:
    known_secrets()
    for value in ("first-secret", "second-secret"):
        monkeypatch.setenv("LATER_TOKEN", value)
        assert value in known_secrets()
    assert "first-secret" not in known_secrets()
    monkeypatch.delenv("LATER_TOKEN")
    assert "second-secret" not in known_secrets()


def test_a_level_or_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="journal must be one of off, steps, full"):
        agent_of(False, journal="loud")
    with pytest.raises(ConfigError, match="no regular expression"):
        agent_of(False, journal=JournalOptions("steps", ("(",)))


@pytest.mark.parametrize("kind", sorted(WORDS))
@settings(max_examples=often(50), deadline=None)
@given(st.data())
def test_each_match_of_a_pattern_holds_one_of_its_words(kind: str, data: st.DataObject) -> None:
    match = data.draw(st.from_regex(PATTERNS[kind]))
    lowered = match.encode("utf-8", "surrogatepass").lower()
    assert any(word in lowered for word in (*WORDS[kind], *ODD_CASES))


@settings(max_examples=often(300), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    *(BY_FORM, "AKIA" + "Q" * 16, "BeaRer " + "x" * 24, "eyJhbGciOiJIUzI1NiJ9."),
                    *("PA\u017f\u017fPHRASE", "To\u212aen", "author\u0130zation", "\u0131", "any"),
                    *(
                        "xoxb-1234567890a",
                        "-----BEGIN RSA PRIVATE KEY-----",
                        "asia",
                        FROM_ENV,
                        "CANARY-1",
                    ),
                ]
            ).map(str.encode),
            st.binary(max_size=6),
        ),
        max_size=5,
    ).map(b"".join)
)
def test_data_is_clean_as_the_whole_search_finds_it(data: bytes) -> None:
    for secrets, patterns in (((), ()), ((FROM_ENV,), ()), ((), (r"CANARY-\d",))):
        mask = Mask(b"key", secrets, patterns)
        text = data.decode("utf-8", "replace")
        named = "(?i)passw|passph|secret|key|token|authori|credential"
        held = mask.regex.search(text) or re.search(named, text)
        assert mask.is_clean(data) is (held is None)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ('{"password":"a", "b": 1}', '{"password":"•", "b": 1}'),
        ('{"api_key": "a\\"b", "c": "d"}', '{"api_key": "•", "c": "d"}'),
        ("{'db-token': \"it's\", 'c': 'd'}", "{'db-token': \"•\", 'c': 'd'}"),
        ('{"a": "{\\"secret\\": \\"x\\\\\\"y\\", \\"b\\": 1}"}',
         '{"a": "{\\"secret\\": \\"•\\", \\"b\\": 1}"}'),
        ('{"tokens": "a", "mytoken": "b", "token": 1}',) * 2,
        ('{"token": ""}',) * 2,
        ("the password: x",) * 2,
    ],
)  # fmt: skip
def test_fields_of_json_in_a_text_are_hidden_in_what_leaves(text: str, made: str) -> None:
    assert Mask(b"k" * 16).text(text) == text
    hidden = Mask(b"k" * 16, inside=True).text(text)
    assert re.sub("•••[0-9a-f]{8}", "•", hidden) == made
    assert Mask(b"k" * 16, inside=True).text(hidden) == hidden


@pytest.mark.parametrize(
    "part", ["a_", '"', 'token"', 'token":"', "\\", 'token\\":\\"', 'token":' + " " * 9, "-"]
)
def test_a_long_text_of_any_form_takes_no_long_search(part: str) -> None:
    text = part * (1_000_000 // len(part)) + 'token":"x"'
    began = time.process_time()
    Mask(b"k" * 16, inside=True).text(text)
    assert time.process_time() - began < 30  # it would be hours


@pytest.mark.parametrize("secret", ["x\\", 'x"', "x'\"y", '\\"', "\\\\", '"\\', "\n'\\\"\n\\", "é"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_json_in_json_stays_json_whatever_is_hidden(secret: str, depth: int) -> None:
    found: Any = {"token": secret, "b": "kept"}
    for _ in range(depth):
        found = {"raw": json.dumps(found), "token": ""}
    found = Mask(b"k" * 16, inside=True).text(json.dumps(found))
    for _ in range(depth):
        found = json.loads(found)["raw"]
    made = json.loads(found)
    assert made["b"] == "kept"
    assert re.fullmatch("•••[0-9a-f]{8}", made["token"])


@pytest.mark.parametrize("secret", ["x'y-4717", 'x"y-4717', "'\"y-4717", "\\'\\\"y-4717"])
@pytest.mark.parametrize("forms", [(str, json.dumps), (json.dumps, str), (str, str)])
def test_no_quote_in_a_secret_ends_it(secret: str, forms: tuple[Any, Any]) -> None:
    """Python and JSON write a quote in a text in ways of their own."""
    inner, outer = forms
    hidden = Mask(b"k" * 16, inside=True).text(
        outer({"raw": inner({"token": secret, "b": "kept"})})
    )
    assert "4717" not in hidden
    assert "kept" in hidden
