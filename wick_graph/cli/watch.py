"""Watch a run at a terminal: its answer, its tool calls, its questions."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from wick_graph.cli import output
from wick_graph.errors import ConfigError

if TYPE_CHECKING:
    from wick_graph import events
    from wick_graph.engine.result import Result


# --- Questions of a waiting run: show them, ask them at a terminal, read answers from flags.


_SHORT: Final = 8
"""Characters of an id to show; any unambiguous prefix is accepted."""

_SHOWN: Final = 20_000
"""Characters of a question to show."""


class Question(Protocol):
    """An open question of a run: an interrupt."""

    id: str
    value: Any


def in_order(asked: Iterable[Question]) -> list[Question]:
    """Sort questions in the order of the model's calls; other questions come last."""
    return sorted(asked, key=lambda question: _field(question.value, "index", 1_000))


def describe(id: str, value: Any) -> list[str]:
    """Write a question in lines; say so if anything is left out, since a person decides by them."""
    head = f"? ({id[:_SHORT]})" if id else "?"
    problem = _field(value, "problem", "")
    lines = [f"{head} {problem}"] if problem else []
    match _field(value, "kind", ""):
        case "approval":
            lines.append(f"{head} may {value['tool']} run? {value['why']}")
            lines += _indented(_json(value["args"], indent=2))
        case "question":
            first, *more = value["question"].splitlines() or [""]
            lines += [f"{head} {first}", *(f"  {line}" for line in more)]
            lines += [f"  {n} {option}" for n, option in enumerate(value["options"], 1)]
        case _:
            first, *more = (value if isinstance(value, str) else _json(value)).splitlines() or [""]
            lines += [f"{head} {first}", *(f"  {line}" for line in more)]
    return [_visible(line) for line in lines]


def headline(value: Any) -> str:
    """Write a question in one line, without its id."""
    return describe("", value)[0].removeprefix("? ")


def how_to_answer(asked: Question) -> str:
    """Name the flags of `wick resume` that answer a question."""
    short = asked.id[:_SHORT]
    if not _is_approval(asked):
        return f"  --answer {short}=TEXT"
    return f"  --approve {short}, --reject {short}, --edit {short}=JSON or --answer {short}=TEXT"


def can_ask() -> bool:
    """Return whether standard input and standard error are terminals."""
    return output.is_terminal(sys.stdin) and output.is_terminal(sys.stderr)


def ask(asked: Sequence[Question]) -> dict[str, Any]:
    """Ask a person each question; Ctrl-D or Ctrl-C keeps the answers given so far."""
    answers: dict[str, Any] = {}
    try:
        for question in in_order(asked):
            for line in describe(question.id, question.value):
                output.say(line)
            approval = _is_approval(question)
            answers[question.id] = _decision(question) if approval else _answer(question)
    except (EOFError, KeyboardInterrupt):
        output.say("")
    return answers


def from_flags(
    asked: Sequence[Question],
    *,
    approve: Sequence[str] | None = None,
    reject: Sequence[str] | None = None,
    answer: Sequence[str] | None = None,
    edit: Sequence[str] | None = None,
    all_approve: bool = False,
) -> dict[str, Any]:
    """Read the flags of `wick resume` as answers to the open questions.

    Raises:
        ConfigError: An id fits no question or several, a question is answered twice, or a flag
            does not fit its question.
    """
    given = [
        *(_approved(written, asked) for written in approve or ()),
        *(_rejected(written, asked) for written in reject or ()),
        *(_edited(written, asked) for written in edit or ()),
        *(_answered(written, asked) for written in answer or ()),
    ]
    answers = {question.id: value for question, value in given}
    if len(answers) < len(given):
        raise ConfigError("a question is answered twice; pass each id to one option")
    calls = [question for question in asked if all_approve and _is_approval(question)]
    return {**{call.id: _decided(call, "approve") for call in calls}, **answers}


_Given = tuple[Question, Any]


def _approved(short: str, asked: Sequence[Question]) -> _Given:
    question = _approval("--approve", short, asked)
    return question, _decided(question, "approve")


def _rejected(written: str, asked: Sequence[Question]) -> _Given:
    short, _, message = written.partition("=")
    question = _approval("--reject", short, asked)
    return question, _decided(question, "reject", message=output.unicode(message))


def _edited(written: str, asked: Sequence[Question]) -> _Given:
    short, text = _pair("--edit", written, "JSON")
    question = _approval("--edit", short, asked)
    args = _object(text)
    if isinstance(args, str):
        raise ConfigError(f"--edit {short}: {args}")
    return question, _decided(question, "edit", args=args)


def _answered(written: str, asked: Sequence[Question]) -> _Given:
    short, text = _pair("--answer", written, "TEXT")
    question = _find("--answer", short, asked)
    if _is_approval(question):
        return question, _decided(question, "respond", message=text)
    return question, _chosen(question, text)


