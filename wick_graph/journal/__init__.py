"""The journal: a thread's memory of its runs, moment by moment, beside its checkpoints."""

from __future__ import annotations
