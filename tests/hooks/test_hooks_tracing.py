"""TracingHook and its recorders."""

from __future__ import annotations

import asyncio
import json
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.engine.support import Door, add
from wick_graph import Agent, ToolError
from wick_graph.core.redaction import Redactor
from wick_graph.errors import ConfigError, ModelError
from wick_graph.hooks.summarization import SummarizationHook
from wick_graph.hooks.tracing import TracingHook
from wick_graph.testing import ScriptedModel, call, calls, error, text
from wick_graph.tracing import (
    JsonlRecorder,
    OtelRecorder,
    current_recorder,
    recording,
)

SECRET = "sk-proj-0123456789abcdefghij"


class Span:
    def __init__(self, log: Recorder, name: str) -> None:
        self.log, self.name, self.ended = log, name, 0
        self.facts: dict[str, Any] = {}

    def set(self, key: str, value: Any) -> Self:
        self.facts[key] = value
        return self

    def end(self) -> None:
        self.ended += 1


class Recorder:
    """What a caller writes: the two methods, and nothing else."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.events: list[Any] = []

    def start_span(self, name: str) -> Span:
        self.spans.append(Span(self, name))
        return self.spans[-1]

    def record_event(self, name: str, metadata: Any) -> None:
        self.events.append((name, dict(metadata)))


def agent_of(*steps: Any, **options: Any) -> Agent:
    options.setdefault("hooks", [TracingHook()])
    return Agent("mine", ScriptedModel(list(steps)), tools=[add], **options)


def test_spans_have_their_facts(door: Door) -> None:
    recorder = Recorder()
    first = calls(("add", {"a": 1, "b": 2}, "c1"), text="Let me see.", usage=(10, 5))
    agent = agent_of(first, "It is 3.", system_prompt="Base.")
    with recording(recorder):
        door(agent, "1+2?", thread_id="t")
    model, tool, last = recorder.spans
    assert [s.name for s in recorder.spans] == ["llm.call", "tool.call", "llm.call"]
    assert all(s.ended == 1 for s in recorder.spans)
    assert all((s.facts["agent"], s.facts["thread_id"]) == ("mine", "t") for s in recorder.spans)
    facts = {
        "message_count": 2,
        "content_length": 11,
        "content_preview": "Let me see.",
        "tool_calls_count": 1,
        "tool_calls": ["add"],
        "input_tokens": 10,
        "output_tokens": 5,
        "response_model": "scripted",
    }
    assert facts.items() <= model.facts.items()
    facts = {
        "tool_name": "add",
        "tool_call_id": "c1",
        "tool_args": {"a": 1, "b": 2},
        "output_length": 1,
        "output_preview": "3",
    }
    assert facts.items() <= tool.facts.items()
    assert last.facts["message_count"] == 4
    assert "error" not in model.facts
    assert "tool_error" not in tool.facts


def test_errors_are_recorded_and_spans_ended(door: Door) -> None:
    def fail() -> str:
        """Fail."""
        raise ToolError("out of order")

    recorder = Recorder()
    agent = Agent(
        model=ScriptedModel([call("fail"), error("broken")]), tools=[fail], hooks=[TracingHook()]
    )
    with recording(recorder), pytest.raises(ModelError):
        door(agent, "?")
    _, tool, last = recorder.spans
    assert tool.facts["tool_error"] == "out of order"
    assert last.facts["error"] == "RuntimeError: broken"
    assert last.facts["error_type"] == "RuntimeError"
    assert all(s.ended == 1 for s in recorder.spans)


def test_previews_are_cut_on_code_points_and_redacted(door: Door) -> None:
    recorder = Recorder()
    said = f"{SECRET} and hunter2hunter2"
    hooks = [TracingHook(redactor=Redactor(["hunter2hunter2"]))]
    with recording(recorder):
        door(agent_of("ä" * 501, hooks=hooks), "?")
        door(agent_of("ä" * 500, hooks=hooks), "?")
        door(agent_of(said, hooks=hooks), "?")
    assert [span.facts["content_preview"] for span in recorder.spans] == [
        "ä" * 500 + "...(truncated)",
        "ä" * 500,
        "[redacted: OpenAI key] and [redacted: known secret]",
    ]
    assert recorder.spans[2].facts["content_length"] == len(said)


@pytest.mark.parametrize("length", [130, 4_000], ids=["keys", "certificates"])
def test_no_part_of_a_known_secret_stands_in_a_preview(door: Door, length: int) -> None:
    """Wherever the search for secrets ends, and however few characters are left before it."""
    recorder = Recorder()
    known = [f"{n:04}" + secrets.token_hex(length // 2) for n in range(40)]
    for said in (" ".join(known), " ".join(known) + " " + "x" * 400_000):
        with recording(recorder):
            door(agent_of(said, hooks=[TracingHook(redactor=Redactor(known))]), "?")
        shown = recorder.spans[-1].facts["content_preview"]
        assert shown.startswith("[redacted: known secret] ")
        assert not [one for one in known if one[:8] in shown]
    with recording(recorder):  # more secrets than are searched
        door(agent_of(" ".join(known * 40), hooks=[TracingHook(redactor=Redactor(known))]), "?")
    shown = recorder.spans[-1].facts["content_preview"]
    assert shown.endswith("...(truncated)")
    assert not [one for one in known if one[:8] in shown]


def test_arguments_are_redacted_by_name_and_by_look(door: Door) -> None:
    def login(user: str, password: str, note: str) -> str:
        """Log in."""
        return SECRET

    recorder = Recorder()
    step = call("login", user="me", password="x", note=f"use {SECRET}")
    agent = Agent(model=ScriptedModel([step, "ok"]), tools=[login], hooks=[TracingHook()])
    with recording(recorder):
        door(agent, "?")
    assert recorder.spans[1].facts["tool_args"] == {
        "user": "me",
        "password": "[redacted: password]",
        "note": "use [redacted: OpenAI key]",
    }
    assert recorder.spans[1].facts["output_preview"] == "[redacted: OpenAI key]"


def test_without_a_recorder_nothing_happens(door: Door) -> None:
    assert door(agent_of("ok"), "?").text == "ok"
    current_recorder().start_span("x").set("a", 1).set("b", 2).end()
    current_recorder().record_event("x", {})


def test_a_hooks_own_recorder_is_used_where_no_block_is(door: Door) -> None:
    own, around = Recorder(), Recorder()
    agent = agent_of("ok", "ok", hooks=[TracingHook(own)])
    door(agent, "?", thread_id="t")
    with recording(around):
        door(agent, "?", thread_id="t")
    assert (len(own.spans), len(around.spans)) == (1, 1)


def test_the_span_covers_what_inner_hooks_do(door: Door) -> None:
    recorder = Recorder()
    model = ScriptedModel(["ok"])
    agent = Agent(model=model, hooks=[TracingHook(), SummarizationHook()])
    with recording(recorder):
        door(agent, "?")
    assert agent.spec.hooks.wrap_model_call[0].hook == "tracing"
    assert len(recorder.spans) == 1


def test_a_recorder_that_fails_harms_nobody(door: Door, caplog: Any) -> None:
    class Broken(Recorder):
        def start_span(self, name: str) -> Span:
            if name == "tool.call":
                raise RuntimeError("no span")
            return super().start_span(name)

    class BrokenSpan(Span):
        def set(self, key: str, value: Any) -> Self:
            raise RuntimeError("no fact")

        def end(self) -> None:
            raise RuntimeError("no end")

    recorder = Broken()
    with recording(recorder):
        result = door(agent_of(call("add", a=1, b=2), "ok"), "?")
    assert result.text == "ok"
    recorder.start_span = lambda name: BrokenSpan(recorder, name)  # type: ignore[method-assign]  # broken on purpose
    with recording(recorder):
        assert door(agent_of("ok"), "?").text == "ok"
    assert "the trace recorder failed" in caplog.text


@pytest.fixture
def lines(tmp_path: Path) -> Any:
    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (tmp_path / "t.jsonl").read_text("utf-8").splitlines()]

    return read


@pytest.mark.parametrize("content", [False, True])
def test_json_lines_hold_content_only_if_asked(
    door: Door, tmp_path: Path, lines: Any, content: bool
) -> None:
    with JsonlRecorder(tmp_path / "t.jsonl", content=content) as recorder, recording(recorder):
        door(agent_of(call("add", a=1, b=2), "The words."), "?")
        recorder.record_event("noted", {"a": 1})
    spans = lines()
    assert [line["name"] for line in spans] == ["llm.call", "tool.call", "llm.call", "noted"]
    assert all(line["duration_ms"] >= 0 for line in spans[:3])
    written = json.dumps(spans)
    assert ("The words." in written) is content
    assert ("tool_args" in spans[1]["attributes"]) is content
    assert spans[2]["attributes"]["content_length"] == 10
    assert ("content_hash" in spans[2]["attributes"]) is not content
    assert stat.S_IMODE((tmp_path / "t.jsonl").stat().st_mode) == 0o600


def test_a_trace_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        JsonlRecorder(tmp_path / "no" / "t.jsonl")


def test_a_closed_recorder_takes_no_more(tmp_path: Path, lines: Any) -> None:
    recorder = JsonlRecorder(tmp_path / "t.jsonl")
    span = recorder.start_span("a")
    span.end()
    span.end()
    recorder.close()
    recorder.close()
    recorder.start_span("b").end()
    assert [line["name"] for line in lines()] == ["a"]


@pytest.fixture
def exported() -> Iterator[tuple[Any, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("test"), exporter
    provider.shutdown()


@pytest.mark.parametrize("content", [False, True])
def test_opentelemetry_gets_the_genai_names(
    door: Door, exported: tuple[Any, InMemorySpanExporter], content: bool
) -> None:
    tracer, exporter = exported
    model = ScriptedModel([call("add", a=1, b=2), text("The words.", usage=(20, 3))])
    agent = Agent("mine", model, tools=[add], hooks=[TracingHook()])
    with tracer.start_as_current_span("around"), recording(OtelRecorder(tracer, content=content)):
        door(agent, "?", thread_id="t")
    spans: dict[str, Any] = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"chat scripted", "execute_tool add", "around"}
    chat, tool = spans["chat scripted"], spans["execute_tool add"]
    for span in (chat, tool):
        assert span.parent.span_id == spans["around"].context.span_id
    facts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "scripted",
        "gen_ai.agent.name": "mine",
        "gen_ai.conversation.id": "t",
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 3,
    }
    assert facts.items() <= dict(chat.attributes).items()
    assert {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
    }.items() <= dict(tool.attributes).items()
    told = repr([dict(span.attributes) for span in spans.values()])
    assert ("The words." in told) is content
    assert ("gen_ai.tool.call.arguments" in tool.attributes) is content


def test_opentelemetry_is_told_of_failures_and_events(
    door: Door, exported: tuple[Any, InMemorySpanExporter]
) -> None:
    tracer, exporter = exported
    recorder = OtelRecorder(tracer)
    agent = agent_of(error("broken"))
    with recording(recorder), pytest.raises(ModelError):
        door(agent, "?")
    finished: Any = exporter.get_finished_spans()
    (span,) = finished
    assert span.status.status_code.name == "ERROR"
    assert span.attributes["error.type"] == "RuntimeError"
    with tracer.start_as_current_span("outer"):
        recorder.record_event("noted", {"kinds": ["a"], "deep": {"b": 1}})
    event: Any = exporter.get_finished_spans()[-1].events[0]
    assert dict(event.attributes) == {"wick.kinds": ("a",), "wick.deep": '{"b": 1}'}


@pytest.mark.parametrize("content", [False, True])
def test_the_words_of_an_error_leave_only_where_content_is_wanted(
    exported: tuple[Any, InMemorySpanExporter], content: bool
) -> None:
    """In any attribute, status or event; the length and the hash tell one error from another."""
    tracer, exporter = exported
    words = "the patient is called Miller"
    with recording(OtelRecorder(tracer, content=content)), pytest.raises(ModelError):
        agent_of(error(words)).invoke("?")
    finished: Any = exporter.get_finished_spans()
    (span,) = finished
    told = repr((dict(span.attributes), span.status.description, span.events))
    assert ("Miller" in told) is content
    assert any(name.endswith("error_hash") for name in span.attributes) is not content


@pytest.mark.parametrize("kind", ["stream", "astream"])
def test_a_run_that_is_streamed_is_recorded_too(kind: str) -> None:
    recorder = Recorder()
    agent = agent_of(call("add", a=1, b=2), "ok")

    async def read() -> None:
        async for _ in agent.astream("?"):
            pass

    with recording(recorder):
        if kind == "stream":
            list(agent.stream("?"))
        else:
            asyncio.run(read())
    assert [span.name for span in recorder.spans] == ["llm.call", "tool.call", "llm.call"]
