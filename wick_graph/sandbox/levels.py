"""Which sandbox level is at work: the one that was asked for, or the strongest that works here.

A level counts as working only after a command has run in it and found itself confined. Nothing
ever takes a weaker level in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, get_args

from wick_graph.errors import ConfigError
from wick_graph.sandbox.bwrap import SOCKET_PROBE, Bubblewrap
from wick_graph.sandbox.landlock import Landlock
from wick_graph.sandbox.local import Local
from wick_graph.sandbox.plan import Sandbox, Setting

Try = Callable[[Sandbox], str]
"""Run a probe in a level; return what is wrong with it, nothing if it holds."""

PROBE: Final = f"""
cd -- "$1" 2>/dev/null || {{ echo "it cannot reach the directory"; exit; }}
[ -w /proc/sys/kernel/core_pattern ] && {{ echo "it can write the kernel's own files"; exit; }}
[ "$2" = landlock ] && ls / >/dev/null 2>&1 && {{ echo "it can list /"; exit; }}
[ "$2" != bwrap ] || {{ {SOCKET_PROBE}; [ $? = 1 ]; }} || {{ echo "it can make any socket"; exit; }}
[ -w . ] && echo confined || echo "confined, without writing"
"""
"""A script for `sh`: arguments are the directory and the level. It opens nothing for writing."""
HOLDS: Final = "confined"
"""What the probe says first where a level holds."""
_MAKERS: Final[Mapping[str, Callable[[str, Sequence[str]], Sandbox]]] = {
    "bwrap": Bubblewrap,
    "landlock": Landlock,
}


def choose(
    setting: Setting, workdir: str, readable: Sequence[str], works: Try
) -> tuple[Sandbox | None, str]:
    """Return the level, or None and why there is none.

    Args:
        setting: A level by name; `auto` for the strongest that works and none if none does;
            `require` for the strongest and an error if none does.
        workdir: The directory in which commands run.
        readable: Further folders that they can read.
        works: Runs the probe.

    Raises:
        ConfigError: The level that is asked for does not work here, or `require` finds none.
    """
    if setting not in get_args(Setting):
        raise ConfigError(
            f"execute must be None or one of {', '.join(get_args(Setting))}, not {setting!r}"
        )
    if setting == "local":
        return Local(workdir), ""
    names = [setting] if setting in _MAKERS else list(_MAKERS)
    missing = []
    for name in names:
        try:
            found = _MAKERS[name](workdir, readable)
        except ConfigError as error:
            missing.append(f"{name}: {error}")
            continue
        if not (wrong := works(found)):
            return found, ""
        missing.append(f"{name}: {wrong}")
    why = "; ".join(missing)
    if setting == "auto":
        return None, why
    what = f"the level {setting}" if setting in _MAKERS else "any sandbox"
    raise ConfigError(f"commands cannot be run in {what} here ({why})")
