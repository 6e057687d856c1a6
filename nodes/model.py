"""model: one model call, wrapped in the hooks' layers, and its reply."""

from __future__ import annotations

import uuid
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import Overwrite

from wick_graph.core.moments import Abort, Moment, Replace, Skip, notify
from wick_graph.core.redaction import REDACTOR
from wick_graph.core.request import AGENT, ModelRequest, as_sent, position, raw, state_view
from wick_graph.core.state import folding, last, reducers
from wick_graph.core.usage import usage_of
from wick_graph.errors import MessageError, ModelError, describe
from wick_graph.hooks.onion import Onion, apply, check_update
from wick_graph.hooks.protocol import Tripwire, Verdict
from wick_graph.messages import ToolResult
from wick_graph.messages.base import (
    MARK_KEY,
    NAME_GIVEN,
    TIMESTAMP_KEY,
    changed_copy,
    private,
    with_time,
)
from wick_graph.models.call import ask, bounded, is_empty, normalise_reply, spoken, storable_reply
from wick_graph.models.structured import ACCEPTED, NOT_RUN, Judged, Output, asking, way_of
from wick_graph.nodes.modify_request import resolve_request
from wick_graph.runtime.context import NodeContext
from wick_graph.tools.bound import BoundTool
from wick_graph.types import StoppedBecause

MAX_CALLS: Final = 32
"""Limit of calls per reply; further calls are answered with an error."""

REASON_CHARS: Final = 500
"""Length of a hook's words about its limit."""

Writes = list[tuple[str, Any]]

_OF_THE_STEP: Final = frozenset({"messages", "iteration"})
"""Channels that all attempts of a step read as they were before it."""

_NO_VERDICT: Final = Verdict()


async def model(state: Mapping[str, Any], ctx: NodeContext) -> Writes:
    """Call the model, and write its reply.

    Raises:
        ModelError: `LLM call: …`: the model, or a hook around it, failed for good.
        MessageError: `invalid messages: …`: the request is invalid; the model is not called.
        HookError: A hook's `after_model` failed.
        OutputError: The model gave no valid output in all its attempts.
    """
    output = ctx.spec.output
    if output is None and (given := _direct(state, ctx)) is not None:
        return [("messages", [given])]
    request, writes = await resolve_request(state, ctx)
    turn = await _turn(request, state, ctx, writes)
    if output is not None:
        turn = await _typed(output, turn, request, state, ctx, writes)
    if turn.empty:  # storing it would make the thread invalid for every later call
        return [*writes, ("stop_reason", "empty")]
    iteration = state.get("iteration", 0) + 1
    last = not turn.given and iteration >= ctx.spec.max_iterations
    withheld = request.withheld and not turn.given
    messages, stop = settle(turn.reply, turn.verdict, withheld, last)
    if stop == "limit":
        ctx.run.reason = _limit_reason(turn.reply, turn.verdict, turn.asked is not None, ctx)
        messages = _closed(messages, iteration, ctx)
    return [*writes, ("messages", messages), ("stop_reason", "done" if turn.given else stop)]


@dataclass(frozen=True, slots=True)
class _Turn:
    """A reply, and what the hooks decide about it."""

    reply: AIMessage
    asked: ModelRequest | None
    """The last request to the model; None if a hook gave the reply in its place."""
    empty: bool = False  # it has neither text nor calls
    verdict: Verdict = _NO_VERDICT
    given: bool = False
    """Whether it gave the agent's output."""


async def _turn(
    request: ModelRequest, state: Mapping[str, Any], ctx: NodeContext, writes: Writes
) -> _Turn:
    """Ask for a reply, and prepare it for the thread."""
    known = len(writes)
    reply, asked = await through_hooks(request, ctx, writes)
    for channel, value in writes[known:] if ctx.run.around is not None else ():
        if channel == "cost":
            ctx.run.spend(channel, value)
    reply = spoken(reply) if ctx.spec.output is None else reply
    writes.append(("iteration", state.get("iteration", 0) + 1))
    if is_empty(reply):
        return _Turn(reply, asked, empty=True)
    reply, bad = normalise_reply(reply)
    if ctx.run.ledger is not None:
        reply = storable_reply(reply, ctx.run.ledger.refusal)
    reply = _marked(reply, state, ctx, bad)
    reply, verdict = await _verdict(reply, state, ctx, writes)
    return _Turn(reply, asked, verdict=verdict)


