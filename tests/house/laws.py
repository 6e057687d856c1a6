"""Statements of `tests/test_architecture.py` that the move replaces, by their names."""

from __future__ import annotations

from tests.source import MODULES, home, imports, part_of
from tests.test_architecture import Found, none

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "types", "constants", "durations", "langgraph_config", "events", "lazy"),
    ("messages",),
    ("expressions",),
    ("core",),
    ("tracing",),
    ("web",),
    ("config",),
    ("sandbox",),
    ("backends",),
    ("store",),
    ("tools",),
    ("models",),
    ("hooks",),
    ("middleware",),
    ("runtime",),
    ("journal",),
    ("nodes",),
    ("engine",),
    ("picture",),
    ("exports",),
    ("debug",),
    ("subagents",),
    ("loading",),
    ("testing", "pytest_plugin"),
    ("client",),
    ("service",),
    ("protocols",),
    ("server",),
    ("cli",),
    ("__main__",),
)
"""A part may import what stands above it, and in its own row what stands to its left."""

GROUND = frozenset(LAYERS[0])
KNOWS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("messages", "sandbox", "store", "web"), GROUND),
    "backends": GROUND | {"sandbox"},
    "client": GROUND | {"core"},
    "config": GROUND | {"expressions"},
    "models.scripted": GROUND,
}
"""Parts that serve without the engine (the store: any LangGraph graph) know only these; a part of
a part knows itself too."""

MAX_CHAIN = 24
MAX_PACKAGES = 14
MAX_INSIDE = {"store": 12}
"""Links of the longest chain of imports inside a part; 9 in every other one."""


def test_chains_of_imports_are_short() -> None:
    """Count to the module that defines a name: packages load lazily."""
    edges: dict[str, set[str]] = {}
    parts: dict[str, set[str]] = {}
    for module in MODULES.values():
        goals = {home(target) for _, target in imports(module, functions=False)}
        edges[module.name] = goals - {"", "wick_graph", module.name}
        parts.setdefault(module.part, set()).update(part_of(goal) for goal in edges[module.name])
    for part, targets in parts.items():
        targets.discard(part)
        inside = {n: {g for g in t if part_of(g) == part} for n, t in edges.items()}
        chain = _longest({n: t for n, t in inside.items() if part_of(n) == part})
        assert len(chain) <= MAX_INSIDE.get(part, 9), " > ".join(chain)
    assert len(chain := _longest(edges)) <= MAX_CHAIN, " > ".join(chain)
    assert len(chain := _longest(parts)) <= MAX_PACKAGES, " > ".join(chain)


def _longest(edges: dict[str, set[str]]) -> list[str]:
    """Return the longest chain; there is no cycle, as another test says."""
    known: dict[str, list[str]] = {}

    def chain(name: str) -> list[str]:
        if name not in known:
            below = (chain(other) for other in sorted(edges.get(name, ())))
            known[name] = [name, *max(below, key=len, default=[])]
        return known[name]

    return max((chain(name) for name in edges), key=len)


def test_the_client_needs_no_engine_and_the_service_no_http() -> None:
    """What gateways and workers will be built on is the service, without FastAPI."""
    found: Found = []
    for module in MODULES.values():
        for node, target in imports(module):
            top = target.partition(".")[0]
            if module.part == "service" and top in ("fastapi", "starlette", "uvicorn"):
                found.append(f"{module.at(node)}: {target}")
    none(found)
