"""Details of a moment, as plain data for people, exports and conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from langchain_core.messages import BaseMessage

from wick_graph.errors import StorageError
from wick_graph.journal.encode import APPEND, REMOVE, REPLACE, REPLAY_OF, SET, USAGE
from wick_graph.journal.entry import GAP, Entry
from wick_graph.journal.reconstruct import REQUESTS, Reconstruction
from wick_graph.journal.tracebacks import lines_of
from wick_graph.messages import to_wick
from wick_graph.messages.calls import ERROR_PREFIX

_OPS: Final = {APPEND: "append", REPLACE: "replace", REMOVE: "remove", SET: "set"}

Made = dict[str, Any]


class Details:
    """Decodes the fields of moments into readable details."""

    def __init__(self, rebuilt: Reconstruction) -> None:
        self._rebuilt = rebuilt
        self._reader = rebuilt.reader
        self._held = rebuilt.value

    def details(self, entry: Entry) -> Made:
        """Return a moment's recorded details; `missing` names data that is gone."""
        made: Made = {}
        for part in (self._common, self._own):
            try:
                made |= part(entry)
            except StorageError as error:
                made["missing"] = str(error)
        return made

    def to_dict(self, entry: Entry) -> Made:
        """Return a moment as one JSON object, with all its details."""
        plain = {
            "thread": entry.thread_id,
            "branch": entry.branch,
            "seq": entry.seq,
            "run": entry.run_id,
            "step": entry.step or None,
            "visit": entry.visit or None,
            "node": entry.node,
            "task": entry.task,
            "superstep": entry.superstep,
            "checkpoint": entry.checkpoint,
            "parent": entry.parent,
            "depth": entry.depth,
            "kind": entry.kind,
            "phase": entry.phase,
            "name": entry.name,
            "hook_phase": entry.hook_phase,
            "call_id": entry.call_id,
            "at": entry.at.isoformat(timespec="microseconds"),
            "at_us": entry.at_us,
            "duration_us": entry.duration_us,
            "status": entry.status,
            "error": entry.error,
        }
        kept = {key: value for key, value in plain.items() if value not in (None, "")}
        return {**kept, "data": _plain(self.details(entry))}

    def _common(self, entry: Entry) -> Made:
        made: Made = {}
        if "u" in entry.fields and entry.kind == "hook":
            made["update"] = [self._write(entry, write) for write in entry.fields["u"]]
        if "c" in entry.fields:
            made["change"] = self.change(entry)
        if "b" in entry.fields:
            made["traceback"] = lines_of(self._held(entry.fields["b"]))
        return made

    def _own(self, entry: Entry) -> Made:
        if entry.kind == GAP or entry.phase == "lost":
            return {}
        make = _MAKERS.get(entry.what)
        return {} if make is None else make(self, entry)

    def change(self, entry: Entry) -> Made:
        """Return a hook's change; on the way in, the next inner moment holds it."""
        raw = entry.fields["c"]
        made: Made = {"by": self._changer(entry)}
        if "s" in raw:
            made["system"] = [self._section(section) for section in raw["s"]]
        if "k" in raw:
            made["dropped"] = [self._section(section[1:]) for section in raw["k"]]
        if "g" in raw:
            made["messages"] = self._segments(raw["g"])
        if "t" in raw:
            made["tools"] = {"offered": raw["t"], "removed": raw.get("r", [])}
        if "o" in raw:
            made["settings"] = {"set": self._held(raw["o"]), "removed": raw.get("x", [])}
        for letter, name in (("w", "withheld"), ("p", "purpose"), ("m", "model"), ("n", "tool")):
            if letter in raw:
                made[name] = raw[letter]
        for letter, name in (("a", "args"), ("R", "reply"), ("O", "result")):
            if letter in raw:
                made[name] = self._held(raw[letter])
        return made

    def _changer(self, entry: Entry) -> str:
        """Return the hook: on the way in the surrounding one, else the moment's own."""
        if entry.is_end or entry.parent is None:
            return entry.name
        return self._reader.moment(entry.parent).name

    def _section(self, section: int | list[Any]) -> Made:
        if isinstance(section, int):
            return {"kept": section}
        return {"source": section[0], "text": self._held(section[1])}

    def _segments(self, segments: Any) -> list[Any]:
        if isinstance(segments, int):
            return [[0, segments]]
        return [self._held(part) if isinstance(part, bytes) else part for part in segments]

    def _write(self, entry: Entry, write: list[Any]) -> Made:
        channel, op, *rest = write
        made: Made = {"channel": channel, "op": _OPS.get(op, str(op))}
        path = rest[0] if rest else None
        if channel == "messages" and path is None:
            path = rest[1] if len(rest) > 1 else entry.call_id
        if path is not None:
            made["path"] = path
        if op == SET and len(rest) > 1:
            made["value"] = rest[1]
        return made

    # --- one method for each kind ----------------------------------------------------------------

    def _run_enter(self, entry: Entry) -> Made:
        fields, run = entry.fields, self._reader.run_of(entry)
        made: Made = {"mode": run.mode, "agent": run.agent, "graph_hash": run.graph_hash}
        made |= {"code_hash": run.code_hash, "base": run.base, "branch": run.branch}
        if "n" in fields:
            made["messages"] = fields["n"]
        if "v" in fields:
            made["input"] = self._held(fields["v"])
        return made

    def _run_exit(self, entry: Entry) -> Made:
        return {"stopped_because": entry.fields.get("w")}

    def _node_exit(self, entry: Entry) -> Made:
        made: Made = {"writes": [self._write(entry, write) for write in entry.fields.get("w", ())]}
        for letter, name in (("g", "goto"), ("s", "sends"), ("n", "as_node")):
            if letter in entry.fields:
                made[name] = entry.fields[letter]
        return made

    def _hook_exit(self, entry: Entry) -> Made:
        return {"verdict": self._held(entry.fields["v"])} if "v" in entry.fields else {}

    def _request(self, entry: Entry) -> Made:
        head = self._held(entry.fields["h"])
        tools = [self._held(ref)["function"]["name"] for ref, _ in head["tools"]]
        made: Made = {
            "key": entry.fields["k"].hex(),
            "purpose": head["purpose"],
            "messages": self._count(entry),
            "system": [{"source": s, "chars": len(self._held(ref))} for s, ref in head["system"]],
            "tools": [] if head["withheld"] else tools,
            "settings": self._held(head["settings"]),
        }
        if head["withheld"]:
            made["withheld"] = tools
        return made

    def _count(self, entry: Entry) -> int:
        segments = entry.fields.get("g", entry.fields["n"])
        if isinstance(segments, int):
            return segments
        return sum(1 if isinstance(part, bytes) else part[1] - part[0] for part in segments)

    def _response(self, entry: Entry) -> Made:
        fields = entry.fields
        made: Made = {"usage": dict(zip(USAGE, fields["u"], strict=False))}
        for letter, name in (("f", "finish_reason"), ("g", "given"), ("p", "purpose")):
            if letter in fields:
                made[name] = fields[letter]
        if "t" in fields:
            made["first_token_us"], made["chunks"] = fields["t"]
        reply = self._rebuilt.reply_at(entry.seq)
        if reply is None:
            return {**made, "missing": "the reply was never kept: the process died before"}
        return {**made, "reply": reply}

    def _retry(self, entry: Entry) -> Made:
        return {"delay": entry.fields.get("s")}

    def _chunk(self, entry: Entry) -> Made:
        return {"text": self._held(entry.fields["v"])}

    def _route(self, entry: Entry) -> Made:
        reason, rules = self._held(entry.fields["v"])
        names = ("label", "predicate", "result", "reads")
        if "q" in entry.fields:
            chosen = ", ".join(entry.fields["q"])
        else:
            chosen = "route: end" if entry.fields["l"] else "route: tools"
        candidates = [dict(zip(names, rule, strict=True)) for rule in rules]
        return {
            "chosen": chosen,
            "reason": reason,
            "candidates": candidates,
            "calls": entry.fields["n"],
        }

    def _tool_enter(self, entry: Entry) -> Made:
        if "a" in entry.fields:
            return {"args": self._held(entry.fields["a"])}
        call = self._rebuilt.call_at(entry)
        return {"args": None if call is None else call["args"]}

    def _tool_call(self, entry: Entry) -> Made:
        fields = entry.fields
        changed = "a" in fields
        made = {"args": self._held(fields["a"])} if changed else self._tool_enter(entry)
        made["changed"] = changed
        made["replay"] = REPLAY_OF.get(fields.get("r", -1))
        if isinstance(key := fields.get("k"), str):
            made["key"] = key
        return made

    def _tool_exit(self, entry: Entry) -> Made:
        made: Made = {}
        if "o" in entry.fields:
            made["before_hooks"] = self._held(entry.fields["o"])
        if "x" in entry.fields:
            return {**made, "output": self._held(entry.fields["x"])}
        answer = self._rebuilt.answer_at(entry)
        if answer is None:
            return {**made, "missing": "the result was never kept: the process died before"}
        failed = answer.status == "error"
        name, text = (
            ("error", answer.text.removeprefix(ERROR_PREFIX))
            if failed
            else (
                "output",
                answer.text,
            )
        )
        return {**made, name: text}

    def _child(self, entry: Entry) -> Made:
        made: Made = {"thread": entry.fields["t"]}
        ended = entry.fields.get("w")
        return made if ended is None else {**made, "stopped_because": ended}

    def _value(self, entry: Entry) -> Made:
        return {"value": self._held(entry.fields["v"])} if "v" in entry.fields else {}


_MAKERS: Final[Mapping[str, Callable[[Details, Entry], Made]]] = {
    "run.enter": Details._run_enter,
    "run.exit": Details._run_exit,
    "run.error": Details._run_exit,
    "node.exit": Details._node_exit,
    "node.retry": Details._retry,
    "state.update": Details._node_exit,
    "hook.exit": Details._hook_exit,
    **{f"model.{phase}": Details._request for phase in REQUESTS},
    "model.response": Details._response,
    "model.retry": Details._retry,
    "model.fallback": Details._retry,
    "model.chunk": Details._chunk,
    "route.taken": Details._route,
    "tool.enter": Details._tool_enter,
    "tool.call": Details._tool_call,
    "tool.replaced": Details._tool_call,
    "tool.exit": Details._tool_exit,
    "interrupt.raise": Details._value,
    "interrupt.answer": Details._value,
    "agent.spawn": Details._child,
    "agent.return": Details._child,
}


def _plain(value: Any) -> Any:
    """Convert messages in data to their JSON form."""
    if isinstance(value, BaseMessage):
        return to_wick(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
