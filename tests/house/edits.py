"""Small edits that no rule of the move makes: before it on old files, after it on new ones."""

from __future__ import annotations

from typing import Final

BEFORE: Final = (
    ("wick_graph/cli/serve.py", "    server.serving.serve(", "    server.process.serve("),
    (
        "wick_graph/store/database/address.py",
        "from typing import NamedTuple\n\nfrom langchain_core.runnables import RunnableConfig\n",
        "from typing import TYPE_CHECKING, NamedTuple\n\n"
        "if TYPE_CHECKING:\n    from langchain_core.runnables import RunnableConfig\n",
    ),
    (
        "tests/test_packaging.py",
        "import sys, wick_graph.nodes, nodes, nodes.model",
        "import sys, wick_graph.nodes.model, nodes, nodes.model",
    ),
    (
        "tests/test_packaging.py",
        "import sys, wick_graph.nodes\\n",
        "import sys, wick_graph.nodes.model\\n",
    ),
    (
        "wick_graph/server/app.py",
        "(health, tools, traces, files, approvals, agents, runs, threads, openai)",
        "(\n    health.router,\n    tools.router,\n    traces.router,\n    files.router,\n"
        "    approvals.router,\n    agents.router,\n    runs.router,\n    threads.router,\n"
        "    openai.router,\n)",
    ),
    (
        "wick_graph/server/app.py",
        "for module in ROUTES:\n        app.include_router(module.router)",
        "for router in ROUTES:\n        app.include_router(router)",
    ),
    (
        "wick_graph/server/app.py",
        "for module in ROUTES for route in module.router.routes",
        "for router in ROUTES for route in router.routes",
    ),
    (
        "tests/server/test_contract.py",
        "    for route in (route for module in ROUTES for route in module.router.routes):\n",
        "    for route in (route for router in ROUTES for route in router.routes):\n"
        "        assert isinstance(route, APIRoute)\n",
    ),
    (
        "tests/server/test_contract.py",
        "{method.lower() for method in route.methods}",
        "{method.lower() for method in route.methods or ()}",
    ),
    (
        "tests/server/test_contract.py",
        "import pytest\n",
        "import pytest\nfrom fastapi.routing import APIRoute\n",
    ),
    (
        "tests/server/test_stalls.py",
        "for module in ROUTES for route in module.router.routes",
        "for router in ROUTES for route in router.routes",
    ),
    (
        "wick_graph/server/app.py",
        'for operations in schema["paths"].values():\n'
        "            for operation in operations.values():",
        'for methods in schema["paths"].values():\n            for operation in methods.values():',
    ),
)
"""(old file, fragment, what stands in its place); a merged module has several routers."""

AFTER: Final = (
    (
        "wick_graph/store/codec.py",
        "        if parts is None:\n"
        "            value = self.unpack(core, texts)\n"
        "        else:\n"
        "            value = BY_NUMBER[parts[0]].read(*parts[1:])\n",
        "        value = self.unpack(core, texts) if parts is None"
        " else BY_NUMBER[parts[0]].read(*parts[1:])\n",
    ),
    (
        "wick_graph/pytest_plugin.py",
        "    from wick_graph.debug.recording import record"
        "  # noqa: PLC0415  # sessions without us stay fast\n"
        "    from wick_graph.debug.recording import RecordedRuns  # noqa: PLC0415  # as above\n",
        "    from wick_graph.debug.recording import ("
        "  # noqa: PLC0415  # sessions without us stay fast\n"
        "        RecordedRuns,\n        record,\n    )\n",
    ),
    (
        "tests/test_architecture.py",
        '"genai_prices": frozenset({"cost"})',
        '"genai_prices": frozenset({"core"})',
    ),
    (
        "tests/test_architecture.py",
        'if module.part == "keys":',
        'if module.part == "langgraph_config":',
    ),
    (
        "tests/test_architecture.py",
        '("wick_graph.store.encryption", "wick_graph.store.sealed")',
        '("wick_graph.store.encryption", "wick_graph.store")',
    ),
    (
        "tests/test_architecture.py",
        '("wick_graph.tools.mcp", "wick_graph.tools.mcp")',
        '("wick_graph.tools.mcp", "wick_graph.tools")',
    ),
    (
        "tests/test_architecture.py",
        '"yaml": frozenset({"config", "testing"})',
        '"yaml": frozenset({"config", "models"})',
    ),
    (
        "tests/test_architecture.py",
        'name.startswith("wick_graph.testing.")',
        'name.startswith("wick_graph.models.scripted.")',
    ),
    (
        "tests/test_architecture.py",
        '("reading", "rebuild", "details", "blame", "recorded")',
        '("reader", "reconstruct", "details", "blame")',
    ),
    ("tests/mutants/guarded.py", '("RUNS", ', '("SERVER_RUNS", '),
    ("tests/test_door.py", 'OWN = ("RUN",', 'OWN = ("TYPE_CHECKING", "RUN",'),
    (
        "tests/source.py",
        """    while target and target not in MODULES:
        target = target.rpartition(".")[0]
""",
        """    while target and target not in MODULES:
        package, _, name = target.rpartition(".")
        target = OFFERED.get(package, {}).get(name, package)
""",
    ),
    (
        "tests/source.py",
        """def is_type_checking(""",
        """def offered(package: Module) -> dict[str, str]:
    \"\"\"Return where a package takes the names from that it loads when they are used.\"\"\"
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(package.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


OFFERED = {m.name: offered(m) for m in MODULES.values() if m.is_package and m.part}
\"\"\"What packages offer, without the door.\"\"\"


def is_type_checking(""",
    ),
)
"""(new file, fragment, what stands in its place)."""

GONE: Final = ("STORE", "_floor", "test_the_store_stands_on_its_own_ground")
"""Statements of `tests/test_architecture.py` about folders that are gone."""
