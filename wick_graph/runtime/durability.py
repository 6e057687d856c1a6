"""Decide which writes of a run may be deferred to the next commit. Only this module decides it.

A superstep's rows may wait if a crash makes the same rows again, or if nothing depends on them
before a commit that includes them. Nothing that an observer sees may wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from wick_graph.errors import HookError
from wick_graph.store.commit_policy import COMMIT_NOW, CommitPolicy
from wick_graph.tools.bound import BoundTool
from wick_graph.types import Replay


def input_can_wait(*, observed: bool) -> bool:
    """Defer the checkpoint of an input to that of its first step, before which no node runs."""
    return not observed


def after_before_agent(
    began_from: str, *, observed: bool, repaired: bool, has_hooks: bool
) -> CommitPolicy:
    """Defer the opening of an input if it only resets counters: a crash resets them again."""
    if observed or repaired or has_hooks:
        return COMMIT_NOW
    return CommitPolicy(began_from, checkpoint=True)


def after_modify_request(began_from: str, *, observed: bool, updates: bool) -> CommitPolicy:
    """Defer a request if no hook updated the state: a crash composes the same request again."""
    if observed or updates:
        return COMMIT_NOW
    return CommitPolicy(began_from, checkpoint=True)


def after_route(
    began_from: str,
    *,
    observed: bool,
    sent: Sequence[str],
    ledger: bool,
    in_place: bool,
    tools: Callable[[], Mapping[str, BoundTool]],
) -> CommitPolicy:
    """Defer a reply if the run ends with it, or if its calls' intents are committed first.

    The end of a run and an intent each commit all deferred writes. Calls without an intent run at
    once, and a layer that is not in place may do anything before a call.

    Args:
        began_from: The checkpoint from which the reply's superstep began.
        observed: Whether steps are visible before the run ends.
        sent: The tools of the calls that run next; none at the end.
        ledger: Whether the thread has a ledger of calls.
        in_place: Whether all layers around calls act in place.
        tools: Returns the tools by name; called only if needed, may raise `HookError`.
    """
    if not sent:
        return CommitPolicy(began_from, checkpoint=not observed)
    waits = ledger and in_place and not observed and _all_have_intents(sent, tools)
    return CommitPolicy(began_from, waits, call_results=ledger, single_call=len(sent) == 1)


def _all_have_intents(sent: Sequence[str], tools: Callable[[], Mapping[str, BoundTool]]) -> bool:
    try:
        known = tools()
    except HookError:  # raised again when the tools are needed
        return False
    found = [known.get(name) for name in sent]
    return all(tool is not None and tool.replay != "safe" for tool in found)


def during_tools(began_from: str, before: CommitPolicy) -> CommitPolicy:
    """Defer the checkpoint of tool calls: their results are committed, or a crash repeats them.

    The router's policy for the reply ends here: it held until the first call.

    Args:
        began_from: The checkpoint from which the calls' superstep began.
        before: The policy so far: the router's, or that of the parallel calls. If another process
            routed, nothing is known of the calls, and their results do not wait.
    """
    if before.began_from == began_from:
        return before
    return CommitPolicy(began_from, True, before.call_results, before.single_call)


def must_record_result(*, observed: bool, replay: Replay) -> bool:
    """Return whether the ledger must keep a call's result; else the call may be repeated."""
    return observed or replay != "safe"
