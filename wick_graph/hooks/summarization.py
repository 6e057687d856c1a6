"""SummarizationHook: when a conversation grows too long to be sent, send a summary of its old part.

The history stays whole in the thread; what changes is what a model call is sent. The summary is
state, so it is made once and holds after a resume in another process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.errors import GraphBubbleUp

from wick_graph.constants import CHARS_PER_TOKEN, KEEP_MIN_MESSAGES
from wick_graph.hooks import summary
from wick_graph.hooks.framing import mark_of
from wick_graph.hooks.protocol import BaseHook, in_place
from wick_graph.models.resolve import ModelChoice, resolve_model
from wick_graph.models.retry import classify
from wick_graph.request import AGENT, ModelRequest, position, shown, thread_of
from wick_graph.views import peek

PURPOSE: Final = "summarize"
"""The purpose of the calls that this hook makes."""
_WORTH: Final = 20
"""What is replaced must be at least this part of the limit, or the next call would do it again."""
_log: Final = logging.getLogger(__name__)


class SummarizationHook(BaseHook):
    """Replace the old part of a conversation by a summary, in what is sent and nowhere else.

    It begins when the estimate of everything that is sent, tools included, is above 85 % of the
    window, and again when summary and rest have grown above it. If a provider says that the
    conversation is too long, it is summarised, and the call is made once more. A summary that
    fails leaves the request as it is. The summariser's calls count as the run's, and no reader of
    the run's stream sees them.

    Args:
        window: Tokens; by default what the agent's model can read.
        model: Writes the summaries, in any form that an agent takes; by default the agent's own.
        base_dir: What relative paths in `model` are relative to.

    Raises:
        ConfigError: `model` is refused.
        ModelError: `model` cannot be found or built.
    """

    name = "summarization"
    phases = ("wrap_model_call",)

    def __init__(
        self,
        window: int | None = None,
        model: str | Mapping[str, Any] | BaseChatModel | ModelChoice | None = None,
        *,
        base_dir: Path | None = None,
    ) -> None:
        self._window = window
        if model is not None and not isinstance(model, ModelChoice):
            model = resolve_model(model, base_dir=base_dir)
        self._model = model

    @in_place
    async def wrap_model_call(self, request: ModelRequest, next: Any) -> Any:
        """Send the request as it is, or with a summary in the place of its old part."""
        if request.purpose != AGENT:
            return await next(request)
        window = self._window or request.ctx.context_window
        known = peek(request.state, "summary") or {}
        work = _Work(request, next, window, known, self._model)
        if work.tokens() > summary.threshold(window):
            work = await work.shortened() or work
        try:
            reply = await next(work.shown())
        except Exception as error:
            if classify(error) != "overflow":
                raise
            shorter = await work.shortened(refused=True)
            if shorter is None:
                raise
            work = shorter
            reply = await next(work.shown())
        return (reply, {"summary": dict(work.known)}) if work.known is not known else reply


@dataclass(frozen=True, slots=True)
class _Work:
    """One request and the summary that it is seen with."""

    request: ModelRequest
    next: Any
    window: int
    known: Mapping[str, Any]
    model: ModelChoice | None

    def parts(self) -> summary.Parts:
        return summary.parts(shown(self.request), self.known)

    def shown(self) -> ModelRequest:
        """Return the request that is sent; the very same one where there is no summary."""
        seen = self.parts() if self.known else None
        if seen is None or not seen.summary:
            return self.request
        return self.request.with_messages(summary.shown(seen, self.known["upto"]))

    def tokens(self) -> int:
        return self.estimate(self.shown())

    def estimate(self, request: ModelRequest) -> int:
        estimated: int = self.request.ctx.tokens_of(request)
        return estimated

    async def shortened(self, *, refused: bool = False) -> _Work | None:
        """Return the same request with more of it summarised, or None if that is not possible.

        Args:
            refused: A provider has said that it is too long, so the estimate cannot be trusted.
        """
        seen = self.parts()
        at = self._cut(seen.rest, KEEP_MIN_MESSAGES if refused else summary.kept(len(seen.rest)))
        old = summary.without_question(seen.rest[:at], seen.rest[at:])
        upto = next((m.id for m in reversed(seen.rest[:at]) if self._is_stored(m)), None)
        if upto is None or not (refused or self._worth(old)):
            return None
        pieces = summary.chunks(old, self.window, 1 if refused else CHARS_PER_TOKEN)
        text = await self._written(pieces, seen.summary) if pieces else ""
        return replace(self, known={"text": text, "upto": upto}) if text else None

    def _cut(self, rest: Sequence[BaseMessage], keep: int) -> int:
        """Find the cut; where what would be kept is itself too long, less is kept."""
        limit = summary.threshold(self.window) // 2
        while keep > KEEP_MIN_MESSAGES:
            if self._size(rest[summary.cut(rest, keep) :]) <= limit:
                break
            keep = max(keep // 2, KEEP_MIN_MESSAGES)
        return summary.cut(rest, keep)

    def _size(self, messages: Sequence[BaseMessage]) -> int:
        return self.estimate(replace(self.request, system=(), tools=()).with_messages(messages))

    def _worth(self, old: Sequence[BaseMessage]) -> bool:
        return self._size(old) * _WORTH >= summary.threshold(self.window)

    def _is_stored(self, message: BaseMessage) -> bool:
        return message.id is not None and position(thread_of(self.request), message.id) is not None

    async def _written(self, pieces: Sequence[str], text: str) -> str:
        """Have the pieces summarised one after the other; empty where that fails."""
        try:
            for piece in pieces:
                text = (await self.next(self._ask(piece, text))).text.strip()
                if not text:
                    break
        except GraphBubbleUp:
            raise
        except Exception as error:
            _log.warning("the conversation could not be summarised: %s", error)
            return ""
        return text

    def _ask(self, piece: str, before: str) -> ModelRequest:
        tokens, words = summary.limits(self.window)
        mark = mark_of(PURPOSE, self.request.ctx.run_id)
        asked = ModelRequest.of(
            [HumanMessage(summary.question(piece, before, mark))],
            settings={"max_tokens": tokens},
            state=self.request.state,
            ctx=self.request.ctx,
        )
        asked = asked.append_system(summary.instructions(words), source=PURPOSE)
        return replace(asked, purpose=PURPOSE, model=self.model)
