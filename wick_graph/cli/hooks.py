"""`wick hooks`: the resolved onion of an agent, phase by phase."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE, AgentArgument, pick
from wick_graph.cli.trusting import trusted_file

if TYPE_CHECKING:
    from wick_graph.hooks import Hooks
    from wick_graph.types import Phase

_BASE: Final[dict[Phase, str]] = {"wrap_model_call": "model call", "wrap_tool_call": "tool call"}
"""What stands innermost in the phases that wrap something."""
_NAME: Final = 100
"""Characters of a hook's name that are shown."""


def hooks(
    agent: AgentArgument = None,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show an agent's hooks, phase by phase.

    Outermost first, with the tools that each brings.
    """
    from wick_graph.loading import outline

    file = trusted_file(config, looks=True)
    agent_id = pick(agent, file)
    described = describe(outline(agent_id, file).spec.hooks)
    if as_json:
        output.print_json({"agent": agent_id, **described})
        return
    output.print_line(f"{agent_id}: {_count(len(described['hooks']))}")
    for line in as_lines(described):
        output.print_line(line)


def describe(compiled: Hooks) -> dict[str, Any]:
    """Give the onion as plain data: hooks with their phases and tools, and each phase's order."""
    from wick_graph.hooks import PHASES

    brought = {name: _tools(source) for name, source in compiled.tool_sources}
    phases = {phase: [layer.hook for layer in compiled.layers(phase)] for phase in PHASES}
    return {
        "hooks": [
            {
                "name": name,
                "phases": [phase for phase, names in phases.items() if name in names],
                "tools": brought.get(name, []),
            }
            for name in compiled.names
        ],
        "phases": phases,
    }


def as_lines(described: dict[str, Any]) -> list[str]:
    """Write the onion: a line for each phase, and one for each hook that brings tools."""
    width = max(map(len, described["phases"]))
    lines = []
    for phase, names in described["phases"].items():
        steps = [output.shorten(name, _NAME) for name in names]
        if steps and phase in _BASE:
            steps.append(_BASE[phase])
        lines.append(f"  {phase:<{width}}  {' → '.join(steps) or '-'}")
    for hook in described["hooks"]:
        name, tools = output.shorten(hook["name"], _NAME), hook["tools"]
        if tools is None:
            lines.append(f"  {name} brings tools that depend on the thread")
        elif tools:
            lines.append(f"  {name} brings the tools {', '.join(tools)}")
    return lines


def _tools(source: Any) -> list[str] | None:
    """Name a hook's tools in an empty thread; None where the hook cannot say so early."""
    try:
        return [getattr(tool, "name", None) or tool.__name__ for tool in source({})]
    except Exception:  # a user's function that needs a thread
        return None


def _count(number: int) -> str:
    if number == 0:
        return "no hooks"
    return "1 hook" if number == 1 else f"{number} hooks, outermost first"
