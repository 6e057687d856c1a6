"""What the package shows of itself works."""

from __future__ import annotations

import textwrap

from wick_graph import testing


def test_the_example_runs_as_it_is_written() -> None:
    _, _, example = (testing.__doc__ or "").partition("\n\n")
    assert "assert_complete" in example
    exec(compile(textwrap.dedent(example), testing.__name__, "exec"), {})
