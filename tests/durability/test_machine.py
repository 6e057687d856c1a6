"""Any order of runs, cancellations, failures, questions, restarts, sweeps and deletions."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.types import interrupt

from wick_graph import Agent, SqlSaver
from wick_graph.errors import ModelError
from wick_graph.ledgered import UNKNOWN as UNKNOWN_OUTCOME

THREADS = st.sampled_from(["a", "b"])
WORDS = st.sampled_from(["tea", "milk"])
UNKNOWN = f"Error: {UNKNOWN_OUTCOME}"
CUT_SHORT = "Error: run interrupted before this tool finished"


class Obedient(BaseChatModel):
    """Do what the last user message says: `say W`, `use W`, `ask W`, `fail`."""

    @property
    def _llm_type(self) -> str:
        return "obedient"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        at = max(i for i, m in enumerate(messages) if m.type == "human")
        order, _, word = messages[at].text.partition(" ")
        if order == "fail":
            raise ValueError("as told")
        message = AIMessage(f"{order} {word}")
        if order in ("use", "ask") and at == len(messages) - 1:
            call: Any = {"name": order, "args": {"word": word}, "id": f"c{len(messages)}"}
            message = AIMessage("", tool_calls=[{**call, "type": "tool_call"}])
        return ChatResult(generations=[ChatGeneration(message=message)])


def use(word: str) -> str:
    """Use a word."""
    return f"used {word}"


def ask(word: str) -> str:
    """Ask somebody."""
    return f"asked {word}: {interrupt(word)}"


class Machine(RuleBasedStateMachine):
    """Hold the store against a plain dict of lists."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.threads: dict[str, list[str]] = {}
        self.waiting: dict[str, str] = {}
        self.ahead = 0.0
        self.open()

    def open(self) -> None:
        url = f"sqlite:///{Path(self.folder.name) / 't.db'}"
        self.agent = Agent(model=Obedient(), tools=[use, ask], store=url, ttl="1h")
        store = self.agent.store
        assert isinstance(store, SqlSaver)
        self.store = store
        self.store.clock = lambda: time.time() + self.ahead

    def heard(self, thread: str, text: str) -> list[str]:
        """Note a new message; a call that waited for an answer is cut short by it."""
        messages = self.threads.setdefault(thread, [])
        if self.waiting.pop(thread, None):
            messages.append(f"tool {CUT_SHORT}")
        messages.append(f"human {text}")
        return messages

    @rule(thread=THREADS, word=WORDS)
    def say(self, thread: str, word: str) -> None:
        result = self.agent.invoke(f"say {word}", thread_id=thread)
        self.heard(thread, f"say {word}").append(f"ai say {word}")
        assert (result.text, result.stopped_because) == (f"say {word}", "done")

    @rule(thread=THREADS, word=WORDS)
    def use(self, thread: str, word: str) -> None:
        self.agent.invoke(f"use {word}", thread_id=thread)
        self.heard(thread, f"use {word}").extend(["ai ", f"tool used {word}", f"ai use {word}"])

    @rule(thread=THREADS, word=WORDS)
    def ask(self, thread: str, word: str) -> None:
        result = self.agent.invoke(f"ask {word}", thread_id=thread)
        self.heard(thread, f"ask {word}").append("ai ")
        self.waiting[thread] = word
        assert [i.value for i in result.interrupts] == [word]

    @rule(thread=THREADS)
    def answer(self, thread: str) -> None:
        word = self.waiting.pop(thread, None)
        if word is not None:
            self.agent.resume(thread, "yes")
            self.threads[thread] += [f"tool asked {word}: yes", f"ai ask {word}"]

    @rule(thread=THREADS)
    def fail(self, thread: str) -> None:
        with pytest.raises(ModelError):
            self.agent.invoke("fail", thread_id=thread)
        self.heard(thread, "fail")

    @rule(thread=THREADS, word=WORDS)
    def leave(self, thread: str, word: str) -> None:
        stream: Any = self.agent.stream(f"use {word}", thread_id=thread)
        next(stream)
        stream.close()
        messages = self.heard(thread, f"use {word}")
        stored = self.stored(thread)
        assert stored[: len(messages)] == messages  # how far the run got is a matter of luck
        self.agent.invoke("say hi", thread_id=thread)
        repaired = self.stored(thread)
        assert repaired[: len(stored)] == stored
        left = repaired[len(stored) :]
        if left[0].startswith("tool "):
            assert left.pop(0) in (f"tool {CUT_SHORT}", f"tool used {word}", f"tool {UNKNOWN}")
        assert left == ["human say hi", "ai say hi"]
        self.threads[thread] = repaired

    @rule()
    def restart(self) -> None:
        self.agent.close()
        self.open()

    @rule(thread=THREADS)
    def delete(self, thread: str) -> None:
        assert self.agent.threads.delete(thread) == (thread in self.threads)
        self.threads.pop(thread, None)
        self.waiting.pop(thread, None)

    @rule()
    def sweep(self) -> None:
        self.ahead += 3_700
        expected = {t for t in self.threads if t not in self.waiting}
        assert set(self.store.sweep()) == expected
        for thread in expected:
            del self.threads[thread]

    def stored(self, thread: str) -> list[str]:
        values = self.agent.graph.get_state({"configurable": {"thread_id": thread}}).values
        return [f"{m.type} {m.text}" for m in values.get("messages", [])]

    @invariant()
    def what_is_stored_is_what_was_said(self) -> None:
        if not hasattr(self, "threads"):
            return
        listed = {info.thread_id: info for info in self.agent.threads.list()}
        assert set(listed) == set(self.threads)
        for thread, messages in self.threads.items():
            assert self.stored(thread) == messages
            assert (listed[thread].status == "waiting") == (thread in self.waiting)

    def teardown(self) -> None:
        if hasattr(self, "agent"):
            self.agent.close()
            self.folder.cleanup()


Machine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestMachine = Machine.TestCase
