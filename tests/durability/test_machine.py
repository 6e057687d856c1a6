"""Any order of runs, cancellations, crashes, failures, questions, forks, restarts and sweeps."""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.types import interrupt

from tests.support.often import often
from tests.support.postgres import with_schema
from wick_graph import Agent, SqlSaver
from wick_graph.errors import ModelError, ThreadNotFoundError
from wick_graph.runtime.tool_ledger import UNKNOWN as UNKNOWN_OUTCOME

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
        if order in ("use", "ask", "die") and at == len(messages) - 1:
            call: Any = {"name": order, "args": {"word": word}, "id": f"c{len(messages)}"}
            message = AIMessage("", tool_calls=[{**call, "type": "tool_call"}])
        return ChatResult(generations=[ChatGeneration(message=message)])


def use(word: str) -> str:
    """Use a word."""
    return f"used {word}"


def ask(word: str) -> str:
    """Ask somebody."""
    return f"asked {word}: {interrupt(word)}"


def die(word: str) -> str:
    """Take the process down."""
    os.kill(os.getpid(), signal.SIGKILL)
    return word


class Machine(RuleBasedStateMachine):
    """Hold the store against a plain dict of lists."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.url = self.new_url()
        self.threads: dict[str, list[str]] = {}
        self.waiting: dict[str, str] = {}
        self.ahead = 0.0
        self.keys = 0
        self.open()

    def new_url(self) -> str:
        return f"sqlite:///{Path(self.folder.name) / 't.db'}"

    def open(self) -> Agent:
        self.agent = Agent(model=Obedient(), tools=[use, ask, die], store=self.url, ttl="1h")
        store = self.agent.store
        assert isinstance(store, SqlSaver)
        self.store = store
        self.store.clock = lambda: time.time() + self.ahead
        return self.agent

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
        self.heard(thread, "fail").append("chat LLM call: ValueError: as told")

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

    @rule(thread=THREADS, word=WORDS)
    def crash(self, thread: str, word: str) -> None:
        """Take a process down in a call, then go on: the call counts as unknown."""
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                self.open().invoke(f"die {word}", thread_id=thread)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status)
        result = self.agent.resume(thread)
        assert (result.text, result.stopped_because) == (f"die {word}", "done")
        messages = self.heard(thread, f"die {word}")
        messages.extend(["ai ", f"tool {UNKNOWN}", f"ai die {word}"])

    @rule(thread=THREADS, word=WORDS)
    def retry(self, thread: str, word: str) -> None:
        """Ask for one thing twice: it is done once."""
        self.keys += 1
        asked: Any = {"thread_id": thread, "idempotency_key": f"k{self.keys}"}
        first = self.agent.invoke(f"say {word}", **asked)
        again = self.agent.invoke(f"say {word}", **asked)
        assert (first.run_id, first.text) == (again.run_id, again.text)
        self.heard(thread, f"say {word}").append(f"ai say {word}")

    @rule(thread=THREADS)
    def fork(self, thread: str) -> None:
        """A fork says what its source says, and goes its own way."""
        self.agent.threads.delete("fork")
        if thread not in self.threads:
            with pytest.raises(ThreadNotFoundError):
                self.agent.threads.fork(thread, "fork")
            return
        self.agent.threads.fork(thread, "fork")
        assert self.stored("fork") == self.threads[thread]
        self.agent.invoke("say away", thread_id="fork")
        assert self.stored("fork")[-1] == "ai say away"
        assert self.agent.threads.delete("fork")

    @rule(thread=THREADS)
    def prune(self, thread: str) -> None:
        self.agent.threads.keep_latest(thread, 2)

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


EXAMPLES = settings(
    max_examples=often(50),
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
Machine.TestCase.settings = EXAMPLES
TestMachine = Machine.TestCase


def test_the_same_on_postgres(postgres_server: str) -> None:
    made: list[str] = []

    class OnPostgres(Machine):
        def new_url(self) -> str:
            made.append(f"m_{secrets.token_hex(6)}")
            return with_schema(postgres_server, made[-1])

    try:
        run_state_machine_as_test(OnPostgres, settings=settings(EXAMPLES, max_examples=6))
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as db:
            for schema in made:
                db.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
