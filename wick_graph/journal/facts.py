"""What is written down of each kind of moment: its fields, each under a letter.

`c` change by the hook around it, `d` microseconds it took, `e` error, `u` state update; the other
letters are the kind's own and named where they are made. `wick_graph.journal.entry` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from langchain_core.messages import AIMessage

from wick_graph.hooks.protocol import Verdict
from wick_graph.journal.changes import (
    is_same_result,
    model_name,
    request_change,
    result_parts,
    segments,
)
from wick_graph.journal.fingerprint import Fingerprint, digest, tools_digest, unpacked
from wick_graph.journal.frames import CALL, TOOL, Frame, Visit
from wick_graph.journal.layout import PHASE_CODES
from wick_graph.journal.replies import is_kept, parts_of
from wick_graph.journal.shelf import Shelf
from wick_graph.journal.writes import messages_in, writes_of
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.moments import Moment
from wick_graph.request import AGENT, ModelRequest, thread_of

Fields = dict[str, Any]
Maker = Callable[[Moment, Visit, Frame], Fields]

REPLAY_CODES: Final[Mapping[str, int]] = {"safe": 0, "key": 1, "never": 2}
"""The number of each rule of repetition: the file format, as in `wick_graph.journal.layout`."""
REPLAY_OF: Final = {code: replay for replay, code in REPLAY_CODES.items()}
_SHORT: Final = 48
_ERROR: Final = 2_000
"""Characters of an error's text."""
_FINISH: Final = ("finish_reason", "stop_reason", "done_reason", "status")
USAGE: Final = (
    *("input_tokens", "output_tokens", "total_tokens"),
    *("cache_read", "cache_write", "reasoning"),
)
_USED: Final = attrgetter(*USAGE)


