"""The variables that a command gets: few, and none that changes how programs start."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PASSED_ON: Final = ("HOME", "LANG", "LOGNAME", "SHELL", "TMPDIR", "TZ", "USER")
_SYSTEM: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def clean_environment(workdir: str) -> dict[str, str]:
    """Return what is passed on to a command that is not confined."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith("LC_")
    }
    return {**kept, "PATH": os.pathsep.join(safe_path(workdir)) or _join(_SYSTEM), "TERM": "dumb"}


def sealed_environment(readable: Iterable[str] = ()) -> dict[str, str]:
    """Return what a confined command gets: nothing that names a place outside.

    Programs of the system are found, and those in the folders that are readable too.
    """
    programs = (f"{folder}/bin" for folder in readable)
    beside = [folder for folder in programs if os.access(folder, os.X_OK)]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("LANG", "TZ") or name.startswith("LC_")
    }
    home = {"HOME": "/tmp", "TMPDIR": "/tmp"}  # a private one, or replaced where there is none
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "TERM": "dumb"}
    return {"LANG": "C.UTF-8", **kept, **home, **quiet, "PATH": _join((*beside, *_SYSTEM))}


def safe_path(workdir: str) -> list[str]:
    """Return the folders of PATH from which a program may be taken: none below the directory."""
    inside = f"{os.path.realpath(workdir)}/"
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return [
        folder
        for folder in folders
        if folder.startswith("/") and not f"{os.path.realpath(folder)}/".startswith(inside)
    ]


def find_program(name: str, workdir: str) -> str | None:
    """Return the absolute path of a helper of the engine, never one from below the directory."""
    inside = f"{os.path.realpath(workdir)}/"
    for folder in dict.fromkeys((*safe_path(workdir), *_SYSTEM)):
        real = os.path.realpath(Path(folder, name))
        is_file = os.path.isfile(real)  # noqa: PTH113  (a folder that may not be read has none)
        if is_file and not real.startswith(inside) and os.access(real, os.X_OK):
            return real
    return None


def _join(folders: Iterable[str]) -> str:
    return os.pathsep.join(dict.fromkeys(folders))