def _find(flag: str, short: str, asked: Sequence[Question]) -> Question:
    found = [question for question in asked if short and question.id.startswith(short)]
    if len(found) == 1:
        return found[0]
    which = "several questions" if found else "no open question"
    known = ", ".join(question.id[:_SHORT] for question in in_order(asked)) or "none"
    raise ConfigError(f"{flag}: the id {short[:40]!r} fits {which}; waiting: {known}")


def _approval(flag: str, short: str, asked: Sequence[Question]) -> Question:
    question = _find(flag, short, asked)
    if not _is_approval(question):
        raise ConfigError(f"{flag} {short}: this is a question; write --answer {short}=TEXT")
    return question


def _pair(flag: str, written: str, what: str) -> tuple[str, str]:
    short, equals, text = written.partition("=")
    if not equals:
        raise ConfigError(f"{flag} {written[:40]}: write {flag} ID={what}")
    return short, output.unicode(text)


def _object(text: str) -> dict[str, Any] | str:
    """Read arguments, or return why they are invalid."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"the arguments are not JSON ({str(error)[:80]})"
    return value if isinstance(value, dict) else "the arguments are not a JSON object"


def _decided(asked: Question, decision: str, **more: Any) -> dict[str, Any]:
    return {"decision": decision, "hash": asked.value["hash"], **more}


def _decision(asked: Question) -> dict[str, Any]:
    while True:
        match line("  y approve, n reject, e edit, r replace its result: ").strip().lower():
            case "y" | "yes":
                return _decided(asked, "approve")
            case "n" | "no":
                why = line("  why, for the model (Enter for no reason): ").strip()
                return _decided(asked, "reject", message=why)
            case "r":
                return _decided(asked, "respond", message=line("  answer: "))
            case "e":
                args = _object(line("  arguments: ", prefilled=json.dumps(asked.value["args"])))
                if not isinstance(args, str):
                    return _decided(asked, "edit", args=args)
                output.say(f"  {args}")


def _answer(asked: Question) -> str:
    while True:
        text = line("  answer: ").strip()
        if text:
            return _chosen(asked, text)


def _chosen(asked: Question, text: str) -> str:
    """Turn the number of an option into the option."""
    options = _field(asked.value, "options", [])
    known = {str(n): str(option) for n, option in enumerate(options, 1)}
    return known.get(text, text)


def line(prompt: str, *, prefilled: str = "") -> str:
    """Read a line from the terminal, with readline if it is installed.

    Raises:
        EOFError: The person pressed Ctrl-D.
        KeyboardInterrupt: The person pressed Ctrl-C.
    """
    if not output.is_terminal(sys.stdout):  # `input` would write its prompt into the file
        sys.stderr.write(prompt)
        sys.stderr.flush()
        prompt = ""
    with suppress(ImportError):
        import readline

        readline.set_startup_hook((lambda: readline.insert_text(prefilled)) if prefilled else None)
    return output.unicode(input(prompt))


def _is_approval(asked: Question) -> bool:
    return bool(_field(asked.value, "kind", "") == "approval")


def _field(value: Any, name: str, default: Any) -> Any:
    return value.get(name, default) if isinstance(value, Mapping) else default


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def _indented(text: str) -> list[str]:
    cut = text[:_SHOWN]
    rest = [f"  … {len(text) - _SHOWN:,} more characters"] if len(text) > _SHOWN else []
    return [*(f"  {part}" for part in cut.split("\n")), *rest]


def _visible(text: str) -> str:
    """Show hidden characters: a person must see exactly what the tool gets."""
    from wick_graph.messages.content import visible

    return visible(text)


# --- Views of a run: the answer on standard output, tool calls and the rest on standard error.


_ARGUMENT: Final = 60
"""Characters of one argument to show in the line of a tool call."""


class View:
    """Receive a run's events; keep its result or failure."""

    def __init__(self) -> None:
        self.result: Result | None = None
        self.failed: BaseException | None = None

    def begin(self) -> None:
        """Forget the previous run."""
        self.result = self.failed = None

    def __call__(self, event: events.Event) -> None:
        """Show one event by the method of its name."""
        show = getattr(self, event.event, None)
        if show is not None:
            show(event)

    def done(self, event: events.Done) -> None:
        """Keep the result."""
        self.result = event.result

    def error(self, event: events.Failed) -> None:
        """Keep the error of the run."""
        self.result = event.result  # of a cancelled run
        if event.result is None:
            self.failed = event.exception or RuntimeError(event.error)

    def end_line(self) -> None:
        """End a line that is still open on standard output."""


