"""SkillsHook: tell the model which instructions there are; it reads the ones that it needs."""

from __future__ import annotations

import logging
import posixpath
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict

from wick_graph.backends import FileSystem
from wick_graph.errors import ToolError
from wick_graph.hooks import frontmatter
from wick_graph.hooks.framing import one_line
from wick_graph.hooks.protocol import BaseHook, HookContext, in_place
from wick_graph.hooks.reading import Reader, is_missing, reader_of
from wick_graph.request import ModelRequest
from wick_graph.views import peek

FILE: Final = "SKILL.md"
MAX_SKILLS: Final = 200
MAX_NAME: Final = 64
"""Code points."""
MAX_DESCRIPTION: Final = 1_024
"""Code points."""
MAX_DIRECTORIES: Final = 2_000
"""Directories that a search looks into."""
MAX_ENTRIES: Final = 10_000
"""Entries of one directory that it looks at."""
MAX_DEPTH: Final = 16

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 _-]|\.(?!\.))*")
_log: Final = logging.getLogger(__name__)


class Skill(TypedDict):
    """What the catalogue says of one skill."""

    name: str
    description: str
    path: str
    """Of its file, as `read_file` takes it."""


class SkillsHook(BaseHook):
    """Put a catalogue of skills into the system prompt: name, description and path of each.

    A skill is a file `SKILL.md` anywhere below one of the paths. Its name and description come
    from its front matter, its path from the disk alone. The catalogue is read when a run begins
    and kept in the state; links are not followed.

    Args:
        backend: Where the files are: the backend of the agent's `FilesystemHook`, so that the model
            reads by its tools what the hook shows, or a `Root`.
        paths: Folders to search, in the order of precedence.
    """

    name = "skills"
    phases = ("before_agent", "modify_request")

    def __init__(self, backend: FileSystem | Reader, paths: Sequence[str]) -> None:
        self.backend: Final = backend
        self._reader = reader_of(backend)
        self._paths = tuple(paths)

    def before_agent(self, state: Mapping[str, Any], ctx: HookContext) -> Any:
        """Read the catalogue anew."""
        found = catalogue(self._reader, self._paths)
        return {"skills": found} if found != (peek(state, "skills") or []) else None

    @in_place
    async def modify_request(self, request: ModelRequest, ctx: HookContext) -> ModelRequest:
        """Add the catalogue to the system prompt, if there is anything in it."""
        skills = peek(request.state, "skills")
        return request.append_system(section(skills)) if skills else request


def section(skills: Sequence[Mapping[str, Any]]) -> str:
    """Write the catalogue as the model reads it."""
    return "\n".join(["Available Skills:", *map(_line, skills)])


def catalogue(reader: Reader, paths: Sequence[str]) -> list[Skill]:
    """Find the skills below the paths; of two with one name the first counts."""
    found: dict[str, Skill] = {}
    for path in _files(reader, paths):
        if len(found) == MAX_SKILLS:
            _log.warning("there are more than %d skills; the rest is left out", MAX_SKILLS)
            break
        skill = _read(reader, path)
        if skill is None:
            continue
        first = found.setdefault(skill["name"], skill)
        if first is not skill:
            _log.warning("the skill %r is there twice; %r counts", skill["name"], first["path"])
    return list(found.values())


def _line(skill: Mapping[str, Any]) -> str:
    what = f"[{skill['name']}] {skill['description']}".rstrip()
    return f"- {what} → Read {skill['path']} for full instructions"


def _files(reader: Reader, paths: Sequence[str]) -> Iterator[str]:
    """Yield the paths of skill files, folder by folder, nearest first."""
    looked = 0
    for path in paths:
        queue = deque([(posixpath.normpath(path), 0)])
        while queue and looked < MAX_DIRECTORIES:
            folder, depth = queue.popleft()
            looked += 1
            try:
                entries, _ = reader.scan_dir(folder, MAX_ENTRIES)
            except ToolError as error:
                if depth or not is_missing(error):
                    _log.warning("skills in %r are left out: %s", folder, error)
                continue
            for entry in entries:
                inner = posixpath.join(folder, entry.name)
                if entry.type == "file" and entry.name == FILE:
                    yield inner
                elif entry.type == "dir" and depth < MAX_DEPTH:
                    queue.append((inner, depth + 1))


def _read(reader: Reader, path: str) -> Skill | None:
    """Read what a file says of itself; a bad front matter leaves the folder's name."""
    if not path.isprintable() or "→" in path:
        _log.warning("the skill %r is left out: its path cannot be shown on a line", path)
        return None
    try:
        says = frontmatter.read(reader.read_bytes(path, frontmatter.MAX_BYTES))
    except ToolError as error:
        _log.warning("the skill %r is left out: %s", path, error)
        return None
    description = says.get("description")
    return Skill(
        name=_name(says.get("name"), posixpath.basename(posixpath.dirname(path))),
        description=one_line(description, MAX_DESCRIPTION) if isinstance(description, str) else "",
        path=path,
    )


def _name(wanted: Any, folder: str) -> str:
    """Return the name that a skill gives itself, else its folder's, made fit for a list."""
    for name in (wanted, folder):
        if isinstance(name, str) and len(name) <= MAX_NAME and _NAME.fullmatch(name.strip()):
            return name.strip()
    return re.sub(r"[^A-Za-z0-9]+", "-", folder).strip("-")[:MAX_NAME] or "skill"
