"""Every field of every event crosses the wire: an engine's event is the client's."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args

import pytest

from wick_graph import events
from wick_graph.client.wire import event_of

CLASSES: tuple[type[Any], ...] = get_args(events.Event)
VALUES: dict[str, Any] = {
    "args": {"a": 1},
    "attempt": 2,
    "calls": ({"index": 0, "id": "c1", "name": "add", "args": '{"a'},),
    "cause": "call_1",
    "content": "whole",
    "delay": 1.5,
    "delta": "piece",
    "duration_ms": 7,
    "error": "broken",
    "inner": events.ToolStart(name="add", args={}),
    "interrupt_id": "i1",
    "message_id": "msg_1",
    "name": "add",
    "output": "3",
    "path": ("boss", "clerk"),
    "reasoning": "hm",
    "run_id": "r1",
    "stopped_because": "cancelled",
    "reason": "why",
    "thread_id": "t1",
    "tool_calls": ({"id": "c1", "name": "add", "args": {}},),
    "usage": {"input_tokens": 3},
    "value": {"question": "which?"},
}
"""By field, a value that is not its default."""


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_event_crosses_the_wire_with_all_its_fields(cls: type[Any]) -> None:
    compared = [field for field in dataclasses.fields(cls) if field.compare]
    made = cls(**{field.name: VALUES[field.name] for field in compared})
    assert [field.name for field in compared if getattr(made, field.name) == field.default] == []
    assert event_of(json.loads(json.dumps(made.to_dict()))) == made