async def _typed(
    output: Output,
    turn: _Turn,
    request: ModelRequest,
    state: Mapping[str, Any],
    ctx: NodeContext,
    writes: Writes,
) -> _Turn:
    """Take the output from a reply; ask again for a text that is none, outside the thread.

    On the last step of a run, an invalid call is asked again in the same way.

    Raises:
        OutputError: The model gave no valid output in all its attempts.
    """
    failed: int = (state.get("output") or {}).get("attempts", 0)
    checks = {name: tool.check for name, tool in ctx.spec.toolbox.output.items()}
    last = request.withheld or state.get("iteration", 0) + 1 >= ctx.spec.max_iterations
    while turn.asked is not None and not turn.verdict.end:
        reply, way = turn.reply, way_of(output, turn.asked, ctx.spec.model)
        judged = output.judge(reply, way, checks, turn.verdict.answers)
        if judged.value is not None:
            writes.append(("output", judged.value))
            return replace(turn, given=True, verdict=_accepting(turn, judged))
        if not judged.problem:
            return turn
        failed += 1
        if failed > output.retries:
            raise output.refused(judged, failed)
        writes.append(("output", {"attempts": failed}))
        if judged.calls and not last:
            return replace(turn, verdict=_refusing(turn, judged))
        if judged.calls:
            said, _ = settle(reply, _refusing(turn, judged), withheld=True, last=True)
        else:
            replied = () if turn.empty else (reply,)
            said = [*replied, HumanMessage(output.again(judged, way))]
        request = request.append(*said)
        now = _after(state, writes, ctx)
        turn = await _turn(_counted(request, now), now, ctx, writes)
    return turn


def _counted(request: ModelRequest, state: Mapping[str, Any]) -> ModelRequest:
    """Return a request that tells the hooks of the calls of this step, and what they wrote."""
    counted = replace(request.ctx, iteration=request.ctx.iteration + 1)
    return _told(replace(request, ctx=counted), state)


def _told(request: ModelRequest, state: Mapping[str, Any]) -> ModelRequest:
    ctx = request.ctx and replace(request.ctx, state=state_view(state))
    return replace(request, state=state, ctx=ctx)


def _after(state: Mapping[str, Any], writes: Writes, ctx: NodeContext) -> dict[str, Any]:
    """Return the state with what this step wrote, for another call of the model in the step.

    Else a hook would do work again that is done, such as a summary, or spend what is spent. An
    agent's own channels with reducers stay as they were: one may change the value that it gets.
    """
    own = ctx.spec.hooks.reducers
    fold = {**reducers(), "middleware": folding(own)} if own else reducers()
    made, as_before = dict(state), _OF_THE_STEP | ctx.spec.state.reduced
    for name, value in writes:
        if name in as_before:
            continue
        whole = type(value) is Overwrite
        made[name] = value.value if whole else fold.get(name, last)(made.get(name), value)
    return made


def _accepting(turn: _Turn, judged: Judged) -> Verdict:
    """Answer the call that gave the output, and refuse to run the others."""
    made: dict[str, ToolResult | str] = {
        call["id"] or "": _error(call["id"] or "", call["name"], NOT_RUN)
        for call in turn.reply.tool_calls
    }
    made |= dict.fromkeys(judged.calls, ACCEPTED)
    return replace(turn.verdict, answers={**made, **turn.verdict.answers})


def _refusing(turn: _Turn, judged: Judged) -> Verdict:
    """Answer the calls that gave an invalid output; others run."""
    made = {call_id: _error(call_id, "", judged.problem) for call_id in judged.calls}
    return replace(turn.verdict, answers={**turn.verdict.answers, **made})


