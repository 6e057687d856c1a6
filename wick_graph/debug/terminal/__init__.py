"""The debugger's command line: a `DebugSession` under gdb's and pdb's names.

registry   names, abbreviations and help      move_commands, look_commands, change_commands
shell      one line in, one reply out           the commands, by group
show       values as lines                    shell also has the prompt and the machine interface
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.debug.terminal.registry import Reply
    from wick_graph.debug.terminal.shell import Doors, Shell

__all__ = ["Doors", "Reply", "Shell"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.debug.terminal.registry": ("Reply",),
            "wick_graph.debug.terminal.shell": ("Doors", "Shell"),
        },
    )