class Facts:
    """Makes the fields of one run's moments."""

    def __init__(
        self,
        shelf: Shelf,
        secret: bytes,
        *,
        hooks: Sequence[str] = (),
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.shelf = shelf
        self.hooks = {name: at for at, name in enumerate(hooks)}
        self.names = names or {}
        """The names that moments of a kind nearly always have."""
        self._keys = Fingerprint(secret)
        self._head: tuple[Any, ...] = ()
        self._head_ref = b""
        self._digests = b"", b""
        self._routes: dict[Any, bytes] = {}
        self._asked_by = ""
        self.makers: dict[tuple[str, str], Maker] = {
            ("run", "enter"): self._run_enter,
            ("run", "exit"): self._run_exit,
            ("run", "error"): self._run_exit,
            ("node", "enter"): self._node_enter,
            ("node", "exit"): self._node_exit,
            ("node", "error"): self._node_error,
            ("hook", "enter"): self._hook_enter,
            ("hook", "exit"): self._hook_exit,
            ("hook", "error"): self._hook_error,
            ("model", "request"): self._request,
            ("model", "replaced"): self._request,
            ("model", "response"): self._response,
            ("model", "error"): self._error,
            ("model", "retry"): self._retry,
            ("model", "fallback"): self._retry,
            ("model", "chunk"): self._chunk,
            ("route", "taken"): self._route,
            ("tool", "enter"): self._tool_enter,
            ("tool", "call"): self._tool_call,
            ("tool", "replaced"): self._tool_call,
            ("tool", "return"): self._tool_return,
            ("tool", "exit"): self._tool_exit,
            ("tool", "error"): self._error,
            ("interrupt", "raise"): self._interrupt,
            ("interrupt", "answer"): self._answer,
        }

    # --- run and node ----------------------------------------------------------------------------

    def _run_enter(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`n` messages of the input, `v` the rest of it."""
        given = moment.data.get("input")
        if not isinstance(given, Mapping):
            return {}
        self.shelf.mask.see(given)
        messages = given.get("messages") or ()
        fields: Fields = {"n": len(messages) if isinstance(messages, list | tuple) else 1}
        rest = {key: value for key, value in given.items() if key != "messages"}
        return {**fields, "v": self.shelf.keep(rest)} if rest else fields

    def _run_exit(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`w` why it stopped."""
        fields = {"w": moment.data.get("stopped_because") or "done"}
        return {**fields, **self._error(moment, visit, frame)}

    def _node_enter(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        visit.state = moment.data.get("input")
        return {}

    def _node_exit(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`w` writes; `y` what became of the replies: how far back each is, and its content."""
        writes = moment.data["writes"]
        self.shelf.mask.see(writes)
        fields: Fields = {"w": writes_of(writes, visit, self.shelf.mask)} if writes else {}
        if visit.replies:
            kept = next((m for m in messages_in(writes) if isinstance(m, AIMessage)), None)
            fields["y"] = self._settled(moment.seq, visit, kept)
        visit.state = None
        return fields

    def _node_error(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`y` the replies that came before the error."""
        fields = self._error(moment, visit, frame)
        if visit.replies:
            fields["y"] = self._settled(moment.seq, visit, None)
        return fields

    def _settled(self, seq: int, visit: Visit, kept: AIMessage | None) -> list[list[Any]]:
        settled: list[list[Any]] = []
        for at, reply in visit.replies:
            if kept is not None and is_kept(reply, kept):
                settled.append([seq - at])
            else:
                settled.append([seq - at, self.shelf.keep(parts_of(reply))])
        visit.replies = []
        return settled

    # --- hooks -----------------------------------------------------------------------------------

    def _hook_enter(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`p` phase."""
        phase, value = moment.data["phase"], moment.data["value"]
        fields: Fields = {"p": PHASE_CODES[phase]}
        frame.value = value
        around = visit.frames[-1] if visit.frames else None
        if around is not None and around.kind == "hook.enter" and phase.startswith("wrap"):
            fields |= self._changed(around.value, frame.value)
        return fields

    def _changed(self, before: Any, after: Any) -> Fields:
        """`c` what the hook around changed of the request or the call on its way in."""
        if isinstance(before, ModelRequest) and isinstance(after, ModelRequest):
            change = request_change(before, after, self.shelf)
            return {"c": change} if change else {}
        if isinstance(before, ToolCall) and isinstance(after, ToolCall) and before is not after:
            change = {} if before.args == after.args else {"a": self.shelf.keep(after.args)}
            change |= {} if before.name == after.name else {"n": after.name}
            return {"c": change} if change else {}
        return {}

    def _hook_exit(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        phase, value = moment.data["phase"], moment.data["value"]
        fields: Fields = {"p": PHASE_CODES[phase]}
        if phase == "modify_request" and isinstance(value, ModelRequest):
            fields |= self._changed(frame.value, value)
        elif phase.startswith("wrap") and value is not frame.inner:
            fields |= self._result_change(frame.inner, value)
        elif isinstance(value, Verdict):
            fields["v"] = self.shelf.keep(_verdict(value))
        update = moment.data.get("update") or getattr(value, "update", None)
        if phase == "after_model" and isinstance(value, Mapping):
            update = value
        if phase == "wrap_tool_call":
            update = moment.data.get("update")
        if update:
            fields["u"] = writes_of(list(update.items()), visit, self.shelf.mask)
        frame.inner = value
        return fields

    def _result_change(self, before: Any, after: Any) -> Fields:
        """`c` what the hook made of the reply (`R`) or the result (`O`) on its way out."""
        if isinstance(after, ToolResult):
            if isinstance(before, ToolResult) and is_same_result(before, after):
                return {}
            return {"c": {"O": self.shelf.keep(result_parts(after))}}
        return {"c": {"R": self.shelf.keep(after)}}

    def _hook_error(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        phase = PHASE_CODES[moment.data["phase"]]
        fields = self._said(moment.data["value"])
        return {"p": phase, **fields}

    # --- model -----------------------------------------------------------------------------------

    def _request(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`k` key, `h` all but the messages, `g` segments, `n` messages of the thread."""
        data, request = moment.data, moment.data["request"]
        self._asked_by = "" if moment.place is None else moment.place.task
        head = self._head_of(request, data["tools"], data["brought"])
        key = self._keys.key(data["messages"], *self._digests)
        made = segments(request, self.shelf)
        fields: Fields = {"k": key, "h": head, "n": len(thread_of(request))}
        if made != fields["n"]:
            fields["g"] = made
        around = visit.frames[-1] if visit.frames else None
        if around is not None and around.kind == "hook.enter":
            fields |= self._changed(around.value, request)
        frame.value = request
        visit.chunks = []
        return fields

    def _head_of(self, request: ModelRequest, tools: Sequence[Any], by: Mapping[str, str]) -> bytes:
        fixed = (request.purpose, request.withheld, model_name(request))
        now = (request.system, [id(tool) for tool in tools], request.settings, fixed, by)
        if now == self._head:
            return self._head_ref
        schemas = [] if request.withheld else [tool.schema for tool in tools]
        self._digests = tools_digest(schemas), digest(dict(request.settings))
        head = {
            "system": [[s.source, self.shelf.keep(s.text)] for s in request.system],
            "tools": [[self.shelf.keep(tool.schema), by.get(tool.name)] for tool in tools],
            "settings": self.shelf.keep(dict(request.settings)),
            "purpose": fixed[0],
            "withheld": fixed[1],
            "model": fixed[2],
        }
        self._head, self._head_ref = now, self.shelf.keep_as_is(head)
        return self._head_ref

    def _response(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`u` tokens, `f` why it ended, `g` given by a listener, `t` first piece and how many."""
        reply = moment.data["reply"]
        visit.replies.append((moment.seq, visit.taken))
        fields: Fields = {"u": list(_USED(moment.data["usage"]))}
        metadata = reply.response_metadata
        finish = next((metadata[key] for key in _FINISH if metadata.get(key)), None)
        if finish is not None:
            fields["f"] = str(finish)[:_SHORT]
        if moment.data.get("given"):
            fields["g"] = True
        if moment.data.get("purpose", AGENT) != AGENT:
            fields["p"] = moment.data["purpose"]
        if visit.chunks:
            fields["t"] = [visit.chunks[0] - frame.at, len(visit.chunks)]
        frame.inner = reply
        return fields

    def _chunk(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`v` the piece of text."""
        return {"v": self.shelf.keep(moment.data["chunk"].text)}

    def _retry(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`s` seconds until the next try."""
        return {**self._said(moment.data["error"]), "s": round(moment.data["delay"], 3)}

    def _route(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`v` reason and rules, `l` whether it ends, `n` calls."""
        target = moment.data["target"]
        stopped = moment.data["state"].get("stop_reason")
        ends = isinstance(target, str)
        seen = stopped if ends else len(target)
        told = self._routes.get(seen) if seen else None
        if told is None:
            reason, rules = moment.data["explain"]()
            listed = [[r.label, r.predicate, r.result, r.reads] for r in rules]
            told = self._routes[seen] = self.shelf.keep([reason, listed])
        return {"v": told, "l": ends, "n": 0 if ends else len(target)}

    # --- tools -----------------------------------------------------------------------------------

    def _tool_enter(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        visit.place[CALL], visit.place[TOOL] = moment.call_id, moment.name
        frame.value = visit.taken
        return {}

    def _tool_call(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`a` arguments if hooks changed them, `k` the ledger's key, `r` how it may be repeated."""
        fields: Fields = {}
        asked = next((f.value for f in visit.frames if f.kind == "tool.enter"), None)
        if asked != visit.taken:
            fields["a"] = self._args(visit.taken)
        fields["k"] = self._key(moment.data["key"])
        if (code := REPLAY_CODES.get(moment.data.get("replay") or "")) is not None:
            fields["r"] = code
        return fields

    def _args(self, taken: bytes) -> bytes:
        return self.shelf.keep(unpacked(taken))

    def _key(self, key: str) -> int | str:
        """The ledger's key is the model step's task and the call's index; the task stands above."""
        task, _, index = key.rpartition(":")
        return int(index) if task == self._asked_by else key

    def _tool_return(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`g` given by a listener."""
        frame.inner = visit.own = moment.data["result"]
        return {"g": True} if moment.data.get("given") else {}

    def _tool_exit(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`z` failed, `q` channels that it wrote, `o` the tool's own result where it is another."""
        result: ToolResult = moment.data["result"]
        fields: Fields = {"z": True} if result.error else {}
        if result.update:
            fields["q"] = list(result.update)
        own, visit.own = visit.own, None
        if own is not None and not is_same_result(own, result):
            fields["o"] = self.shelf.keep(result_parts(own))
        return fields

    # --- the rest --------------------------------------------------------------------------------

    def _interrupt(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`v` what is asked."""
        asked = [{"id": i.id, "value": i.value} for i in moment.data["interrupts"]]
        self.shelf.mask.see(asked)
        return {"v": self.shelf.keep(asked)}

    def _answer(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`v` the answer."""
        self.shelf.mask.see(moment.data["answer"])
        return {"v": self.shelf.keep(moment.data["answer"])}

    def _error(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        return self._said(moment.data.get("error"))

    def _said(self, error: Any) -> Fields:
        """`e` class and text of an error."""
        if error is None:
            return {}
        text = self.shelf.mask.text(_words(error))[:_ERROR]
        return {"e": [type(error).__name__, text.encode("utf-8", "replace").decode()]}


def _words(error: Any) -> str:
    """Return an error's text; never raises, also where the error cannot say what it holds."""
    try:
        return str(error)
    except Exception:  # an interrupt that is nested too deeply, or an `__str__` of somebody's own
        return "its text cannot be shown"


def _verdict(verdict: Verdict) -> dict[str, Any]:
    answers = {
        call: answer if isinstance(answer, str) else result_parts(answer)
        for call, answer in verdict.answers.items()
    }
    return {"answers": answers, "end": verdict.end, "because": verdict.because}
