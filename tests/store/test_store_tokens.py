"""Tokens: each ends by its time and by being revoked, and is good for its own secret alone."""

from __future__ import annotations

import pytest

from tests.store.test_store_threads import Clock
from wick_graph.errors import ConfigError
from wick_graph.store import SqlSaver
from wick_graph.store.server_rows import SCOPES, Tokens, includes


@pytest.fixture
def tokens(saver: SqlSaver) -> Tokens:
    return Tokens(saver._core)


def test_a_token_ends(saver: SqlSaver, tokens: Tokens) -> None:
    clock = Clock()
    saver.clock = clock
    short, info = tokens.create("anna", lasts=60)
    endless, _ = tokens.create("anna")
    assert tokens.check(short) == info
    clock.time += 59
    assert tokens.check(short) == info
    clock.time += 1
    assert tokens.check(short) is None
    assert tokens.check(endless) is not None
    assert tokens.revoke(endless)
    assert tokens.check(endless) is None


def test_a_token_is_its_secret(tokens: Tokens) -> None:
    first, mine = tokens.create("anna", scope="read")
    second, _ = tokens.create("ben", scope="admin")
    head, secret = first[: -len(second.rpartition("_")[2])], first.split("_", 2)[2]
    assert tokens.check(first) == mine
    last = "A" if secret[-1] != "A" else "B"
    others = (
        first[:-1] + last,
        f"wk_{mine.id}_{second.split('_', 2)[2]}",
        head,
        "",
        "wk__",
        secret,
    )
    assert [tokens.check(other) for other in others] == [None] * len(others)


@pytest.mark.parametrize(
    ("held", "allowed"),
    [
        ("read", {"read"}),
        ("run", {"read", "run"}),
        ("approve", {"read", "approve"}),
        ("run,approve", {"read", "run", "approve"}),
        ("run,debug", {"read", "run", "debug"}),
        ("admin", {"read", "run", "approve", "debug", "admin"}),
    ],
)
def test_who_may_run_may_not_approve(tokens: Tokens, held: str, allowed: set[str]) -> None:
    token, _ = tokens.create("anna", scope=",".join(reversed(held.split(","))))
    found = tokens.check(token)
    assert found is not None
    assert found.scope == held
    assert {scope for scope in SCOPES if includes(found.scope, scope)} == allowed


@pytest.mark.parametrize("scope", ["", "run,", "root", "run,root", "run approve"])
def test_an_unknown_scope_is_refused(tokens: Tokens, scope: str) -> None:
    with pytest.raises(ConfigError, match="is none of read, run, approve, debug, admin"):
        tokens.create("anna", scope=scope)


def test_each_scope_is_kept(tokens: Tokens) -> None:
    assert SCOPES == ("read", "run", "approve", "debug", "admin")
    for scope in SCOPES:
        token, _ = tokens.create("anna", scope=scope)
        found = tokens.check(token)
        assert found is not None
        assert (found.scope, found.tenant) == (scope, "anna")
