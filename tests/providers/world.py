"""What a shape is played in: an agent of one provider, on a real store, against strict servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from langchain_core.messages import BaseMessage

from tests.providers.speech import Said
from tests.providers.strict import Strict
from tests.support.wire import Call
from wick_graph import Agent, WickError, tool
from wick_graph.events import Failed
from wick_graph.store import SqlSaver

PNG: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)
PICTURE: Final[dict[str, Any]] = {
    "type": "image_url",
    "image_url": {"url": f"data:image/png;base64,{PNG}"},
}

PROVIDERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "OpenAI chat": {"provider": "openai", "model": "gpt-4.1-mini"},
    "OpenAI responses": {
        "provider": "openai",
        "model": "gpt-5-mini",
        "params": {"use_responses_api": True, "output_version": "responses/v1"},
    },
    "Anthropic": {
        "provider": "anthropic",
        "model": "claude-haiku-4-5",
        "max_tokens": 4_000,
        "params": {"thinking": {"type": "enabled", "budget_tokens": 1_024}},
    },
    "Google": {"provider": "google", "model": "gemini-3-flash-preview"},
    "Ollama": {"provider": "ollama", "model": "qwen3"},
    "Anthropic without thinking": {"provider": "anthropic", "model": "claude-haiku-4-5"},
}
"""Models, by the names of the columns; the last only begins threads that others go on with."""
COLUMNS: Final = [*PROVIDERS][:-1]
_THREADS: Final = count()


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
def show(what: str) -> Any:
    """Give a result of the kind that is asked for."""
    results: dict[str, Any] = {
        "empty": "",
        "blank": " \n",
        "list": ["one", {"type": "text", "text": "two"}],
        "blank list": [{"type": "text", "text": " "}],
        "picture": [{"type": "text", "text": "Here it is."}, PICTURE],
        "only a picture": [PICTURE],
        "address": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}],
        "json": '{"sum": 3}',
    }
    if what == "error":
        raise ValueError("no such thing")
    return results[what]


@tool(return_direct=True)
def final() -> str:
    """Give the answer itself."""
    return "42"


def calls(*names: str, **more: Any) -> Said:
    """Make a reply that asks for tools; `show x` asks `show` for x."""
    made = []
    for n, name in enumerate(names):
        head, _, what = name.partition(" ")
        args: dict[str, Any] = {"what": what} if head == "show" else {"a": n, "b": 2}
        args = {} if head == "final" else args
        made.append(Call(name=head, args=args, id=f"call_{next(_IDS)}"))
    return Said(calls=made, **more)


_IDS: Final = count()


def model_of(kit: Strict, provider: str) -> dict[str, Any]:
    """Return the model of a provider, at the server on loopback."""
    spec = dict(PROVIDERS[provider])
    key = {} if spec["provider"] == "ollama" else {"api_key": "k"}
    url = kit.url if spec["provider"] == "openai" else kit.origin
    return {**spec, **key, "base_url": url, "retries": 0, "timeout": 20}


@dataclass
class World:
    """One cell of the matrix."""

    kit: Strict
    store: SqlSaver
    provider: str
    models: dict[str, Any]
    """Models that were built, by provider: building one costs more than asking it."""
    agents: dict[str, Agent]
    """The same of agents without options."""
    thread: str = field(default_factory=lambda: f"t{next(_THREADS)}")

    def agent(self, provider: str | None = None, **options: Any) -> Agent:
        name = provider or self.provider
        if not options and name in self.agents:
            return self.agents[name]
        given: dict[str, Any] = {
            "system_prompt": "Be brief.",
            "tools": [add, show, final],
            "store": self.store,
            **options,
        }
        made = Agent("tester", self.models[name], **given)
        if not options:
            self.agents[name] = made
        return made

    def ask(self, given: Any = "Hello.", *replies: Said | str, **options: Any) -> None:
        """Take a turn; the replies are the model's."""
        self.kit.will_say(*replies)
        self.agent(**options).invoke(given, thread_id=self.thread)

    def ask_elsewhere(self, provider: str, *replies: Said | str) -> None:
        """Take a turn with another provider's model."""
        self.kit.will_say(*replies)
        self.agent(provider).invoke("Hello.", thread_id=self.thread)

    def write(self, *messages: BaseMessage) -> None:
        """Write messages into the thread, as a program does that does not ask the model."""
        config: Any = {"configurable": {"thread_id": self.thread}}
        self.agent().graph.update_state(config, {"messages": [*messages]}, as_node="before_agent")

    def fail(
        self, given: Any = "Hello.", *replies: Said | str, provider: str | None = None
    ) -> None:
        """Take a turn whose last model call fails."""
        self.kit.will_say(*replies)
        self.kit.failing_after = len(replies)
        try:
            self.agent(provider).invoke(given, thread_id=self.thread)
        except WickError:
            return
        raise AssertionError("the model call did not fail")

    def live_on(self, *, fork: bool) -> None:
        """Go on with the thread, or a copy: a new turn, stopped before its model call, resumed."""
        copy = f"{self.thread}-copy" if fork else self.thread
        if fork:
            self.store.threads.fork(self.thread, copy)
        agent = self.agent()
        config: Any = {"configurable": {"thread_id": copy}}
        wait: Any = {"messages": [("user", "What is 0+2?")]}
        self.kit.will_say(calls("add"), "Two.")
        agent.graph.invoke(wait, config, interrupt_before=["model"])
        for event in agent.stream_resume(copy):
            if isinstance(event, Failed) and event.exception is not None:
                raise event.exception
