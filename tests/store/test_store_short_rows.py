"""Rows since schema 8: shorter than before, with the same content, and the longer ones are read."""

from __future__ import annotations

import os
import zlib
from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from tests.support.often import often
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver
from wick_graph.store import ledger as ledgers
from wick_graph.store.codec import MAX_UNFOLDED, Codec
from wick_graph.store.ledger import Finished
from wick_graph.store.row_format import (
    CHECK_BYTES,
    CheckpointBody,
    pack_path,
    text_bytes,
    unpack_path,
)
from wick_graph.store.schema import calls
from wick_graph.store.texts import compiled

_numbers = st.integers(1, 2**40)
_versions = st.one_of(
    st.integers(-(2**63), 2**63), st.text(max_size=40), st.floats(allow_nan=False), st.booleans()
)
_flat = st.lists(st.tuples(_numbers, _versions), max_size=6).map(
    lambda pairs: [part for pair in pairs for part in pair]
)
_forms = st.one_of(st.binary(max_size=9), _numbers, st.just([0, [7, 0, 3], [9, 2, 1]]))


@st.composite
def _bodies(draw: st.DrawFn) -> CheckpointBody:
    seen = [(draw(_numbers), draw(_flat)) for _ in range(draw(st.integers(0, 3)))]
    values = draw(st.lists(st.tuples(_numbers, _forms), max_size=4))
    return CheckpointBody(
        v=4,
        ts="2026-01-02T03:04:05.678901+00:00",
        versions=draw(_flat),
        seen=[part for pair in seen for part in pair],
        values=[part for pair in values for part in pair],
        updated=draw(st.none() | st.lists(_numbers, max_size=4)),
        extra=draw(st.none() | st.binary(max_size=4)),
        seq=draw(st.none() | st.integers(0, 2**31)),
    )


def _exact(body: CheckpointBody) -> str:
    return repr(body)  # 1, 1.0 and True are equal, but they are other versions


@given(_bodies())
@settings(max_examples=often(300))
def test_a_body_comes_back_whatever_its_versions_are(body: CheckpointBody) -> None:
    before = _exact(body)
    assert _exact(CheckpointBody.load(body.dump())) == before
    assert _exact(body) == before  # writing changes nothing: its parts are shared between steps


def test_versions_that_are_equal_but_no_integers_stay_apart() -> None:
    body = CheckpointBody(4, "t", [1, 1, 2, 1.0, 3, True], [], [], None, None, 5)
    assert _exact(CheckpointBody.load(body.dump())) == _exact(body)


def test_a_body_of_an_older_schema_is_read() -> None:
    body = CheckpointBody(4, "t", [900, 2**21], [901, [900, 2**21]], [900, b"x"], [900], None, 5)
    old = ormsgpack.packb(
        (body.v, body.ts, body.versions, body.seen, body.values, body.updated, body.extra, body.seq)
    )
    assert CheckpointBody.load(old) == body
    assert len(body.dump()) < len(old)


@given(
    st.text(max_size=40)
    | st.lists(
        st.sampled_from(
            [
                "~__pregel_pull, ",
                "~__pregel_push, ",
                "0" * 9,
                "0",
                "~",
                "é",
                "\ud800",
                ", (",
                "model",
            ]
        ),
        max_size=8,
    ).map("".join)
)
@settings(max_examples=often(300))
def test_a_path_comes_back(path: str) -> None:
    assert unpack_path(pack_path(path)) == path
    assert unpack_path(text_bytes(path)) == path  # as schema 7 stored it


RESULT = {"output": "a line of a log that says nothing new\n" * 40}


def _filed(url: str, result: Any) -> int:
    """File a result, read it as a later run does, and return the bytes of its row."""
    with SqlSaver.from_url(url) as saver:
        lease = saver.leases.acquire("t")
        ledger = saver.ledger(lease)
        ledger.begin("step:0", "act", {"n": 1}, "never")
        ledger.finish("step:0", "act", {"n": 1}, result)
        assert saver.ledger(lease).recorded("step:0", "act", {"n": 1}) == Finished(result)
        with saver._core.reading() as db:
            (size,) = db.execute(*compiled(select(func.length(calls.c.body)))).fetchone()
    return int(size)


def test_a_long_result_is_compressed_and_comes_back(url: str) -> None:
    assert _filed(url, RESULT) < len(RESULT["output"]) // 10


def test_a_result_of_an_older_schema_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "_folded", lambda payload: payload)
    assert _filed(url, RESULT) > len(RESULT["output"])


@pytest.mark.parametrize("result", [None, [], {"output": ""}, {"output": os.urandom(2_000)}])
def test_short_and_dense_results_stay_as_they_are(url: str, result: Any) -> None:
    assert _filed(url, result) == CHECK_BYTES + 1 + len(Codec().pack(result))


@pytest.mark.parametrize("rest", [b"", b"no zlib", zlib.compress(b"\x80" * 9)[:-3]])
def test_a_damaged_result_is_an_error_of_the_store(
    url: str, rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers, "_folded", lambda payload: b"\xc1" + rest)
    with pytest.raises(StorageError, match="is damaged"):
        _filed(url, RESULT)


def test_a_result_that_unfolds_to_too_much_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = zlib.compress(bytes(MAX_UNFOLDED + 1), 1)
    monkeypatch.setattr(ledgers, "_folded", lambda payload: b"\xc1" + bomb)
    with pytest.raises(StorageError, match="unfolds to more than 64 MiB"):
        _filed(url, RESULT)
