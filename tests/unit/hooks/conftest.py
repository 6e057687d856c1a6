from __future__ import annotations

import pytest

from tests.engine.support import Door, async_door, sync_door


@pytest.fixture(params=[sync_door, async_door], ids=["invoke", "ainvoke"])
def door(request: pytest.FixtureRequest) -> Door:
    chosen: Door = request.param
    return chosen
