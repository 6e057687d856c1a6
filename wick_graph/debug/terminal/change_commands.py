"""Commands that change what will happen, and commands about files and the debugger."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wick_graph.debug.policy import Mock, Policy
from wick_graph.debug.terminal import show
from wick_graph.debug.terminal.look_commands import branches, policy_of, policy_words
from wick_graph.debug.terminal.registry import Command, Reply, json_of, needs, number_of
from wick_graph.debug.values import Path as ValuePath
from wick_graph.debug.values import read_path, write_path
from wick_graph.errors import DebugError
from wick_graph.journal.value_store import DOTS

if TYPE_CHECKING:
    from wick_graph.debug.terminal.shell import Shell


# --- Commands that change what comes; in a recording they prepare a fork, and run nothing.


_POLICIES: Final = ("recorded", "live", "mock", "ask")

_TARGETS: Final = ("args", "result", "response", "request")

_ASSIGNED: Final = re.compile(r"""(?s)((?:[^="']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)=(.*)""")
"""A path and a value; a key in quotes may hold the sign between them."""


def _set(shell: Shell, rest: str) -> Reply:
    word = rest.partition(" ")[0]
    if word in ("pagination", "confirm", "non-stop") and "=" not in rest:
        return Reply()  # gdb's settings in scripts; ignored
    found = _ASSIGNED.fullmatch(rest)
    if found is None or not found[1].strip() or not found[2].strip():
        raise DebugError("write `set PATH = JSON`")
    return _changed(shell, found[1].strip(), json_of(found[2].strip()))


def _edit(shell: Shell, rest: str) -> Reply:
    path = needs(rest, "what: a channel, args, result, request.system, …")
    target, inner = _target(shell, read_path(path))
    before = _now(shell, target)
    for part in inner:
        before = _inside(before, part)
    after = shell.doors.edit(json.dumps(before, ensure_ascii=False, indent=2, default=str))
    if after is None:
        return Reply.of("nothing is changed")
    return _changed(shell, path, json_of(after))


def _changed(shell: Shell, path: str, value: Any) -> Reply:
    target, rest = _target(shell, read_path(path))
    whole = _put(_now(shell, target) if rest else None, rest, value)
    if rest and shell.session.hides and DOTS in repr(whole):
        raise DebugError(f"a secret is hidden in {target}, and would be lost; change it as a whole")
    edits = _edits_here(shell)
    if not shell.session.held:
        return _forked(shell, **{**edits, target: whole})
    told = shell.session.edit(target, whole)
    edits[target] = whole
    return Reply.of(told)


def _target(shell: Shell, path: ValuePath) -> tuple[str, list[Any]]:
    """Split a path into its editable root and the rest."""
    root, rest = str(path[0]), list(path[1:])
    if root == "request":
        if not rest:
            raise DebugError("say which part: request.system, request.messages or request.settings")
        return f"request.{rest[0]}", rest[1:]
    if root in _TARGETS:
        return root, rest
    return f"{'writes' if shell.session.held else 'state'}.{write_path((root,))}", rest


def _edits_here(shell: Shell) -> dict[str, Any]:
    """Return the edits at this moment; a move clears them."""
    here = str(shell.session.position)
    if shell.edits_at != here:
        shell.edits, shell.edits_at = {}, here
    return shell.edits


def _now(shell: Shell, target: str) -> Any:
    """Return a target's value, with the edits so far."""
    session = shell.session
    if target in (edits := _edits_here(shell)):
        return edits[target]
    if target in ("args", "result"):
        return (session.inspect.call() or {}).get(target)
    if target == "response":
        return session.inspect.response()
    if target.startswith("request."):
        view = session.request()
        part = target.removeprefix("request.")
        if part == "system":
            return "\n\n".join(text for _, text in view.system)
        if part in ("messages", "settings"):
            return getattr(view, part)
        raise DebugError("a request has system, messages and settings")
    return session.inspect.state(target.partition(".")[2])


def _inside(whole: Any, part: Any) -> Any:
    """Return the value at one step of a path."""
    try:
        return whole[part]
    except (LookupError, TypeError):
        raise DebugError(f"there is no {part!r} in {show.short(whole, 40)}") from None


def _put(whole: Any, parts: list[Any], value: Any) -> Any:
    """Return a copy of a value with another one at a path."""
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
    edits = _edits_here(shell) if at is None else {}
    return _forked(shell, at=at, label=" ".join(words), **edits)


def _is_place(word: str) -> bool:
    return word[0] in "@#" or re.fullmatch(r"b\d+[@#].*", word) is not None


def _forked(shell: Shell, *, at: str | None = None, label: str = "", **edits: Any) -> Reply:
    wanted: dict[str, Any] = {"label": label}
    for name, value in edits.items():
        root, _, part = name.partition(".")
        if part:
            wanted.setdefault(root, {})[part] = value
        else:
            wanted[root] = value
    if wanted.get("result", "") is None:
        wanted["result"] = ""  # None would keep the recorded one
    if missing := [name for name, value in wanted.items() if value is None]:
        raise DebugError(f"null changes no {missing[0]}; write another value")
    plan = shell.plan = shell.session.fork(at, **wanted)
    if at is None:
        _edits_here(shell).update(edits)
    lines = plan.text.splitlines()
    lines += [f"  {name} is changed" for name in edits]
    lines += [f"  {line}" for line in show.folded([one.text for one in plan.will_execute])]
    return Reply([*lines, "nothing has run yet; `live` runs it"], data={"text": plan.text})


def _preview(shell: Shell, rest: str) -> Reply:
    session = shell.session
    here, every = session.here, session.inspect.moments()
    if not rest and here is not None and every and here.seq == every[-1].seq:
        shell.needs_agent()  # only the agent knows what follows the end
    planned = session.will_execute(rest or None)
    return Reply(show.folded([one.text for one in planned]) or ["nothing would execute"])


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
    answer = json_of(text)
    _decide(shell, lambda policy: policy.with_tool(name, Mock(answer)))
    return Reply.of(f"{name} is answered with {show.short(answer)}")


def _decide(shell: Shell, change: Callable[[Policy], Policy]) -> None:
    """Change the policy of forks to come, and of the prepared one: nothing of it has run yet."""
    shell.session.policy = change(shell.session.policy)
    if shell.plan is not None:
        shell.plan = shell.plan.with_policy(change(shell.plan.policy))


def _skip(shell: Shell, rest: str) -> Reply:
    return Reply.of(shell.session.skip(json_of(rest) if rest else None))


def _policy(shell: Shell, rest: str) -> Reply:
    words = rest.split(" ", 2)
    if not rest:
        return Reply.of(policy_words(policy_of(shell)))
    if len(words) < 2 or words[1] not in _POLICIES:
        raise DebugError(f"write `policy TOOL {'|'.join(_POLICIES)}`; TOOL may be model or other")
    name, how = words[0], words[1]
    if how == "mock" and len(words) < 3:
        raise DebugError("say what it answers: policy TOOL mock JSON")
    taken: Any = Mock(json_of(words[2])) if how == "mock" else how
    if name in ("model", "other"):
        _decide(shell, lambda policy: replace(policy, **{name: taken}))
    else:
        _decide(shell, lambda policy: policy.with_tool(name, taken))
    return Reply.of(f"{name}: {how}")


CHANGE_COMMANDS: Final = (
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


# --- Commands about files, and about the debugger itself.


TOPICS: Final = {
    "positions": (
        "@12      where step 12 begins: a step is a visit of a node",
        "@12.3    the third moment in it            #57   a moment by its number",
        "@-1      the last step                     @first @last @error",
        "b1@12    in another branch; a position alone goes there",
    ),
    "expressions": (
        "as in Python, over data; they compute, within a budget, and can do nothing else",
        "  every channel of the state: messages, todos, usage, …; prev is the state before it",
        "  node hook phase kind name tool call_id args result output request response error",
        "  step visit depth branch seq",
        "  len any all sum min max abs str int round sorted keys last text changed glob",
        'such as: tool == "bash" and glob(args.command, "*rm -rf*")',
    ),
}
"""Help topics beside the commands."""

FORMS: Final = ("html", "wickrun", "pytest", "chrome", "jsonl")


def _export(shell: Shell, rest: str) -> Reply:
    form, _, name = needs(rest, f"a form: {', '.join(FORMS)}").partition(" ")
    if form not in FORMS:
        raise DebugError(f"there is no form {form[:40]!r}; write one of {', '.join(FORMS)}")
    return Reply(shell.doors.export(form, Path(name.strip()) if name.strip() else None))


def _source(shell: Shell, rest: str) -> Reply:
    path = Path(needs(rest, "a file"))
    return shell.all_of(lines_of(path))


def lines_of(path: Path) -> list[str]:
    """Return the commands of a file, without empty lines and comments.

    Raises:
        DebugError: It cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: its content or its name is not text
        why = getattr(error, "strerror", None) or "it is no text"
        raise DebugError(f"{path} cannot be read: {why}") from error
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("# ") and line != "#"]


def _alias(shell: Shell, rest: str) -> Reply:
    name, _, meaning = (part.strip() for part in rest.partition("="))
    if not rest:
        return Reply([f"{n} = {m}" for n, m in shell.aliases.items()] or ["there are none"])
    if not name.replace("-", "").isalnum() or not meaning:
        raise DebugError("write `alias NAME = COMMAND`")
    if name in shell.commands.names():
        raise DebugError(f"{name} is a command already, which an alias would hide; take another")
    if meaning.split()[0] in (name, *shell.aliases):
        raise DebugError("an alias names a command, not another alias")
    if meaning[0] not in "@#":
        shell.commands.find(meaning.split()[0], {})
    shell.aliases[name] = meaning
    return Reply()


def _help(shell: Shell, rest: str) -> Reply:
    if not rest:
        return Reply(shell.commands.overview())
    if rest in TOPICS:
        return Reply([*TOPICS[rest]])
    if rest in shell.aliases:
        return Reply.of(f"{rest} = {shell.aliases[rest]}")
    command = shell.commands.find(rest, shell.aliases)
    names = ", ".join(command.names[1:])
    return Reply.of(f"{command.usage}" + (f"  ({names})" if names else ""), f"  {command.help}")


def _quit(shell: Shell, rest: str) -> Reply:
    return Reply(quits=True)


FILE_COMMANDS: Final = (
    Command(
        ("export",), "files", f"export {'|'.join(FORMS)} [FILE]", "write the recording", _export
    ),
    Command(("source",), "files", "source FILE", "do the commands of a file", _source),
    Command(("alias",), "files", "alias NAME = COMMAND", "give a command another name", _alias),
    Command(("help", "h"), "files", "help [COMMAND]", "list the commands, or tell of one", _help),
    Command(("quit", "q", "exit"), "files", "quit", "leave; a held run stays resumable", _quit),
)