def settle(
    reply: AIMessage, verdict: Verdict, withheld: bool, last: bool
) -> tuple[list[BaseMessage], str]:
    """Answer the calls of a reply that will not run, and decide whether the run ends.

    Returns:
        The reply with the answers to calls that will not run, and a stop reason, "" for none.
    """
    ends = verdict.end or withheld or last
    messages: list[BaseMessage] = [reply]
    for i, call in enumerate(reply.tool_calls):
        call_id = call["id"] or ""
        if call_id in verdict.answers:
            messages.append(_answer(call_id, call["name"], verdict.answers[call_id]))
        elif ends:
            why = "the run was ended here" if verdict.end else "the limit of steps is reached"
            messages.append(_refusal(call_id, call["name"], why))
        elif i >= MAX_CALLS:
            why = f"too many calls in one reply; at most {MAX_CALLS} are run"
            messages.append(_refusal(call_id, call["name"], why))
    if verdict.end:
        return [*messages, *verdict.then], verdict.because
    return messages, "limit" if withheld or (last and reply.tool_calls) else ""


def _limit_reason(reply: AIMessage, verdict: Verdict, is_models: bool, ctx: NodeContext) -> str:
    """Name the limit that ended the run; a hook's words name its own."""
    if not verdict.end:
        most = ctx.spec.max_iterations
        return f"the agent may make {most} model call{'s' * (most != 1)} in one run"
    texts = [message.text for message in (*verdict.then[-1:], *(() if is_models else (reply,)))]
    words = " ".join(next(filter(None, texts), "").split())
    return words.removeprefix("Stopped: ").rstrip(".")[:REASON_CHARS] or "a hook ended the run"


async def through_hooks(
    request: ModelRequest, ctx: NodeContext, writes: Writes
) -> tuple[AIMessage, ModelRequest | None]:
    """Return the reply, and the last request to the model for it, None if there was none."""
    layers = ctx.spec.hooks.wrap_model_call
    sent: list[ModelRequest] = []
    try:
        if layers:
            reply: AIMessage = await _onion(request, ctx, writes, sent).run(request)
        else:
            reply = await _base(request, ctx, writes, sent)
    except Tripwire as trip:
        trip.writes += [*writes, *([("iteration", _iteration(request) + 1)] if sent else [])]
        raise
    except (GraphBubbleUp, MessageError):
        raise
    except Exception as error:
        raise ModelError(f"LLM call: {REDACTOR.text(describe(error))}") from error
    # A hook that saw it on the way out may still hold it, and change it at any time.
    return (private(bounded(reply)) if layers else reply), sent[-1] if sent else None


def _iteration(request: ModelRequest) -> int:
    """Return how many model calls of the run there were before a request."""
    if request.ctx is None:
        return int(raw(request.state).get("iteration", 0))
    return int(request.ctx.iteration)


def _onion(
    request: ModelRequest, ctx: NodeContext, writes: Writes, sent: list[ModelRequest]
) -> Onion:
    before, known = raw(request.state), len(writes)

    def fresh(asked: ModelRequest) -> ModelRequest:
        new = writes[known:]
        return _told(asked, _after(before, new, ctx)) if new else asked

    return Onion(
        layers=ctx.spec.hooks.wrap_model_call,
        base=lambda asked: _base(asked, ctx, writes, sent),
        bridge=ctx.bridge,
        listener=ctx.listener,
        takes=ModelRequest,
        gives=AIMessage,
        updates=writes,
        fresh=fresh,
    )


def _base(
    asked: ModelRequest, ctx: NodeContext, writes: Writes, sent: list[ModelRequest]
) -> Coroutine[Any, Any, AIMessage]:
    """Call the model, and note the request if it is for the agent's own reply."""
    if asked.purpose == AGENT:
        sent.append(asked)
    return _call(asked, ctx, writes)


