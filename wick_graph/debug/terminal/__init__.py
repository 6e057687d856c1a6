"""The debugger's command line: gdb's and pdb's names for what a `DebugSession` can do.

registry   names, abbreviations and help      moving stops looking changing files
shell      one line in, one reply out           the commands, by group
show       values and facts as lines          interactive, machine: the two ways to speak to it
"""

from __future__ import annotations

from wick_graph.debug.terminal.reply import Reply
from wick_graph.debug.terminal.shell import Shell

__all__ = ["Reply", "Shell"]
