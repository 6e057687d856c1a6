"""Pictures as they were looked at and found good; `WICK_UPDATE_GOLDEN=1` writes them anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.picture.samples import GOLDEN, RUN, picture, same_as_golden
from wick_graph.picture import Picture, as_dot, as_html, as_json, as_mermaid, as_svg, as_text

WRITE: dict[str, Callable[[Picture], str]] = {
    "svg": as_svg,
    "txt": as_text,
    "mmd": as_mermaid,
    "dot": as_dot,
    "json": as_json,
    "html": as_html,
}
DRAWN = (
    *("bare_agent", "self_loop", "supervisor", "swarm", "nested_loops", "strange_names"),
    *("subgraph_of_opened", "disconnected", "fan_out_50", "long_names", "two_worlds"),
    "giving_agent",
)
CASES = [
    *(("full_agent", form, False) for form in WRITE),
    *(("full_agent", form, True) for form in WRITE),
    *((name, form, False) for name in DRAWN for form in ("svg", "txt")),
    *((name, "mmd", False) for name in ("strange_names", "supervisor")),
]


def file_of(name: str, form: str, laid: bool) -> str:
    return f"{name}{'_run' if laid else ''}.{form}"


@pytest.mark.parametrize(("name", "form", "laid"), CASES)
def test_it_looks_as_it_did(name: str, form: str, laid: bool) -> None:
    drawn = picture(name).with_run(RUN) if laid else picture(name)
    same_as_golden(file_of(name, form, laid), WRITE[form](drawn))


def test_ascii_looks_as_it_did() -> None:
    text = as_text(picture("full_agent").with_run(RUN), ascii_only=True)
    same_as_golden("full_agent_run.ascii.txt", text)


def test_every_golden_file_is_compared() -> None:
    known = {file_of(*case) for case in CASES} | {"full_agent_run.ascii.txt"}
    assert {path.name for path in GOLDEN.iterdir()} == known
