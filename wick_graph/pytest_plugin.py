"""Fixtures for pytest: recorded runs, and models that answer from a file.

`wick_runs` records every run of a test, whatever its agent's recording level, and shows the last
moments of each if the test fails. `wick_cassette` answers a model's requests from a file beside the
test; `pytest --wick-record` calls the real model and writes the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from wick_graph.debug.recording import RecordedRuns


_SHOWN: Final = 25
"""Moments per run to show for a failed test."""

_NAME: Final = re.compile(r"[^\w.-]+")

Cassette = Callable[..., Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--wick-record`."""
    parser.getgroup("wick").addoption(
        "--wick-record",
        action="store_true",
        help="call real models and write their answers to the cassettes of wick_cassette",
    )


@pytest.fixture
def wick_runs() -> Iterator[RecordedRuns]:
    """Record the test's runs: `wick_runs.last.called("calculate", expression="6*7") == 1`."""
    from wick_graph.debug.recording import RecordedRuns, record  # noqa: PLC0415  # keeps other test sessions fast

    with record() as recording:
        yield RecordedRuns(recording)


@pytest.fixture
def wick_cassette(request: pytest.FixtureRequest) -> Iterator[Cassette]:
    """Return models that answer from `cassettes/<module>/<test>.jsonl`.

    `wick_cassette(model, name="")` takes a chat model, or a function that makes one and is called
    only under `--wick-record`. `name` distinguishes several models of one test.
    """
    from wick_graph.testing import RecordingModel, ReplayModel  # noqa: PLC0415  # as above

    folder = request.path.parent / "cassettes" / request.path.stem
    test = _NAME.sub("_", request.node.name)
    recording = request.config.getoption("--wick-record")
    open_models: list[Any] = []

    def cassette(model: Any, name: str = "") -> Any:
        path = folder / f"{test}{f'.{name}' if name else ''}.jsonl"
        if not recording:
            return ReplayModel(_there(path))
        made = RecordingModel(model() if callable(model) else model, path)
        open_models.append(made)
        return made

    yield cassette
    for made in open_models:
        made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the last moments of a failed test's runs."""
    report = yield
    runs = getattr(item, "funcargs", {}).get("wick_runs")
    if report.when == "call" and report.failed and runs:
        report.sections.append(("wick: the last moments", "\n".join(_ends(runs))))
    return report


def _ends(runs: RecordedRuns) -> Iterator[str]:
    """Describe the runs' ends; an error here must not hide the test's own."""
    try:
        yield from runs.report(_SHOWN)
    except Exception as error:
        yield f"the rest cannot be shown: {type(error).__name__}: {error}"


def _there(path: Path) -> Path:
    if not path.exists():
        pytest.fail(f"there is no {path}; record it with pytest --wick-record", pytrace=False)
    return path
