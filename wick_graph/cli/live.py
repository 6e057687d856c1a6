"""A run as it is watched: the answer on standard output, tool calls and the rest beside it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wick_graph.cli import output
from wick_graph.cli.asking import describe

if TYPE_CHECKING:
    from wick_graph import events
    from wick_graph.result import Result

_ARGUMENT: Final = 60
"""Characters of one argument that a tool line shows."""


class View:
    """Take in a run's events; what the last one brought is kept."""

    def __init__(self) -> None:
        self.result: Result | None = None
        self.failed: BaseException | None = None

    def begin(self) -> None:
        """Forget the run before."""
        self.result = self.failed = None

    def __call__(self, event: events.Event) -> None:
        """Show one event; the methods bear the events' names."""
        show = getattr(self, event.event, None)
        if show is not None:
            show(event)

    def done(self, event: events.Done) -> None:
        """Keep the result."""
        self.result = event.result

    def error(self, event: events.Failed) -> None:
        """Keep what the run failed of."""
        self.result = event.result  # of a run that was cancelled
        if event.result is None:
            self.failed = event.exception or RuntimeError(event.error)

    def end_line(self) -> None:
        """End a line that is still open on standard output."""


class Live(View):
    """Show events to a person, as they come."""

    def __init__(self, *, tokens: bool, asks: bool = False) -> None:
        super().__init__()
        self._tokens = tokens
        self._asks = asks
        """Somebody else shows the questions, and asks them."""
        self._begun: set[str] = set()
        """Calls that stopped to ask: going on, they begin once more."""
        self._open_line = False
        self._streamed = ""
        """Text of the reply that is coming in."""
        self._shown = ""
        """The last whole reply that was shown."""
        self._several = False
        """The reply asked for more than one call."""

    def on_chat_model_start(self, event: events.ChatModelStart) -> None:
        """Begin a reply."""
        self._streamed = ""

    def on_chat_model_stream(self, event: events.ChatModelStream) -> None:
        """Show a piece of text at once."""
        self._streamed += event.delta
        if self._tokens and event.delta:
            output.write(event.delta)
            self._open_line = not event.delta.endswith("\n")

    def on_chat_model_retry(self, event: events.ChatModelRetry) -> None:
        """Say that the reply begins anew."""
        self.end_line()
        again = f"again in {event.delay:.1f} s" if event.delay else "again"
        error = output.shorten(event.error, output.line_width() - 40)
        output.say(f"the model call failed ({error}); trying {again}", dim=True)
        self._streamed = ""

    def on_chat_model_end(self, event: events.ChatModelEnd) -> None:
        """End a reply; one that did not come in pieces is shown now."""
        if self._tokens and event.content and not self._streamed:
            output.write(event.content)
            self._open_line = not event.content.endswith("\n")
        if self._tokens:
            self._shown = event.content
        self.end_line()
        self._several = len(event.tool_calls) > 1

    def on_tool_start(self, event: events.ToolStart) -> None:
        """Show a call."""
        self.end_line()
        if event.run_id and event.run_id in self._begun:
            return
        self._begun.add(event.run_id)
        output.say(output.shorten(f"→ {call_text(event.name, event.args)}", output.line_width()))

    def on_tool_end(self, event: events.ToolEnd) -> None:
        """Show a call's result, with the tool's name where several are on their way."""
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
        """Show what the run waits for."""
        self.end_line()
        if event.value is None:
            output.say("? it stands at a breakpoint")
        elif not self._asks:
            for line in describe(event.interrupt_id, event.value):
                output.say(line)

    def done(self, event: events.Done) -> None:
        """Show an answer that has not been shown yet, such as one that a hook gave."""
        super().done(event)
        self.end_line()
        if self.result is not None and self.result.text not in ("", self._shown):
            output.write(self.result.text.removesuffix("\n") + "\n")

    def error(self, event: events.Failed) -> None:
        """Leave the reply that was coming in as it is."""
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
    """Write one JSON object when the run has ended: its result, or its error."""

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
    """Name this program in words that the reader's shell finds."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return [Path(sys.executable).name, "-m", "wick_graph"]
    found = shutil.which(called.name)
    if found is not None and Path(found).resolve() == called.resolve():
        return [called.name]
    return [sys.argv[0]]
