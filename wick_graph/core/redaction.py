"""Find secrets in text: known values, and texts that look like secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

PATTERNS: Final[dict[str, str]] = {
    "private key": r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[^-]|-(?!----)){0,20000}"
    r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?",
    "Anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{16,}",
    "OpenAI key": r"\bsk-(?!ant-)[A-Za-z0-9_-]{20,}",
    "AWS key id": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "AWS secret": r"(?i:\baws_secret_access_key\b)[\s\"':=]{1,8}[A-Za-z0-9/+]{40}",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "Google key": r"\bAIza[A-Za-z0-9_-]{35}",
    "Slack token": r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    "Stripe key": r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "npm token": r"\bnpm_[A-Za-z0-9]{36}",
    "PyPI token": r"\bpypi-[A-Za-z0-9_-]{50,}",
    "JSON web token": r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "bearer token": r"(?i:\bbearer )[A-Za-z0-9._~+/=-]{20,}",
    "password in a URL": r"(?<=://)[^\s:/@]{0,100}:[^\s/@]{3,200}(?=@)",
    "password": r"(?i:\b(?:password|passwd|api[_-]?key|client_secret|access_token)\b)"
    r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?[^\s\"',;]{8,200}",
}
"""Patterns of secrets, by kind; each reads a text in one pass."""

WORDS: Final[dict[str, tuple[bytes, ...]]] = {
    "private key": (b"-----begin ",),
    "Anthropic key": (b"sk-",),
    "OpenAI key": (b"sk-",),
    "AWS key id": (b"akia", b"asia"),
    "AWS secret": (b"aws_secret",),
    "GitHub token": (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
    "GitLab token": (b"glpat-",),
    "Google key": (b"aiza",),
    "Slack token": (b"xox",),
    "Stripe key": (b"k_live_", b"k_test_"),
    "Hugging Face token": (b"hf_",),
    "npm token": (b"npm_",),
    "PyPI token": (b"pypi-",),
    "JSON web token": (b"eyj",),
    "bearer token": (b"bearer ",),
}
"""By kind, words in lower case: each match of the pattern holds one of them. Kinds that also occur
in prose have none."""

ODD_CASES: Final = tuple(letter.encode() for letter in "\u0130\u0131\u017f\u212a")
"""Letters that a search regardless of case takes for an ASCII letter: i, i, s and k."""

_SHORTEST: Final = 8
"""Least characters of a known secret; a shorter one would match everywhere."""

_DEEPEST: Final = 20


class Redactor:
    """Replace secrets by `[redacted: KIND]`.

    Args:
        secrets: Values that are known to be secret, such as the keys of the configuration.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.known: frozenset[str] = frozenset()
        """The known secrets."""
        self._patterns = [(name, re.compile(text)) for name, text in PATTERNS.items()]
        self._kinds = self._patterns
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add known secrets."""
        new = self.known.union(s for s in secrets if len(s) >= _SHORTEST)
        if new != self.known:
            longest = sorted(new, key=len, reverse=True)
            known = [("known secret", re.compile(re.escape(secret))) for secret in longest]
            self.known, self._kinds = new, [*known, *self._patterns]

    def found(self, text: str) -> list[str]:
        """Return the kinds of secrets in a text."""
        return list(dict.fromkeys(name for name, pattern in self._kinds if pattern.search(text)))

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        for name, pattern in self._kinds:
            text = pattern.sub(f"[redacted: {name}]", text)
        return text

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return a copy of JSON-like data without the secrets in its texts."""
        if isinstance(value, str):
            return self.text(value)
        if depth >= _DEEPEST:
            return "[nested too deeply]"
        if isinstance(value, dict):
            return {str(key): self._field(str(key), item, depth) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, depth + 1) for item in value]
        return value

    def _field(self, name: str, value: Any, depth: int) -> Any:
        """Redact a field by its name, too: a field named `password` always holds a secret."""
        if isinstance(value, str) and _NAMED.fullmatch(name):
            return "[redacted: password]"
        return self.value(value, depth + 1)


_NAMED: Final = re.compile(
    r"(?i)(?:.*_)?(?:password|passwd|secret|api[_-]?key|token|authorization|credentials?)"
)

REDACTOR: Final = Redactor()
"""Knows the patterns, and the keys of all agents that this process loaded from files."""


def texts_in(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield every text in JSON-like data."""
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST and isinstance(value, dict):
        for item in value.values():
            yield from texts_in(item, depth + 1)
    elif depth < _DEEPEST and isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item, depth + 1)
