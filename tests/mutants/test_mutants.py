"""The list of mutants fits the code of today, and ten of them are caught in every test run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutants.mutants import MUTANTS
from tests.mutants.patches import Mutant, NotFound, Patch, mutated, node_id, place_of
from tests.source import ROOT

QUICK = [mutant.name for mutant in MUTANTS if mutant.quick]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_names_what_is_there(mutant: Mutant) -> None:
    """Symbol and fragment once, its tests each, and it can be compiled."""
    assert mutated(mutant)
    assert [node_id(test) for test in mutant.tests]


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(MUTANTS) >= 60
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len(QUICK) == 10


def test_a_fragment_that_is_gone_is_a_mistake() -> None:
    for patch in (
        Patch("check_free", "there is no such fragment", ""),
        Patch("there_is_no_such_symbol", "row", ""),
        Patch("Ledger._known", "tries", ""),  # it has it more than once
    ):
        with pytest.raises(NotFound, match="write the mutant anew"):
            place_of(patch)
    with pytest.raises(NotFound, match="0 tests"):
        node_id("test_that_there_is_not")


@pytest.fixture(scope="session")  # other modules' tests may run between two of this one
def table() -> str:
    """What `make mutants ARGS=--quick` prints, without the tests in the tree as it is."""
    command = [sys.executable, "-m", "tests.mutants", "--quick", "--no-baseline"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)  # all ten are run for the first one
@pytest.mark.xdist_group("mutants")
@pytest.mark.parametrize("name", QUICK)
def test_a_quick_mutant_is_caught(table: str, name: str) -> None:
    (line,) = [line for line in table.splitlines() if f" {name} " in line]
    assert line.startswith("caught"), table
