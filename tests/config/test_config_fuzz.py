"""Whatever stands in a file: it loads, or a ConfigError of whole sentences says why."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.often import often
from wick_graph.config import AgentConfig, AgentsFile, describe, parse_config
from wick_graph.errors import ConfigError

WORDS = [
    "agents", "defaults", "store", "default", "name", "model", "tools", "backend", "type", "local",
    "workdir", "skills", "memory", "paths", "ttl", "1h", "never", "fallbacks", "params", "api_key",
    "max_iterations", "25", "0.5", "true", "null", "~", "${X}", "${Y}", "$${", "sqlite:///a.db",
    "auto", "-", "- ", ":", ": ", "{", "}", "[", "]", ",", "\n", "\n  ", "\n    ", "#", "&a", "*a",
    "!!str", "!x", "<<", "? ", "|", ">", "'", '"', "---", "...", "%YAML 1.1", "\t", "\ufeff", "\0",
    "\ud800", "\x85", "\u2028", "é", '"\\0"', '"\\ud800"', '"\\UFFFFFFFF"', "[key]",
]  # fmt: skip

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
keys = st.sampled_from([*AgentConfig.model_fields, "zzz"])
agents = st.dictionaries(keys, values, max_size=4)
files = st.fixed_dictionaries(
    {"agents": st.dictionaries(st.sampled_from(["a", "b", "tools"]), agents | values, max_size=3)},
    optional={"defaults": agents | values, "store": values},
)


def check(text: str) -> None:
    try:
        loaded = parse_config(text, source="agents.yaml", base_dir=Path("/srv"), env={"X": "x"})
    except ConfigError as error:
        message = str(error)
    else:
        assert isinstance(loaded, AgentsFile)
        assert len(describe(loaded)) == len(loaded.agents) > 0
        assert repr(loaded)
        return
    lines = message.split("\n")
    assert all(re.match(r"agents\.yaml(:\d+)?: .", line) for line in lines)
    assert all(line.isprintable() for line in lines)


# examples come in any length of time on a busy machine: bounded by count, not by a deadline
bounded = settings(
    max_examples=often(150), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@bounded
@given(st.text())
@example("\ud800")
@example('name: "\\UFFFFFFFF"')
@example("name: \ufeff")
def test_any_text(text: str) -> None:
    check(text)


@bounded
@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join))
def test_any_sequence_of_what_yaml_is_made_of(text: str) -> None:
    check(text)


@bounded
@given(files)
@example({"agents": {"a": {"[key]": None}}})
@example({"agents": {"[key]": 1}})
@example({"agents": {"[key]": {"[key]": None}}})
def test_any_values_at_the_known_keys(data: object) -> None:
    check(json.dumps(data, ensure_ascii=False))


@bounded
@given(agents)
def test_any_single_agent(data: object) -> None:
    check(json.dumps(data, ensure_ascii=True))
