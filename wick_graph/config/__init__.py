"""Configuration: read `agents.yaml` strictly, with file, line and key in each error.

`load_config` reads a file, `parse_config` a text, `agent_config` the keys of one agent from Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.config.fields import slug
    from wick_graph.config.load import agent_config, describe, load_config, parse_config
    from wick_graph.config.scale import LimitsConfig
    from wick_graph.config.schema import (
        AgentConfig,
        AgentsFile,
        BackendConfig,
        BudgetConfig,
        McpServerConfig,
        MemoryConfig,
        ModelConfig,
        ModelTarget,
        SearchConfig,
        SkillsConfig,
    )
    from wick_graph.config.trusted import (
        code_folders,
        control_plane,
        digest_of,
        folder_of,
        held_in,
        is_trusted,
        memory_files,
        must_be_unchanged,
        place_of,
        store_of,
        trust,
        trust_folder,
    )
    from wick_graph.errors import did_you_mean, nearest

__all__ = [
    "AgentConfig",
    "AgentsFile",
    "BackendConfig",
    "BudgetConfig",
    "LimitsConfig",
    "McpServerConfig",
    "MemoryConfig",
    "ModelConfig",
    "ModelTarget",
    "SearchConfig",
    "SkillsConfig",
    "agent_config",
    "code_folders",
    "control_plane",
    "describe",
    "did_you_mean",
    "digest_of",
    "folder_of",
    "held_in",
    "is_trusted",
    "load_config",
    "memory_files",
    "must_be_unchanged",
    "nearest",
    "parse_config",
    "place_of",
    "slug",
    "store_of",
    "trust",
    "trust_folder",
]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.config.fields": ("slug",),
            "wick_graph.config.load": ("agent_config", "describe", "load_config", "parse_config"),
            "wick_graph.config.scale": ("LimitsConfig",),
            "wick_graph.config.schema": (
                "AgentConfig",
                "AgentsFile",
                "BackendConfig",
                "BudgetConfig",
                "McpServerConfig",
                "MemoryConfig",
                "ModelConfig",
                "ModelTarget",
                "SearchConfig",
                "SkillsConfig",
            ),
            "wick_graph.config.trusted": (
                "code_folders",
                "control_plane",
                "digest_of",
                "folder_of",
                "held_in",
                "is_trusted",
                "memory_files",
                "must_be_unchanged",
                "place_of",
                "store_of",
                "trust",
                "trust_folder",
            ),
            "wick_graph.errors": ("did_you_mean", "nearest"),
        },
    )
