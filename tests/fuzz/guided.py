"""Attack guided by coverage, in a process of its own: `python -m tests.fuzz.guided NAME SECONDS`.

Needs atheris, which is not there for every system and Python; the other fuzzers do without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # may be missing

READ = ["wick_graph.client.wire", "wick_graph.expressions", "wick_graph.server.guard"]
"""What is instrumented; all of it would take longer than the attack."""

with atheris.instrument_imports(include=[*READ, "wick_graph.web.addresses"]):
    from wick_graph.client.wire import Call, Following
    from wick_graph.errors import ConfigError, ExpressionError, ServerError
    from wick_graph.expressions import compile_expression
    from wick_graph.server import guard
    from wick_graph.service.options import Problem
    from wick_graph.web import Target


def bodies(data: bytes) -> None:
    """Read a request's body."""
    with suppress(Problem):
        guard.parse(data, 64, 20_000)


def addresses(data: bytes) -> None:
    """Read an address."""
    with suppress(ConfigError):
        Target.parse(data.decode("utf-8", "replace"))


def event_lines(data: bytes) -> None:
    """Read a stream."""
    reader = Following(Call("GET", "/"), 1.0).lines()
    next(reader)
    with suppress(ServerError):
        for line in data.decode("utf-8", "replace").splitlines():
            reader.send(line)


def expressions(data: bytes) -> None:
    """Read and evaluate an expression."""
    with suppress(ExpressionError):
        compile_expression(data.decode("utf-8", "replace")).evaluate({"x": [1, "a"], "path": "p"})


WAYS: dict[str, Callable[[bytes], None]] = {
    fn.__name__: fn for fn in (bodies, addresses, event_lines, expressions)
}

if __name__ == "__main__":
    name, seconds = sys.argv[1:]
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-timeout=5"], WAYS[name])
    atheris.Fuzz()
