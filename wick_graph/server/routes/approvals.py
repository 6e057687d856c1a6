"""What threads wait for: questions to a person, and a person's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path

from wick_graph import keys
from wick_graph.hooks.approvals import KIND, holds_decision, shown_in, signed
from wick_graph.server import forms
from wick_graph.server.asking import Answerer, Asker, Reader
from wick_graph.server.live import Asked
from wick_graph.server.problems import Problem
from wick_graph.server.routes.runs import begin, finished

router: Final = APIRouter(tags=["approvals"])
RequestId = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_.:-]{1,128}~[A-Za-z0-9_.:-]{1,128}$",
        description="The thread's id, a tilde, and the question's id.",
    ),
]


@router.get("/threads/{thread_id}/approvals")
async def approvals(asker: Reader, thread_id: forms.ThreadIdPath) -> list[dict[str, Any]]:
    """List what a thread waits for."""
    return await _waiting(asker, thread_id)


@router.get("/agents/hitl/{request_id}")
async def question(asker: Reader, request_id: RequestId) -> dict[str, Any]:
    """Return one question."""
    return await _question(asker, request_id)


@router.post("/agents/hitl/{request_id}/respond")
async def respond(
    asker: Answerer, request_id: RequestId, form: forms.RespondForm
) -> dict[str, Any]:
    """Answer one question; the run goes on with it."""
    asked = await _question(asker, request_id)
    asker.must("approve" if asked["kind"] == KIND else "run")
    answer = _decision(asked, form)
    if holds_decision(answer):
        asker.must("approve")
        answer = signed(answer, asker.caller.who)
    agent = await asker.agent_of(asked["thread_id"])
    await asker.must_go_on(asked["thread_id"], agent)
    wanted = Asked(agent_id=agent.name, kind="resume", answer={asked["interrupt_id"]: answer})
    run = await begin(asker, wanted, asked["thread_id"])
    result = await finished(asker, run)
    return {"id": request_id, "status": form.status, "run": result}


def _decision(asked: Mapping[str, Any], form: forms.RespondForm) -> Any:
    if asked["kind"] != KIND:
        return form.response if form.status == "answered" else f"({form.status})"
    if form.status != "answered":
        message = form.response if isinstance(form.response, str) else ""
        return {"decision": "reject", "message": message}
    if form.response is None or form.response == "approve":
        return {"decision": "approve"}
    return form.response


async def _question(asker: Asker, request_id: str) -> dict[str, Any]:
    thread_id, _, interrupt_id = request_id.rpartition("~")
    for found in await _waiting(asker, thread_id):
        if found["interrupt_id"] == interrupt_id:
            return found
    raise Problem(404, "there is no such question, or it was answered")


async def _waiting(asker: Asker, thread_id: str) -> list[dict[str, Any]]:
    agent = await asker.agent_of(thread_id)
    config: Any = keys.with_configurable(None, **{keys.THREAD_ID: thread_id})
    state = await agent.graph.aget_state(config)
    return [_asked(thread_id, i.id, i.value, state.created_at) for i in state.interrupts]


def _asked(thread_id: str, interrupt_id: str, value: Any, since: str | None) -> dict[str, Any]:
    value = shown_in(thread_id, value)
    known = value if isinstance(value, Mapping) else {}
    return {
        "id": f"{thread_id}~{interrupt_id}",
        "thread_id": thread_id,
        "interrupt_id": interrupt_id,
        "kind": known.get("kind", "question"),
        "prompt": known.get("question") or known.get("why") or (value if not known else None),
        "options": known.get("options", []),
        "value": value,
        "status": "pending",
        "response": None,
        "created_at": since,
        "updated_at": since,
    }
