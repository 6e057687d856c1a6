"""`deadline:` and `retention:` in agents.yaml, from the text to the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from wick_graph import Agent, load
from wick_graph.errors import ConfigError
from wick_graph.testing import ScriptedModel

TEXT = """\
agents:
  default:
    model: scripted:demo
    deadline: {deadline}
    retention: {retention}
"""


def written(folder: Path, deadline: str = "10m", retention: str = "{keep_latest: 5}") -> Path:
    file = folder / "agents.yaml"
    file.write_text(TEXT.format(deadline=deadline, retention=retention), "utf-8")
    return file


def test_they_reach_the_agent(tmp_path: Path) -> None:
    with load(written(tmp_path)) as agents:
        spec = agents["default"].spec
    assert (spec.deadline, spec.keep_latest) == (600.0, 5)


def test_never_is_no_limit(tmp_path: Path) -> None:
    with load(written(tmp_path, "never", "null")) as agents:
        spec = agents["default"].spec
    assert (spec.deadline, spec.keep_latest) == (None, None)


@pytest.mark.parametrize(
    ("deadline", "retention", "place"),
    [
        pytest.param("soon", "null", "agents.yaml:4: agents.default.deadline: ", id="no duration"),
        pytest.param("0s", "null", "agents.yaml:4: agents.default.deadline: ", id="no time"),
        pytest.param("1m", "{keep_latest: 0}", "agents.yaml:5: agents.default.retention", id="0"),
        pytest.param("1m", "{keep: 5}", "agents.yaml:5: agents.default.retention", id="key"),
    ],
)
def test_mistakes_have_an_address(
    tmp_path: Path, deadline: str, retention: str, place: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, deadline, retention))
    assert place in str(refused.value)


def test_an_agent_refuses_them_too() -> None:
    model = ScriptedModel(["ok"])
    with pytest.raises(ConfigError, match="keep_latest must be 1 or more, or None, not 0"):
        Agent(model=model, keep_latest=0)
    with pytest.raises(ConfigError):
        Agent(model=model, deadline="soon")
