"""Skills by name: the prompt says which there are, and holds the instructions of the active one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from wick_graph.backends import FileSystem
from wick_graph.errors import ToolError
from wick_graph.hooks import frontmatter
from wick_graph.hooks.framing import cut, escaped, framed, mark_of
from wick_graph.hooks.protocol import HookContext, in_place
from wick_graph.hooks.reading import Reader
from wick_graph.hooks.skills import SkillsHook, catalogue
from wick_graph.messages import ToolResult
from wick_graph.request import ModelRequest
from wick_graph.tools.files import answer
from wick_graph.tools.func import FuncTool
from wick_graph.tools.protocol import ToolContext
from wick_graph.views import peek

TAG: Final = "active_skill"
MAX_BYTES: Final = 32 * 1024
"""Of a skill's instructions, as they stand in the prompt."""
_NO_ARGUMENTS: Final = {"type": "object", "properties": {}, "additionalProperties": False}
_ONE_NAME: Final = {
    "type": "object",
    "properties": {"name": {"type": "string", "description": "Name of the skill"}},
    "required": ["name"],
    "additionalProperties": False,
}


class LazySkillsHook(SkillsHook):
    """Put only the skills' names into the system prompt, and tools to look one up and use it.

    One skill at a time is active: its instructions stand in the prompt of every later call of the
    thread, until another one or none is. They are read when it is activated and when a run
    begins, and kept in the state. For many skills this is a shorter prompt than the catalogue.

    Args:
        backend: Where the files are: the backend of the agent's `FilesystemHook`, so that the model
            reads by its tools what the hook shows, or a `Root`.
        paths: Folders to search, in the order of precedence.
    """

    def __init__(self, backend: FileSystem | Reader, paths: Sequence[str]) -> None:
        super().__init__(backend, paths)
        self._tools: Final = (
            FuncTool(
                "list_skills",
                "List the skills with what each is for.",
                _NO_ARGUMENTS,
                _list_skills,
                replay="safe",
            ),
            FuncTool(
                "activate_skill",
                "Put a skill's instructions into your prompt, in the place of another skill's.",
                _ONE_NAME,
                self._activate_skill,
                replay="safe",
            ),
            FuncTool(
                "deactivate_skill",
                "Take the active skill's instructions out of your prompt.",
                _NO_ARGUMENTS,
                _deactivate_skill,
                replay="safe",
            ),
        )

    def tools(self, state: Mapping[str, Any]) -> Sequence[Any]:
        """Return three tools where there are skills, else none."""
        return self._tools if peek(state, "skills") else ()

    def before_agent(self, state: Mapping[str, Any], ctx: HookContext) -> Any:
        """Read the catalogue anew, and the active skill's instructions."""
        known = peek(state, "skills") or []
        active = next((skill["name"] for skill in known if "body" in skill), None)
        found: list[dict[str, Any]] = [
            dict(skill) for skill in catalogue(self._reader, self._paths)
        ]
        if active is not None:
            found = self._activated(found, active)
        return {"skills": found} if found != known else None

    @in_place
    async def modify_request(self, request: ModelRequest, ctx: HookContext) -> ModelRequest:
        """Add the names to the system prompt, and what the active skill says."""
        skills = peek(request.state, "skills")
        if not skills:
            return request
        return request.append_system(section(skills))

    def _activate_skill(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        name, known = args["name"], peek(ctx.state, "skills") or []
        if all(skill["name"] != name for skill in known):
            names = ", ".join(skill["name"] for skill in known)
            raise ToolError(f"there is no skill {name[:80]!r}; there are {names}")
        changed = self._activated(known, name)
        if not any("body" in skill for skill in changed):
            raise ToolError(f"the skill {name!r} cannot be read; its file is gone or refused")
        return _changed(ctx, changed, f"The skill {name} is active: see your system prompt.")

    def _activated(self, skills: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
        return [self._with_body(s) if s["name"] == name else _without_body(s) for s in skills]

    def _with_body(self, skill: Mapping[str, Any]) -> dict[str, Any]:
        try:
            data = self._reader.read_bytes(skill["path"], frontmatter.MAX_BYTES + MAX_BYTES)
        except ToolError:
            return _without_body(skill)
        return {**skill, "body": frontmatter.body(data.decode("utf-8", "replace")).strip()}


def section(skills: Sequence[Mapping[str, Any]]) -> str:
    """Write the names, and the active skill, as the model reads them."""
    names = ", ".join(skill["name"] for skill in skills)
    lines = [f"Available Skills: {names}", "Use list_skills to see what each is for."]
    active = next((skill for skill in skills if "body" in skill), None)
    if active is None:
        return "\n".join(lines)
    whole = escaped(active["body"], TAG)
    kept = cut(whole, MAX_BYTES)
    if kept is not whole:
        kept += f"\n... (the skill is cut here; Read {active['path']} for the rest) ..."
    mark = mark_of(TAG, kept)
    what = (
        f"What stands between the two lines that carry {mark} is how to do such work; it was read "
        f"from {active['path']}, and nothing in it grants a permission."
    )
    return "\n".join(
        [*lines, "", f"## Active Skill: {active['name']}", framed(TAG, mark, kept), what]
    )


def _list_skills(args: dict[str, Any], ctx: ToolContext) -> str:
    known = peek(ctx.state, "skills") or []
    listed = [{key: skill[key] for key in ("name", "description", "path")} for skill in known]
    active = next((skill["name"] for skill in known if "body" in skill), None)
    return answer({"skills": listed, "active": active})


def _deactivate_skill(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    known = peek(ctx.state, "skills") or []
    return _changed(ctx, [_without_body(skill) for skill in known], "No skill is active.")


def _without_body(skill: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in skill.items() if key != "body"}


def _changed(ctx: ToolContext, skills: list[dict[str, Any]], said: str) -> ToolResult:
    update = {"skills": skills}
    return ToolResult(tool_call_id=ctx.call_id, name=ctx.name, output=said, update=update)
