"""What other programs run or obey later: the one list of it, and how a path is compared with it."""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

OBEYED: Final = (
    # version control, and what it runs
    *(".git", ".gitattributes", ".gitconfig", ".gitmodules", ".hg", ".svn", ".husky"),
    ".pre-commit-config.yaml",
    # build, test and packaging programs
    *("Makefile", "*.mk", "GNUmakefile", "justfile", ".justfile", "*.just"),
    *("Taskfile.y*ml", "Rakefile", "CMakeLists.txt", "*.gradle", "*.gradle.kts", "pom.xml"),
    *("setup.py", "setup.cfg", "pyproject.toml", "tox.ini", "noxfile.py", "pytest.ini"),
    *("conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth", "uv.toml"),
    *("package.json", "deno.json", "deno.jsonc", "bunfig.toml", "Gruntfile.*", "Gulpfile.*"),
    *("*.config.js", "*.config.cjs", "*.config.mjs", "*.config.ts", ".eslintrc*", ".babelrc*"),
    *("Cargo.toml", "build.rs", ".cargo", "Gemfile", "composer.json", "mix.exs"),
    *("lefthook.y*ml", ".lefthook.y*ml", ".mise.toml", "mise.toml", ".tool-versions"),
    # servers that build, and containers
    *(".github/workflows", ".github/actions", ".gitlab-ci.yml", ".circleci", ".travis.yml"),
    *("azure-pipelines.yml", "bitbucket-pipelines.yml", ".buildkite", ".drone.yml", ".gitea"),
    *(".forgejo", ".woodpecker*", "Jenkinsfile", "Procfile", ".devcontainer", ".devcontainer.json"),
    *("Dockerfile*", "*.Dockerfile", "Containerfile", "compose.y*ml", "docker-compose*.y*ml"),
    # editors and other agents
    *(".vscode", "*.code-workspace", ".idea", ".exrc", ".nvim.lua", ".vimrc", ".dir-locals.el"),
    *(".mcp.json", ".claude", ".cursor", ".cursorrules", ".windsurf", ".windsurfrules", ".codex"),
    *(".clinerules", ".aider*", ".gemini", "GEMINI.md", "CLAUDE.md", "CLAUDE.local.md"),
    *("AGENTS.md", "SKILL.md", "agents.yaml", "agents.yml"),
    *(".github/copilot-instructions.md", ".github/instructions", ".github/prompts"),
    # variables, keys and shells
    *(".env*", ".netrc", ".npmrc", ".pypirc", ".ssh"),
    *(".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".profile"),
    *(".zlogin", ".zprofile", ".zshenv", ".zshrc"),
)
"""Whole files and folders. A name fits anywhere below the working directory, with all that is below
it; a pattern with a `/` fits parts of a path that follow each other."""

_WILD: Final = frozenset("*?[")


class Patterns:
    """Names and patterns that paths are compared with, without regard to case.

    Args:
        patterns: As in `OBEYED`; a `/**` or `/` at the end says nothing more.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        names: set[str] = set()
        wild: list[re.Pattern[str]] = []
        long: list[list[re.Pattern[str]]] = []
        for pattern in patterns:
            parts = [folded(part) for part in pattern.split("/") if part not in ("", ".")]
            while len(parts) > 1 and parts[-1] == "**":
                parts.pop()
            if len(parts) > 1:
                long.append([_compiled(part) for part in parts])
            elif parts and not _WILD & set(parts[0]):
                names.add(parts[0])
            elif parts:
                wild.append(_compiled(parts[0]))
        self._names: Final = frozenset(names)
        self._wild: Final = tuple(wild)
        self._long: Final = tuple(long)

    def ends_at(self, parts: Sequence[str]) -> bool:
        """Say whether a pattern fits the end of a path, given as folded names."""
        last = parts[-1]
        if last in self._names or any(one.fullmatch(last) for one in self._wild):
            return True
        return any(
            len(parts) >= len(one)
            and all(p.fullmatch(n) for p, n in zip(one, parts[-len(one) :], strict=True))
            for one in self._long
        )

    def first_in(self, path: str) -> str:
        """Return the shortest beginning of a relative path that fits; empty if none does."""
        names = [name for name in path.split("/") if name]
        parts = [folded(name) for name in names]
        for end in range(1, len(parts) + 1):
            if self.ends_at(parts[:end]):
                return "/".join(names[:end])
        return ""


@lru_cache(maxsize=8_192)
def folded(name: str) -> str:
    """Bring names that a file system may take for one into one form."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))
