"""Every shape of message that a thread may come to hold: the rows of the matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from tests.providers.speech import Said
from tests.providers.world import PICTURE, PNG, World, calls
from tests.support.wire import Call
from wick_graph import Agent
from wick_graph.events import ChatModelStream
from wick_graph.hooks import SummarizationHook
from wick_graph.messages import agent_call, agent_response, error_message
from wick_graph.testing import ScriptedModel


@dataclass(frozen=True)
class Shape:
    """One row: how the thread comes to hold it, and what a model then reads."""

    name: str
    reads: str
    play: Callable[[World], None]
    refused: str = ""
    """A part of the sentence with which the shape is refused; empty for one that is taken."""


SHAPES: Final[list[Shape]] = []


def shape(
    name: str, reads: str, refused: str = ""
) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def add(play: Callable[[World], None]) -> Callable[[World], None]:
        SHAPES.append(Shape(name, reads, play, refused))
        return play

    return add


def given(name: str, reads: str, *messages: Any, refused: str = "") -> None:
    """Add a shape that comes as an input."""
    shape(name, reads, refused)(lambda world: world.ask([*messages]))


def replied(name: str, reads: str, *replies: Said | str) -> None:
    """Add a shape that comes from the model and its tools."""
    shape(name, reads)(lambda world: world.ask("Hello.", *replies))


def told(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _ai(text: str, *asked: tuple[str, str], **fields: Any) -> AIMessage:
    made: list[Any] = [
        {"type": "tool_call", "id": i, "name": name, "args": {"a": 1, "b": 2}} for i, name in asked
    ]
    return AIMessage(text, tool_calls=made, **fields)


PDF: Final = "JVBERi0="
_PDF: Final = "data:application/pdf;base64"
TEXT: Final = {"type": "text", "text": "What is this?"}

# --- what a user says -------------------------------------------------------------------------

given("a text", "it", "Hello.")
given("an empty text", "", "", refused="content must not be empty")
given("an empty list of blocks", "", told(), refused="content must not be empty")
given("only empty blocks", "", told({"type": "text", "text": ""}), refused="must not be empty")
given("a text of white space alone", "`(blank)`", " \n\t ")
given(
    "a text block that is empty, beside another",
    "the other",
    told({"type": "text", "text": ""}, TEXT),
)
given("blocks that are bare texts", "them", HumanMessage(["one", TEXT]))
given("two messages of the user in a row", "both", "One.", "Two.")
given("half of a surrogate pair", "", "a\ud800b", refused="surrogate")
given("a name that a provider refuses", "the name with `_`", HumanMessage("Hi.", name="Ada <L> ü"))
given("a very long name", "64 characters of it", HumanMessage("Hi.", name="x" * 300))

# --- pictures and other blocks -----------------------------------------------------------------

given("a picture as data", "it", told(TEXT, PICTURE))
given("a picture alone", "it", told(PICTURE))
given(
    "a picture by its address",
    "it; its address as text with Google and Ollama: their clients do not pass addresses on",
    told(TEXT, image("https://example.com/a.png")),
)
given(
    "a picture with an address that is a bare text",
    "it",
    told({"type": "image_url", "image_url": PICTURE["image_url"]["url"]}),
)
given(
    "a picture in LangChain's form",
    "it",
    told(TEXT, {"type": "image", "base64": PNG, "mime_type": "image/png"}),
)
given(
    "a picture in Anthropic's form",
    "it",
    told(
        TEXT,
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    ),
)
given(
    "a picture of a kind that a provider does not read (GIF, SVG)",
    "it, or a note in its place",
    told(TEXT, image(f"data:image/gif;base64,{PNG}"), image(f"data:image/svg+xml;base64,{PNG}")),
)
given(
    "a picture that is not base64", "", told(image("data:image/png;base64,???")), refused="base64"
)
given("a picture on this machine", "", told(image("/etc/hostname")), refused="http")
given(
    "a sound, a file, an unknown block",
    "a note in the place of what the provider does not read",
    told(
        TEXT,
        {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
        {"type": "hologram", "data": "…"},
    ),
)

given(
    "a text block with keys of another provider",
    "the text; Anthropic keeps its marks",
    told({**TEXT, "cache_control": {"type": "ephemeral"}, "foo": 1}),
)
given(
    "a file in each of the forms of the clients",
    "it, or a note in the place of a form that the client cannot write",
    told(
        TEXT,
        {"type": "file", "file": {"file_data": f"{_PDF},{PDF}", "filename": "a.pdf"}},
        {"type": "file", "base64": PDF, "mime_type": "application/pdf", "filename": "a.pdf"},
        {"type": "file", "url": "https://example.com/a.pdf"},
        {"type": "file", "source_type": "text", "text": "A.", "mime_type": "text/plain"},
        {"type": "audio", "base64": PDF, "mime_type": "audio/wav"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "A."}},
        {"type": "document", "data": PDF},
    ),
)
for _kind in ("file", "media", "document", "audio", "input_audio"):
    given(f"a block without data: {_kind}", "", told({"type": _kind}), refused="needs its data")
given(
    "a file with data that is not base64",
    "",
    told({"type": "media", "data": "???", "mime_type": "application/pdf"}),
    refused="not base64",
)
given(
    "a file of no known type",
    "",
    told({"type": "file", "base64": PDF}),
    refused="needs a mime_type",
)

# --- system messages ---------------------------------------------------------------------------

given(
    "several system messages first",
    "one, behind the agent's prompt",
    SystemMessage("A."),
    SystemMessage("B."),
    "Hi.",
)
given(
    "a system message alone",
    "it, and `(the conversation begins)` of the user",
    SystemMessage("Greet."),
)
given("a system message of white space", "nothing of it", SystemMessage(" "), "Hi.")
given(
    "a system message in blocks",
    "it",
    SystemMessage([{"type": "text", "text": "A."}, "B."]),
    "Hi.",
)


given(
    "a system message with a picture first",
    "its text, and the picture in a message of the user",
    SystemMessage(["Look.", PICTURE]),
    SystemMessage([PICTURE]),
    "Hi.",
)
given("a system message that is a picture, alone", "the picture", SystemMessage([PICTURE]))


@shape("a later system message", "`[system] …` of the user")
def _(world: World) -> None:
    world.ask("Hi.")
    world.ask([SystemMessage("Be brief."), HumanMessage("Go on.")])
    world.ask([SystemMessage([PICTURE, "Be kind."]), SystemMessage([PICTURE])])


# --- what a model says -------------------------------------------------------------------------

replied("a call without a text", "it", calls("add"), "Three.")
replied("a call beside a text", "both", calls("add", text="Let me see."), "Three.")
replied("a call beside white space", "the call", calls("add", text=" \n"), "Three.")
replied(
    "calls in parallel", "all, their answers in order", calls("add", "show json", "add"), "Done."
)
replied(
    "more calls than are run", "all; the rest answered as refused", calls(*["add"] * 40), "Done."
)
replied("two turns with calls", "both", calls("add"), calls("show json", text="More."), "Done.")
replied(
    "a tool that does not exist",
    "the call, answered by an error",
    Said(calls=[Call(name="gone", id="g1")]),
    "Done.",
)
replied(
    "a name of a tool with a dot and blanks",
    "the name with `_`",
    Said(calls=[Call(name="functions.1st tool", id="n1")]),
    "Done.",
)
replied(
    "an id of a call that counts from 0",
    "it, and another one for the second",
    Said(calls=[Call(name="show", args={"what": "json"}, id="0")]),
    Said(calls=[Call(name="show", args={"what": "json"}, id="0")]),
    "Done.",
)
replied(
    "an id with dots and colons",
    "another one",
    Said(calls=[Call(name="show", args={"what": "json"}, id="functions.show:0")]),
    "Done.",
)
replied(
    "a very long id of a call",
    "a short one",
    Said(calls=[Call(name="show", args={"what": "json"}, id="chatcmpl-tool-" + "f" * 64)]),
    "Done.",
)
replied("thoughts beside a text", "as that provider wants them", Said(text="Hi.", thought="Hmm."))
replied(
    "thoughts beside calls",
    "unchanged, in place",
    calls("add", "add", text="So.", thought="Hmm."),
    calls("add", thought="Then."),
    "Done.",
)
replied(
    "thoughts that are sealed",
    "unchanged, in place",
    calls("add", thought="Hmm.", redacted=True),
    "Done.",
)
replied("a result that is the answer", "it", calls("final"))


@shape("an answer that is empty", "nothing of it")
def _(world: World) -> None:
    world.ask("Hi.", Said(text=""))


@shape("a refusal", "its text, where the client keeps it")
def _(world: World) -> None:
    world.kit.will_say(Said(refusal="I cannot do that."))
    for provider in ("OpenAI responses", "OpenAI chat"):
        world.agent(provider).invoke("Do it.", thread_id=world.thread)
        world.kit.will_say(Said(refusal="I cannot do that."))
    world.kit.forget()


@shape("the limit of steps", "the last call without tools, and its closing text")
def _(world: World) -> None:
    world.ask("Hi.", calls("add"), calls("add"), max_iterations=2)


# --- results of tools --------------------------------------------------------------------------

for _what, _reads in {
    "empty": "it",
    "blank": "it, without the white space",
    "list": "it",
    "blank list": "an empty result",
    "json": "it",
    "error": "`Error: …`",
    "picture": "it; with OpenAI and Ollama in a message of the user right behind the results",
    "only a picture": "the same",
    "address": "the same, or its address",
}.items():
    replied(f"a result of a tool: {_what}", _reads, calls(f"show {_what}", "add"), "Done.")


@shape("two results with pictures", "the pictures behind the last result")
def _(world: World) -> None:
    world.ask("Hi.", calls("show picture", "add", "show picture"), "Done.")


# --- histories that a caller keeps ---------------------------------------------------------------

given(
    "a history that begins with the assistant",
    "`(the conversation begins)` before it",
    AIMessage("Hello, I am Ada."),
    HumanMessage("Hi."),
)
given("a history with texts", "it", HumanMessage("Hi."), AIMessage("Hello."), HumanMessage("And?"))
given(
    "an assistant's message of white space",
    "nothing of it",
    HumanMessage("Hi."),
    AIMessage(" "),
    HumanMessage("And?"),
)
given(
    "a history that ends with the assistant",
    "",
    HumanMessage("Hi."),
    AIMessage("Hello."),
    refused="nothing to answer",
)
given(
    "calls with their answers",
    "them",
    HumanMessage("Hi."),
    _ai("", ("c1", "add"), ("c2", "add")),
    ToolMessage("3", tool_call_id="c1"),
    ToolMessage("3", tool_call_id="c2"),
    HumanMessage("And?"),
)
given(
    "answers in another order, with words between",
    "them in order",
    HumanMessage("Hi."),
    _ai("", ("c1", "add"), ("c2", "add")),
    ToolMessage("3", tool_call_id="c2"),
    HumanMessage("And?"),
    ToolMessage("3", tool_call_id="c1"),
)
given(
    "calls without an answer",
    "an error in its place",
    HumanMessage("Hi."),
    _ai("So.", ("c1", "add"), ("c2", "add")),
    ToolMessage("3", tool_call_id="c2"),
    HumanMessage("And?"),
)
given(
    "a history that ends with calls",
    "an error in the place of the answer",
    HumanMessage("Hi."),
    _ai("", ("c1", "add")),
)
given(
    "a history that ends with an answer",
    "it",
    HumanMessage("Hi."),
    _ai("", ("c1", "add")),
    ToolMessage("3", tool_call_id="c1"),
)
given(
    "an answer that nothing asked for",
    "",
    HumanMessage("Hi."),
    ToolMessage("3", tool_call_id="c9"),
    refused="no call",
)
given(
    "two answers to one call",
    "",
    HumanMessage("Hi."),
    _ai("", ("c1", "add")),
    ToolMessage("3", tool_call_id="c1"),
    ToolMessage("4", tool_call_id="c1"),
    refused="twice",
)
given(
    "a call that has no id",
    "",
    HumanMessage("Hi."),
    _ai("", ("", "add")),
    HumanMessage("And?"),
    refused="missing ID",
)
given(
    "a call of a strange tool under a strange id",
    "both made acceptable",
    HumanMessage("Hi."),
    _ai("", ("functions.x:0", "1st tool ü")),
    ToolMessage("3", tool_call_id="functions.x:0"),
    HumanMessage("And?"),
)
given(
    "an answer that is empty, and failed",
    "`Error`",
    HumanMessage("Hi."),
    _ai("", ("c1", "add")),
    ToolMessage("", tool_call_id="c1", status="error"),
    HumanMessage("And?"),
)
given(
    "arguments that are no JSON",
    "the call without arguments, answered by an error",
    HumanMessage("Hi."),
    AIMessage(
        "",
        invalid_tool_calls=[
            {"type": "invalid_tool_call", "id": "c1", "name": "add", "args": "{", "error": "no"}
        ],
    ),
    HumanMessage("And?"),
)
given(
    "a picture in an answer of a history",
    "as in any result",
    HumanMessage("Hi."),
    _ai("", ("c1", "add")),
    ToolMessage([PICTURE], tool_call_id="c1"),
    HumanMessage("And?"),
)
given(
    "thoughts with no known provider",
    "nothing of them",
    HumanMessage("Hi."),
    AIMessage(
        [
            {"type": "thinking", "thinking": "Hmm.", "signature": "forged"},
            {"type": "text", "text": "Hello."},
        ]
    ),
    HumanMessage("And?"),
)


def _marked(mark: str, *blocks: Any) -> AIMessage:
    return AIMessage([*blocks], response_metadata={"model_provider": mark} if mark else {})


_CODE: Final = {"type": "executable_code", "executable_code": "1", "language": "PYTHON"}
given(
    "assistant's messages without a text: pictures, code",
    "them, with the provider that made them; else a note",
    HumanMessage("Hi."),
    _marked("", PICTURE),
    HumanMessage("And?"),
    _marked("anthropic", PICTURE),
    HumanMessage("And?"),
    _marked("google_genai", _CODE),
    HumanMessage("And?"),
    _marked("google_genai", {"type": "executable_code"}),
    HumanMessage("And?"),
    _marked("google_genai", {"type": "hologram"}),
    HumanMessage("And?"),
)
given(
    "calls in blocks and notes that are no calls of the message",
    "nothing of them",
    HumanMessage("Hi."),
    AIMessage("x", additional_kwargs={"function_call": {"name": "add", "arguments": "{}"}}),
    HumanMessage("And?"),
    *(
        message
        for mark in ("", "anthropic", "openai", "google_genai")
        for message in (
            _marked(
                mark,
                {"type": "tool_use", "id": "x1", "name": "add", "input": {}},
                {"type": "function_call", "call_id": "x2", "name": "add", "arguments": "{}"},
            ),
            HumanMessage("And?"),
        )
    ),
)
given(
    "thoughts under a provider's mark, not sealed",
    "nothing of them",
    HumanMessage("Hi."),
    _marked("anthropic", {"type": "thinking", "thinking": "Hmm."}, TEXT),
    HumanMessage("And?"),
    _marked("anthropic", {"type": "redacted_thinking"}, TEXT),
    HumanMessage("And?"),
    _marked("openai", {"type": "reasoning", "summary": []}, TEXT),
    HumanMessage("And?"),
    _marked("google_genai", {"type": "thinking"}, TEXT),
    HumanMessage("And?"),
)


@shape("the same id of a call in two histories", "both, each with its answer")
def _(world: World) -> None:
    history = [
        HumanMessage("Hi."),
        _ai("", ("c1", "add")),
        ToolMessage("3", tool_call_id="c1"),
        HumanMessage("And?"),
    ]
    world.ask(history)
    world.ask([message.model_copy(update={"id": None}) for message in history])


# --- turns that fail ---------------------------------------------------------------------------


@shape("a model call that failed", "the user's messages in a row")
def _(world: World) -> None:
    world.fail()
    world.fail("Again.")
    world.ask("Once more.")


@shape("a model call that failed behind a call", "the call with its answer")
def _(world: World) -> None:
    world.fail("Hi.", calls("add", text="So.", thought="Hmm."))
    world.ask("Once more.")


@shape("a model call that failed, and a resume", "the same")
def _(world: World) -> None:
    world.fail("Hi.", calls("add", text="So.", thought="Hmm."))
    world.agent().resume(world.thread)


def _cut(world: World) -> None:
    """Take a turn whose reader leaves in the middle of the reply."""
    slow = ScriptedModel(["One two three four five six."], chunk_delay=0.2)
    events = Agent("tester", slow, store=world.store).stream("Count.", thread_id=world.thread)
    for event in events:
        if isinstance(event, ChatModelStream) and event.delta.strip():
            break
    events.close()  # type: ignore[attr-defined]  # it is a generator


@shape("a reply that was cut off", "the part that its reader got")
def _(world: World) -> None:
    _cut(world)
    world.ask("Once more.")


@shape("a reply that was cut off, and a resume", "the messages before it")
def _(world: World) -> None:
    _cut(world)
    world.agent().resume(world.thread)


@shape("a run that ended before its calls ran", "an error in the place of each answer")
def _(world: World) -> None:
    world.kit.will_say(calls("add", "add", thought="Hmm."))
    config: Any = {"configurable": {"thread_id": world.thread}}
    hello = {"messages": [("user", "Hi.")]}
    world.agent().graph.invoke(hello, config, interrupt_before=["tools"])
    world.ask("Never mind.")


# --- records -----------------------------------------------------------------------------------


@shape("records of errors", "those of other agents, as words of the user")
def _(world: World) -> None:
    world.ask("Hi.")
    world.write(
        HumanMessage("Go."),
        error_message(ValueError("no"), "tester"),
        error_message("no", "worker"),
    )
    world.ask("And?")


@shape("records of agents that called each other", "the request, as words of the user")
def _(world: World) -> None:
    world.ask("Hi.")
    world.write(
        agent_call("Look.", "worker", caller="tester"),
        agent_response("Found.", "worker", task_id="t1"),
    )
    world.ask("And?")


@shape("records that belong to a call", "the answer of that call")
def _(world: World) -> None:
    world.ask("Hi.")
    world.write(
        HumanMessage("Go."),
        _ai("", ("c1", "worker"), ("c2", "worker")),
        agent_call("Look.", "worker", caller="tester", tool_call_id="c1"),
        agent_response("Found.", "worker", task_id="t1", tool_call_id="c1"),
        error_message("no", "worker", tool_call_id="c2"),
    )
    world.ask("And?")


@shape("a summary", "it, in the place of the old part")
def _(world: World) -> None:
    long = "word " * 1_200
    for _ in range(3):
        world.ask(long, calls("add", text="So.", thought="Hmm."), "Done.")
    world.kit.will_say("They talked.", "Done.", "Done.", "Done.")
    world.ask(long, hooks=[SummarizationHook(window=6_000)])
    world.kit.forget()


# --- threads that change their model -------------------------------------------------------------


def _elsewhere(source: str) -> None:
    @shape(f"a thread begun with {source}", "its texts and calls, not its thoughts")
    def _(world: World) -> None:
        asked = calls("add", "show picture", text="So.", thought="Hmm.", redacted=True)
        world.ask_elsewhere(
            source, asked, calls("add", thought="Then."), Said(text="Done.", thought="Hm.")
        )

    @shape(f"a turn begun with {source}, finished here", "the same")
    def _(world: World) -> None:
        world.fail("Hi.", calls("add", "add", text="So.", thought="Hmm."), provider=source)
        world.agent().resume(world.thread)


for _source in (
    "OpenAI chat",
    "OpenAI responses",
    "Anthropic",
    "Anthropic without thinking",
    "Google",
    "Ollama",
):
    _elsewhere(_source)


@shape("a thread that goes to another model and back", "each its own thoughts")
def _(world: World) -> None:
    world.ask("Hi.", calls("add", text="So.", thought="Hmm."), Said(text="Done.", thought="Hm."))
    for other in ("OpenAI responses", "Anthropic", "Google", "OpenAI chat"):
        world.ask_elsewhere(other, calls("add", text="So.", thought=f"{other}?"), "Done.")
    world.ask("And?", calls("add", thought="Hmm."), "Done.")