async def _call(request: ModelRequest, ctx: NodeContext, writes: Writes) -> AIMessage:
    """The innermost layer: exactly these messages, these tools, these settings."""
    sent = _outgoing(request, ctx)
    given: AIMessage | None = None
    if ctx.listener.active:
        said = await notify(ctx.listener, sent.moment("request", ctx))
        if isinstance(said, Abort):
            raise ModelError(f"stopped before the model call: {said.reason}")
        if isinstance(said, Skip):
            given = said.value
        elif isinstance(said, Replace):
            sent = _Sent.of(said.value, ctx)
            ctx.listener.record(sent.moment("replaced", ctx))
    reply = given if given is not None else await _asked(sent, ctx)
    if ctx.spec.hooks.wrap_model_call:  # a model or its cache may return the same object again
        reply = private(reply)
    used = usage_of(reply)  # here, so that every call through a hook's `next` counts
    ctx.run.count(used)
    writes.append(("usage", used.to_dict()))
    if ctx.listener.active:
        data = {"reply": reply, "usage": used, "purpose": request.purpose}
        data["given"] = given is not None
        said = await notify(ctx.listener, Moment("model", "response", ctx.run.model, data))
        reply = said.value if isinstance(said, Replace) else reply
    return reply


def _outgoing(request: ModelRequest, ctx: NodeContext) -> _Sent:
    try:
        return _Sent.of(ctx.processing.outgoing(request), ctx)
    except MessageError as error:
        raise _invalid(error) from None


def _invalid(error: MessageError) -> MessageError:
    return MessageError(f"invalid messages: {error}")


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request in the form for the model."""

    request: ModelRequest
    messages: list[BaseMessage]
    tools: list[BoundTool]
    brought: Mapping[str, str]
    """The hook that adds a tool, by tool name."""

    @classmethod
    def of(cls, request: ModelRequest, ctx: NodeContext) -> _Sent:
        """Convert a request exactly."""
        known = ctx.tools(request.state)
        if ctx.spec.output is not None and request.purpose == AGENT:
            request = asking(ctx.spec.output, request, ctx.spec.model)
            beside = ctx.spec.toolbox.output
            found = (known.get(name) or beside.get(name) for name in request.tools)
            tools = [tool for tool in found if tool is not None]
        else:
            tools = [known[name] for name in request.tools if name in known]
        return cls(request, ctx.lower(as_sent(request)), tools, known.by)

    def moment(self, phase: str, ctx: NodeContext) -> Moment:
        data = {
            "request": self.request,
            "messages": self.messages,
            "tools": self.tools,
            "brought": self.brought,
            "purpose": self.request.purpose,
        }
        return Moment("model", phase, ctx.spec.model.name, data)


async def _asked(sent: _Sent, ctx: NodeContext) -> AIMessage:
    try:
        ctx.caches.validator.check(sent.messages)
        reply: Any = await ask(ctx, sent.request, sent.messages, sent.tools)
        if not isinstance(reply, AIMessage):
            raise ModelError(f"{ctx.run.model} gave a {type(reply).__name__}, not an AIMessage")
        return ctx.processing.incoming(bounded(reply))
    except BaseException as error:
        if ctx.listener.active:
            data = {"error": error, "purpose": sent.request.purpose}
            ctx.listener.record(Moment("model", "error", ctx.spec.model.name, data))
        if isinstance(error, MessageError):
            raise _invalid(error) from None
        raise


async def _verdict(
    reply: AIMessage, state: Mapping[str, Any], ctx: NodeContext, writes: Writes
) -> tuple[AIMessage, Verdict]:
    """Run every `after_model`; the first answer to a call wins, and any may end the run."""
    then: list[BaseMessage] = []
    answers: dict[str, ToolResult | str] = {}
    because: StoppedBecause | None = None
    try:
        for layer in ctx.spec.hooks.after_model:
            made, update = await apply(
                layer, ctx.bridge, ctx.listener, private(reply), ctx.for_hooks(state)
            )
            writes += update.items()
            if isinstance(made, Verdict):
                reply = _instead(made.reply, reply)
                then += map(private, made.then) if made.end else ()
                answers = {**made.answers, **answers}
                because = because or (made.because if made.end else None)
                writes += check_update(layer, made.update).items()
            elif made is not None:
                writes += check_update(layer, made).items()
    except Tripwire as trip:
        trip.writes += writes
        raise
    then = [_in_its_name(message, ctx) for message in then]
    because = because or dict(writes).get("stop_reason") or None  # a hook's update ends it too
    end = because is not None
    return reply, Verdict(answers=answers, end=end, because=because or "done", then=then)


def _in_its_name(message: BaseMessage, ctx: NodeContext) -> BaseMessage:
    """Give a hook's reply in the model's place the agent's name."""
    if not isinstance(message, AIMessage) or message.name is not None:
        return message
    mark = message.response_metadata.get(MARK_KEY) or {"own": True}
    metadata = {**message.response_metadata, MARK_KEY: mark}
    return changed_copy(message, name=ctx.spec.name, response_metadata=metadata)


