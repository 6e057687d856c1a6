"""Rows that are encrypted at rest: the keys, and the seal."""
