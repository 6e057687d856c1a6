"""What all tests share."""

from __future__ import annotations

import os

import pytest

from tests.sandbox.fixtures import container_engine
from tests.support.postgres import postgres_server, postgres_url
from tests.support.provider import provider

__all__ = ("container_engine", "postgres_server", "postgres_url", "provider")


@pytest.fixture(autouse=True)
def _no_keys_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Tests decide themselves which models and providers exist."""
    for name in list(os.environ):
        if name.endswith("_API_KEY") or name in ("WICK_MODEL", "OPENAI_BASE_URL"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:1")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
