"""Numbered placeholders, for the Pythons that warn of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from wick_graph.store.texts import fitting, fitting_rows


def test_numbers_become_an_order_of_the_values() -> None:
    """Python 3.12.0 to 3.12.3, where the tests treat the warning as an error, need it."""
    with closing(sqlite3.connect(":memory:")) as db:
        run = fitting(sqlite3.Connection.execute, warns=True)
        each = fitting_rows(sqlite3.Connection.executemany, warns=True)
        run(db, "CREATE TABLE t (a, b, c)", ())
        each(db, "INSERT INTO t VALUES (?2, ?1, ?2)", ((1, 2), (3, 4)))
        each(db, "INSERT INTO t VALUES (?, ?, ?)", [(5, 6, 7)])
        found = run(db, "SELECT * FROM t WHERE a != ?3 AND (?1 OR b = ?2)", (1, 9, 8)).fetchall()
        assert found == [(2, 1, 2), (4, 3, 4), (5, 6, 7)]
        assert run(db, "SELECT c FROM t WHERE a = ?", (5,)).fetchall() == [(7,)]


def test_elsewhere_nothing_is_between() -> None:
    assert fitting(sqlite3.Connection.execute, warns=False) is sqlite3.Connection.execute
    assert fitting_rows(sqlite3.Connection.executemany, warns=False) is (
        sqlite3.Connection.executemany
    )