def _instead(made: AIMessage | None, reply: AIMessage) -> AIMessage:
    """Return a hook's replacement of a reply, with the reply's identity."""
    if made is None:
        return reply
    mark = dict(reply.response_metadata.get(MARK_KEY, {}))
    if made.name is not None and made.name != reply.name:
        mark[NAME_GIVEN] = True
    own = changed_copy(
        made,
        id=reply.id,
        name=made.name or reply.name,
        response_metadata={**made.response_metadata, MARK_KEY: mark},
        additional_kwargs=with_time(made, reply.additional_kwargs.get(TIMESTAMP_KEY)),
    )
    return private(own)


def _direct(state: Mapping[str, Any], ctx: NodeContext) -> AIMessage | None:
    """Return the answer if all last calls are of `return_direct` tools; else None."""
    results: list[ToolMessage] = []
    for message in reversed(state.get("messages") or ()):
        if not isinstance(message, ToolMessage):
            break
        results.insert(0, message)
    tools = ctx.tools(state) if results else {}
    for result in results:
        tool = tools.get(result.name or "")
        if tool is None or not tool.return_direct or result.status == "error":
            return None
    text = "\n\n".join(filter(None, (result.text for result in results)))
    return _said(text, ctx) if text.strip() else None


def _marked(
    reply: AIMessage, state: Mapping[str, Any], ctx: NodeContext, bad: Mapping[str, str]
) -> AIMessage:
    """Mark the reply with its agent, its time and its step.

    Its calls' ledger keys derive from the step. A name from the model is marked as such. A reply
    is always new, so an id that the thread already has is changed: it would replace a message.
    """
    mark: dict[str, Any] = {"step": ctx.task_id}
    if bad:
        mark["bad"] = dict(bad)
    if reply.name is not None:
        mark[NAME_GIVEN] = True
    changes: dict[str, Any] = {
        "name": reply.name or ctx.spec.name,
        "response_metadata": {**reply.response_metadata, MARK_KEY: mark},
        "additional_kwargs": with_time(reply),
    }
    if reply.id is None or position(state.get("messages") or (), reply.id) is not None:
        changes["id"] = str(uuid.uuid4())
    return private(reply, **changes)


def _answer(call_id: str, name: str, answer: ToolResult | str) -> ToolMessage:
    if isinstance(answer, str):
        return ToolResult(tool_call_id=call_id, name=name, output=answer).to_message()
    return answer.replace(tool_call_id=call_id, name=name).to_message()


def _refusal(call_id: str, name: str, why: str) -> ToolMessage:
    return _error(call_id, name, why).to_message()


def _error(call_id: str, name: str, why: str) -> ToolResult:
    return ToolResult(tool_call_id=call_id, name=name, output="", error=why)


def _closed(messages: list[BaseMessage], iteration: int, ctx: NodeContext) -> list[BaseMessage]:
    """End a thread at its limit with an assistant's text, so that it is well-formed."""
    last = messages[-1]
    if isinstance(last, AIMessage) and last.text and not last.tool_calls:
        return messages
    steps = f"{iteration} step" if iteration == 1 else f"{iteration} steps"
    return [*messages, _said(f"Stopped after {steps} without a final answer.", ctx)]


def _said(text: str, ctx: NodeContext) -> AIMessage:
    """Make a reply by the engine in the model's place, marked as its own."""
    return AIMessage(text, name=ctx.spec.name, response_metadata={MARK_KEY: {"own": True}})
