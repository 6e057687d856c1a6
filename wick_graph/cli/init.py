"""`wick init`: the files of a first agent."""

from __future__ import annotations

import os
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.select import DEFAULT_FILE
from wick_graph.cli.watch import program
from wick_graph.errors import ConfigError

_WRITTEN: Final = {
    "agents.yaml": "the agent: its model, prompt, tools, hooks and approvals",
    "mytools.py": "two tools of its own",
    "myhooks.py": "a hook of its own",
    "test_agent.py": "tests that need no key: python -m pytest",
}

_IGNORED: Final = ".gitignore"

_QUESTION: Final = 'Where is my order? find_order(number="A-17")'
"""The scripted demo makes the call, and a language model understands what is wanted."""

FOLDER: Final = typer.Argument(metavar="[FOLDER]", help="Where; it is made if it is missing.")


def init(
    folder: Annotated[Path, FOLDER] = Path(),
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Write a first agent: agents.yaml, a tool, a hook and a test.

    Overwrites nothing. The code that it writes is trusted as it is; the agent runs at once, without
    a key too.
    """
    from wick_graph.config import digest_of, load_config, trust

    written = write_files(folder)
    if not as_json:
        for name in written:
            output.print_line(f"wrote {folder / name}{_about(name)}")
    file = load_config(folder / DEFAULT_FILE)
    digest = digest_of(file)
    trust(file, digest)
    place = ["--"] * str(folder).startswith("-") + [str(folder)]
    there = [] if folder.resolve() == Path.cwd() else [shlex.join(["cd", *place])]
    then = " && ".join([*there, shlex.join([*program(), "run", _QUESTION])])
    if as_json:
        paths = [str(folder / name) for name in written]
        output.print_json({"files": paths, "trusted": digest, "next": then})
        return
    if _IGNORED not in written:
        output.say(f"note: {folder / _IGNORED} was there; the store is in checkpoints/")
    output.print_line(f"next: {then}")


def write_files(folder: Path) -> list[str]:
    """Write the files of a first agent into a folder, and return their names.

    Raises:
        ConfigError: One of them exists, or cannot be written.
    """
    names = [*_WRITTEN] + [_IGNORED] * (not os.path.lexists(folder / _IGNORED))
    for name in (*_WRITTEN, *(Path(name).stem for name in _WRITTEN if name.endswith(".py"))):
        if os.path.lexists(folder / name):  # a package in place of a module counts too
            raise _there(folder / name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            text = files("wick_graph.cli").joinpath("starter", f"{name.lstrip('.')}.txt")
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text.read_text(encoding="utf-8"))
    except FileExistsError as error:
        raise _there(Path(error.filename)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{folder} cannot be written ({reason}); name another folder: wick init FOLDER"
        ) from None
    return names


def _there(path: Path) -> ConfigError:
    return ConfigError(f"{path} exists, and wick init overwrites nothing; name another folder")


def _about(name: str) -> str:
    return f"  {_WRITTEN[name]}" if name in _WRITTEN else ""
