"""Configuration: `agents.yaml` read strictly, with an address for every mistake.

`load_config` reads a file, `parse_config` a text, `agent_config` the keys of one agent from Python.
"""

from __future__ import annotations

from wick_graph.config.control import (
    code_folders,
    control_plane,
    folder_of,
    memory_files,
    place_of,
    store_of,
    trust_folder,
)
from wick_graph.config.fields import slug
from wick_graph.config.guests import McpServerConfig
from wick_graph.config.load import agent_config, describe, load_config, parse_config
from wick_graph.config.reach import held_in
from wick_graph.config.schema import (
    AgentConfig,
    AgentsFile,
    BackendConfig,
    BudgetConfig,
    LimitsConfig,
    MemoryConfig,
    ModelConfig,
    ModelTarget,
    SearchConfig,
    SkillsConfig,
)
from wick_graph.config.trusted import (
    digest_of,
    is_trusted,
    must_be_unchanged,
    trust,
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
