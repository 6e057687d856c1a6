"""What a recording says of the agent that made it, so that another version can be told from it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from types import CodeType
from typing import Any, Final

from wick_graph.hooks.protocol import PHASES
from wick_graph.journal.fingerprint import packed
from wick_graph.runtime import AgentSpec

_HASH_BYTES: Final = 8
_PACKAGES: Final = ("wick-graph", "langgraph", "langchain-core")
_CONSTANTS: Final = (str, int, float, bytes, bool, type(None))


def about(spec: AgentSpec) -> dict[str, Any]:
    """Describe an agent; made once for each.

    `graph` differs where the prompt, a tool's schema, a hook or a limit differs; `code` where the
    code of a hook or of a tool does.
    """
    if not spec.recorded:
        spec.recorded.update(_about(spec))
    return dict(spec.recorded)


def _about(spec: AgentSpec) -> dict[str, Any]:
    layers = [layer for phase in PHASES for layer in spec.hooks.layers(phase)]
    shape = [
        [(layer.hook, layer.phase) for layer in layers],
        [tool.schema for tool in spec.tools],
        spec.max_iterations,
        spec.system_prompt,
    ]
    functions = [*(layer.fn for layer in layers), *(tool.source for tool in spec.tools)]
    code = b"".join(part for function in functions for part in _code(function))
    return {
        "agent": spec.name,
        "model": spec.model.name,
        "hooks": list(spec.hooks.names),
        "graph": _hash(packed(shape)),
        "code": _hash(code),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=_HASH_BYTES).hexdigest()


@functools.cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _code(function: Any) -> Iterator[bytes]:
    while isinstance(function, functools.partial):
        function = function.func
    for name in ("func", "function", "coroutine", "__wrapped__", "__func__"):
        inner = getattr(function, name, None)
        if inner is not None and inner is not function and callable(inner):
            yield from _code(inner)
            return
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        yield from _bytes(code)
    else:
        yield type(function).__qualname__.encode()


def _bytes(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _bytes(constant)
        elif isinstance(constant, _CONSTANTS):
            yield repr(constant).encode("utf-8", "replace")
