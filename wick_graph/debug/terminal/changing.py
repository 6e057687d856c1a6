"""Commands that change what will happen; in a recording they prepare a fork, and run nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from wick_graph.debug.policy import Mock
from wick_graph.debug.terminal import show
from wick_graph.debug.terminal.informing import branches, policy_words
from wick_graph.debug.terminal.registry import Command
from wick_graph.debug.terminal.reply import Reply
from wick_graph.debug.terminal.words import json_of, needs, number_of
from wick_graph.errors import DebugError

if TYPE_CHECKING:
    from wick_graph.debug.terminal.shell import Shell

_PART: Final = re.compile(r"\.?([A-Za-z_][\w-]*)|\[(-?\d+)\]|\[(\"[^\"]*\"|'[^']*')\]")
_POLICIES: Final = ("recorded", "live", "mock", "ask")
_TARGETS: Final = ("args", "result", "response", "request")


def _set(shell: Shell, rest: str) -> Reply:
    word = rest.partition(" ")[0]
    if word in ("pagination", "confirm", "non-stop") and "=" not in rest:
        return Reply()  # gdb's settings that scripts carry; there is nothing to switch
    path, equals, text = rest.partition("=")
    if not equals or not path.strip() or not text.strip():
        raise DebugError("write `set PATH = JSON`")
    return _changed(shell, path.strip(), json_of(text.strip()))


def _edit(shell: Shell, rest: str) -> Reply:
    path = needs(rest, "what: a channel, args, result, request.system, …")
    before = _now(shell, path)
    after = shell.doors.edit(json.dumps(before, ensure_ascii=False, indent=2, default=str))
    if after is None:
        return Reply.of("nothing is changed")
    return _changed(shell, path, json_of(after))


def _changed(shell: Shell, path: str, value: Any) -> Reply:
    parts = _parts(path)
    root = parts[0]
    if shell.session.held:
        target = str(root)
        if root == "request" and len(parts) > 1:
            target, parts = f"request.{parts[1]}", parts[1:]
        elif root not in _TARGETS:
            target = f"writes.{root}"
        whole = _put(_now(shell, target) if len(parts) > 1 else None, parts[1:], value)
        return Reply.of(shell.session.edit(target, whole))
    return _forked(shell, **_edits(shell, parts, value))


def _edits(shell: Shell, parts: list[Any], value: Any) -> dict[str, Any]:
    root = parts[0]
    if root == "request":
        if len(parts) < 2:
            raise DebugError("say which part: request.system, request.messages or request.settings")
        name = str(parts[1])
        whole = _put(_now(shell, f"request.{name}") if len(parts) > 2 else None, parts[2:], value)
        return {"request": {name: whole}}
    if root in _TARGETS:
        whole = _put(_now(shell, root) if len(parts) > 1 else None, parts[1:], value)
        return {root: whole}
    whole = _put(shell.session.state(root) if len(parts) > 1 else None, parts[1:], value)
    return {"state": {root: whole}}


def _now(shell: Shell, target: str) -> Any:
    """Return what a target is now."""
    session = shell.session
    if target in ("args", "result"):
        return (session.call() or {}).get(target)
    if target == "response":
        return session.response()
    if target.startswith("request."):
        view = session.request()
        part = target.removeprefix("request.")
        if part == "system":
            return "\n\n".join(text for _, text in view.system)
        if part in ("messages", "settings"):
            return getattr(view, part)
        raise DebugError("a request has system, messages and settings")
    return session.state(target.removeprefix("writes."))


def _parts(path: str) -> list[Any]:
    made: list[Any] = []
    at = 0
    while at < len(path):
        found = _PART.match(path, at)
        if found is None:
            raise DebugError(f"{path[:80]!r} is no path; write one like messages[-1].content")
        name, index, key = found.groups()
        made.append(int(index) if index else key[1:-1] if key else name)
        at = found.end()
    return made


def _put(whole: Any, parts: list[Any], value: Any) -> Any:
    """Return a copy of a value in which another one stands at a path."""
    if not parts:
        return value
    head, *rest = parts
    if isinstance(head, int) and isinstance(whole, list):
        if not -len(whole) <= head < len(whole):
            raise DebugError(f"there is no item {head}; the list has {len(whole)}")
        made = list(whole)
        made[head] = _put(made[head], rest, value)
        return made
    if isinstance(head, str) and isinstance(whole, Mapping):
        return {**whole, head: _put(whole.get(head), rest, value)}
    raise DebugError(f"there is no {head!r} in {show.short(whole, 40)}")


def _fork(shell: Shell, rest: str) -> Reply:
    words = rest.split()
    at = words.pop(0) if words and words[0][0] in "@#b" and _is_place(words[0]) else None
    return _forked(shell, at=at, label=" ".join(words))


def _is_place(word: str) -> bool:
    return word[0] in "@#" or re.fullmatch(r"b\d+[@#].*", word) is not None


def _forked(shell: Shell, *, at: str | None = None, **edits: Any) -> Reply:
    plan = shell.plan = shell.session.fork(at, **edits)
    lines = plan.text.splitlines()
    lines += [f"  {planned.text}" for planned in plan.will_execute]
    return Reply([*lines, "nothing has run yet; `live` runs it"], data={"text": plan.text})


def _preview(shell: Shell, rest: str) -> Reply:
    planned = shell.session.will_execute(rest or None)
    return Reply([one.text for one in planned] or ["nothing would execute"])


def _branch(shell: Shell, rest: str) -> Reply:
    if not rest:
        return Reply(branches(shell))
    shell.session.choose(number_of(rest.lstrip("b"), "a branch's number"))
    shell.frame = 0
    return Reply.of(f"on {shell.session.position}")


def _mock(shell: Shell, rest: str) -> Reply:
    name, _, text = needs(rest, "which tool and what it answers: mock TOOL JSON").partition(" ")
    if not text:
        raise DebugError("say what it answers: mock TOOL JSON")
    shell.session.mock(name, json_of(text))
    return Reply.of(f"{name} is answered with {show.short(json_of(text))}")


def _skip(shell: Shell, rest: str) -> Reply:
    return Reply.of(shell.session.skip(json_of(rest) if rest else None))


def _policy(shell: Shell, rest: str) -> Reply:
    policy = shell.session.policy
    words = rest.split(" ", 2)
    if not rest:
        return Reply.of(policy_words(policy))
    if len(words) < 2 or words[1] not in _POLICIES:
        raise DebugError(f"write `policy TOOL {'|'.join(_POLICIES)}`; TOOL may be model or other")
    name, how = words[0], words[1]
    if how == "mock" and len(words) < 3:
        raise DebugError("say what it answers: policy TOOL mock JSON")
    taken: Any = Mock(json_of(words[2])) if how == "mock" else how
    if name in ("model", "other"):
        shell.session.policy = replace(policy, **{name: taken})
    else:
        shell.session.policy = policy.with_tool(name, taken)
    return Reply.of(f"{name}: {how}")


COMMANDS: Final = (
    Command(
        ("set",),
        "change",
        "set PATH = JSON",
        "change what is held (args, result, request.system, …); in a recording, prepare a fork",
        _set,
    ),
    Command(("edit",), "change", "edit PATH", "do `set` in $EDITOR", _edit),
    Command(
        ("fork",), "change", "fork [@N] [NAME]", "prepare a branch from here, or from @N", _fork
    ),
    Command(("preview",), "change", "preview [@N]", "say what would execute from here", _preview),
    Command(("branch",), "change", "branch [N]", "go to a branch, or list them", _branch),
    Command(("mock",), "change", "mock TOOL JSON", "answer a tool instead of running it", _mock),
    Command(("skip",), "change", "skip [JSON]", "take this instead of what is held", _skip),
    Command(
        ("policy",),
        "change",
        "policy [TOOL recorded|live|ask|mock JSON]",
        "how a fork or a replay answers a tool, or `model`",
        _policy,
    ),
)
