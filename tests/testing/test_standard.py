"""LangChain's own tests for chat models.

Not applicable, and skipped by the suite itself: `test_init_from_env` (no setting is read from
the environment) and `test_serdes` (a script may hold functions, so the model is not serialisable
in LangChain's sense).
"""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_tests.unit_tests import ChatModelUnitTests

from wick_graph.models.demo import DemoModel
from wick_graph.testing import ScriptedModel


class TestScriptedModel(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ScriptedModel

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model_name": "scripted"}


class TestDemoModel(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return DemoModel

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {}
