"""Commands about files, and about the debugger itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from wick_graph.debug.terminal.registry import Command
from wick_graph.debug.terminal.reply import Reply
from wick_graph.debug.terminal.words import needs
from wick_graph.errors import DebugError

if TYPE_CHECKING:
    from wick_graph.debug.terminal.shell import Shell

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
"""What is told beside the commands."""
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
    """Return the commands of a file; empty lines and `# …` are left out.

    Raises:
        DebugError: It cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: what it holds, or its name, is no text
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
        raise DebugError("an alias stands for a command, not for an alias")
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


COMMANDS: Final = (
    Command(
        ("export",), "files", f"export {'|'.join(FORMS)} [FILE]", "write the recording", _export
    ),
    Command(("source",), "files", "source FILE", "do the commands of a file", _source),
    Command(("alias",), "files", "alias NAME = COMMAND", "give a command another name", _alias),
    Command(("help", "h"), "files", "help [COMMAND]", "list the commands, or tell of one", _help),
    Command(("quit", "q", "exit"), "files", "quit", "leave; a held run stays resumable", _quit),
)
