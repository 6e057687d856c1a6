"""A typed agent that is killed when its reply is stored, before its run ends.

`python -m tests.engine.typed_process FOLDER URL tool|native begin|resume`
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, Field

from wick_graph import Agent
from wick_graph.models import NativeOutput, ToolOutput
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, call, respond


class City(BaseModel):
    """A city."""

    name: str
    people: int = Field(ge=0)


BERN: Final = {"name": "Bern", "people": 134_000}


class Deadly(SqlSaver):
    """A store that kills this process once it has taken the step with the output."""

    def put(self, config: Any, checkpoint: Any, *more: Any) -> Any:
        taken = super().put(config, checkpoint, *more)
        if "data" in (checkpoint["channel_values"].get("output") or {}):
            os.kill(os.getpid(), signal.SIGKILL)
        return taken


def main(folder: Path, url: str, way: str, how: str) -> None:
    asked = folder / "asked"

    def reply(_: Any) -> Any:
        with asked.open("a", encoding="utf-8") as file:
            file.write("x")
        return call("City", **BERN) if way == "tool" else json.dumps(BERN)

    output: Any = (ToolOutput if way == "tool" else NativeOutput)(City)
    kind = Deadly if how == "begin" else SqlSaver
    with kind.from_url(url) as store:
        agent: Agent = Agent(model=ScriptedModel([respond(reply)]), store=store, output_type=output)
        if how == "begin":
            agent.invoke("Go", thread_id="t")
        else:
            given = agent.resume("t").output
            print(len(asked.read_text("utf-8")), repr(given))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