class Live(View):
    """Show events to a person as they arrive."""

    def __init__(self, *, tokens: bool, asks: bool = False) -> None:
        super().__init__()
        self._tokens = tokens
        self._asks = asks
        """The caller shows and asks the questions."""
        self._begun: set[str] = set()
        """Calls that stopped to ask; after an answer they start once more."""
        self._open_line = False
        self._streamed = ""
        """Text of the current reply."""
        self._failing = ""
        """The model of a call that failed and is tried again."""
        self._shown = ""
        """The last complete reply that was shown."""
        self._several = False
        """The reply asked for more than one call."""

    def on_chat_model_start(self, event: events.ChatModelStart) -> None:
        """Begin a reply."""
        self._streamed = ""

    def on_chat_model_stream(self, event: events.ChatModelStream) -> None:
        """Show a piece of text at once."""
        self._say_fallback(event.name)
        self._streamed += event.delta
        if self._tokens and event.delta:
            output.write(event.delta)
            self._open_line = not event.delta.endswith("\n")

    def on_chat_model_retry(self, event: events.ChatModelRetry) -> None:
        """Say that the reply starts again."""
        self.end_line()
        again = f"again in {event.delay:.1f} s" if event.delay else "again"
        error = output.shorten(event.error, output.line_width() - 40)
        output.say(f"the model call failed ({error}); trying {again}", dim=True)
        self._streamed, self._failing = "", event.name

    def _say_fallback(self, model: str) -> None:
        """Name the model that answers if it is not the one that failed."""
        if self._failing not in ("", model):
            output.say(f"{model} answers instead of {self._failing}", dim=True)
        self._failing = ""

    def on_chat_model_end(self, event: events.ChatModelEnd) -> None:
        """End a reply; show it now if it was not streamed."""
        self._say_fallback(event.name)
        if self._tokens and event.content and not self._streamed:
            output.write(event.content)
            self._open_line = not event.content.endswith("\n")
        if self._tokens:
            self._shown = event.content
        self.end_line()
        self._streamed = ""
        self._several = len(event.tool_calls) > 1

    def on_tool_start(self, event: events.ToolStart) -> None:
        """Show a call."""
        self.end_line()
        if event.run_id and event.run_id in self._begun:
            return
        self._begun.add(event.run_id)
        output.say(output.shorten(f"→ {call_text(event.name, event.args)}", output.line_width()))

    def on_tool_end(self, event: events.ToolEnd) -> None:
        """Show a call's result, with the tool's name if several run at once."""
        self._begun.discard(event.run_id)
        name = f"{event.name}: " if self._several else ""
        text = event.output if event.error is None else f"failed: {event.error}"
        output.say(output.shorten(f"← {name}{text}", output.line_width()))

    def on_subagent(self, event: events.SubagentEvent) -> None:
        """Show which tools a sub-agent calls."""
        if event.inner.event == "on_tool_start":
            self.end_line()
            called = call_text(event.inner.name, event.inner.args)
            text = f"  {' > '.join(event.path)} → {called}"
            output.say(output.shorten(text, output.line_width()), dim=True)

    def interrupt(self, event: events.Interrupted) -> None:
        """Show the questions of the run."""
        self.end_line()
        if event.value is None:
            output.say("? it is at a breakpoint")
        elif not self._asks:
            for line in describe(event.interrupt_id, event.value):
                output.say(line)

    def done(self, event: events.Done) -> None:
        """Show an answer that was not streamed, such as one from a hook."""
        super().done(event)
        self.end_line()
        told = self._streamed if self._tokens else ""  # after the last reply: a limit's words, say
        if self.result is not None and self.result.text not in ("", self._shown, told):
            output.write(self.result.text.removesuffix("\n") + "\n")

    def error(self, event: events.Failed) -> None:
        """Leave the current reply incomplete."""
        super().error(event)
        self.end_line()

    def end_line(self) -> None:
        """End a line that is still open on standard output."""
        if self._open_line:
            self._open_line = False
            output.write("\n")


class JsonLines(View):
    """Write each event as one line of JSON."""

    def __call__(self, event: events.Event) -> None:
        """Write one event."""
        output.print_json(event.to_dict(), indent=None)
        super().__call__(event)


class JsonResult(View):
    """Write one JSON object at the end of the run: its result or error."""

    def done(self, event: events.Done) -> None:
        """Write the result."""
        super().done(event)
        output.print_json(event.result.to_dict())

    def error(self, event: events.Failed) -> None:
        """Write the error."""
        super().error(event)
        if event.result is not None:
            output.print_json(event.result.to_dict())
            return
        ids = {"thread_id": event.thread_id, "run_id": event.run_id}
        output.print_json({**ids, **event.data()})


def call_text(name: str, args: Mapping[str, Any]) -> str:
    """Write a call the way Python does: `calculate(expression="21*2")`."""
    return f"{name}({', '.join(f'{key}={_short(value)}' for key, value in args.items())})"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _ARGUMENT else text[: _ARGUMENT - 1] + "…"


def program() -> list[str]:
    """Return the command that starts this program in the user's shell."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return [Path(sys.executable).name, "-m", "wick_graph"]
    found = shutil.which(called.name)
    if found is not None and Path(found).resolve() == called.resolve():
        return [called.name]
    return [sys.argv[0]]
