"""What file tools and commands may cost: every bound of the backends, in one place."""

from __future__ import annotations

from typing import Final

MAX_READ_BYTES: Final = 1_000_000
"""One reading of a file; a longer file is read in windows."""
MAX_WRITE_BYTES: Final = 10_000_000
"""A file that is written or edited."""
MAX_SKIP_BYTES: Final = 256 * 2**20
"""How far a reading by line number goes through a file to find its first line."""
MAX_GLOB_FILES: Final = 100
MAX_GREP_MATCHES: Final = 200
MAX_GREP_LINE_CHARS: Final = 500
MAX_GREP_FILE_BYTES: Final = 64 * 2**20
"""Longer files are not searched."""
MAX_PATTERN_CHARS: Final = 10_000
MAX_REPEATED: Final = 2_000
"""Parts that the counted repetitions of a pattern may stand for, as 1,000 in `(a{10}){100}`."""
GLOB_SECONDS: Final = 1.5
GREP_SECONDS: Final = 20.0
MAX_DEPTH: Final = 200
"""Directories below one another that a search goes down."""
SKIPPED_DIRS: Final = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
"""Directories that a search does not enter, unless it begins there."""
COMMAND_SECONDS: Final = 120.0
MAX_COMMAND_SECONDS: Final = 600.0
MAX_COMMAND_BYTES: Final = 100_000
OUTPUT_HEAD_BYTES: Final = 50_000
OUTPUT_TAIL_BYTES: Final = 50_000
MAX_OUTPUT_BYTES: Final = 64 * 2**20
"""Of both streams of a command together; it is killed when it writes more."""
PROBE_SECONDS: Final = 10.0
"""What finding out whether a sandbox works may take."""
LEAST_FREE_PART: Final = 0.05
"""Part of the disk that must be free for a command to be started, up to `LEAST_FREE_BYTES`."""
LEAST_FREE_BYTES: Final = 2**30
GRACE_SECONDS: Final = 0.25
"""What a command leaves running in the background may write for this long after its end."""
MAX_WATCHED: Final = 100_000
"""Names of a working directory among which a command looks for what other programs obey."""
WATCH_SECONDS: Final = 1.0
"""What one such look may take."""
MAX_SHUT: Final = 500
"""Files and folders of a working directory that one command is shown read-only."""
MAX_KEPT_FILES: Final = 1_000
"""Whole results that a working directory holds; the oldest ones give way."""
MAX_KEPT_BYTES: Final = 2**30
