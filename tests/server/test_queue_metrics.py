"""What the metrics say of the runs of workers: all of it to the operator, to a tenant its own."""

from __future__ import annotations

import uuid
from pathlib import Path

from wick_graph.config import load_config
from wick_graph.service.metrics import WORKERS, queue_text
from wick_graph.service.options import ServerOptions
from wick_graph.service.service import Service
from wick_graph.worker.queue import RunQueue


async def test_the_queue_is_counted_by_tenant(tmp_path: Path, postgres_url: str) -> None:
    text = f"store: '{postgres_url}'\nagents: {{default: {{model: 'scripted:demo'}}}}\n"
    (tmp_path / "agents.yaml").write_text(text, "utf-8")
    file = load_config(tmp_path / "agents.yaml")
    queue = RunQueue(file)
    service = Service(file, ServerOptions(), queue=queue)
    asked = {"agent": "default", "kind": "message", "messages": []}
    try:
        for name, runs in (("anna", 2), ("bert", 1)):
            async with service.using(name) as tenant:
                streams = tenant.saver.streams
                for number in range(runs):
                    key = str(uuid.uuid4())
                    row = await streams.run(streams.admit, f"t{number}", key, asked)
                    assert row is not None
                if name == "bert" and row is not None:
                    assert await streams.run(streams.claim, row)
        saver = service.local.saver
        note = {"at": saver.clock(), "slots": 50, "take_overs": 3, "leases_lost": 1, "dead": 2}
        await saver.mailbox.run(saver.mailbox.put_fact, f"{WORKERS}one", note)
        old = {**note, "at": note["at"] - 3_600}
        await saver.mailbox.run(saver.mailbox.put_fact, f"{WORKERS}dead", old)

        every = (await queue_text(service, "local")).splitlines()
        assert 'wick_queued_runs{tenant="anna"} 2' in every
        assert 'wick_slots_used{tenant="bert"} 1' in every
        assert not [line for line in every if line.startswith('wick_queued_runs{tenant="bert"')]
        for line in ("wick_workers 1", "wick_workers_slots 50", "wick_workers_dead 2"):
            assert line in every
        waits = [line for line in every if line.startswith("wick_queue_oldest_seconds")]
        assert float(waits[0].split()[1]) >= 0
        assert len([line for line in every if line.startswith("# TYPE")]) == len(
            {line for line in every if line.startswith("# TYPE")}
        )
        own = await queue_text(service, "anna")
        assert 'tenant="anna"' in own
        assert "bert" not in own
        assert "workers" not in own
    finally:
        service.close()
        queue.close()
