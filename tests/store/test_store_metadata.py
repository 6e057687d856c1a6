"""What a checkpoint's metadata gets of its run's config."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, get_checkpoint_metadata

from wick_graph.store.checkpoint_write import metadata_of

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.none())
)
KEYS = st.one_of(
    st.sampled_from([*EXCLUDED_METADATA_KEYS, "run_id", "step", "__mine", "__pregel_read", "x\0"]),
    st.text(max_size=3),
)
ENTRIES = st.dictionaries(KEYS, VALUES, max_size=6)


@given(
    st.fixed_dictionaries(
        {}, optional={"metadata": st.one_of(st.none(), ENTRIES), "configurable": ENTRIES}
    ),
    ENTRIES,
)
def test_a_configs_metadata_is_what_langgraph_makes_of_it(config: Any, metadata: Any) -> None:
    ours, theirs = metadata_of(config, metadata), get_checkpoint_metadata(config, metadata)
    assert [(key, repr(value)) for key, value in ours.items()] == [
        (key, repr(value)) for key, value in theirs.items()
    ]
