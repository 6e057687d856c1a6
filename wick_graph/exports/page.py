"""`html`: one file that shows a recorded thread, read-only and offline."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from langchain_core.messages import BaseMessage

from wick_graph.constants import TURNING
from wick_graph.errors import DebugError, StorageError
from wick_graph.exports.plain import Hider, plain
from wick_graph.journal import Blame, Entry, Journal
from wick_graph.journal.entry import GAP
from wick_graph.journal.journal import text_from
from wick_graph.journal.links import begun_by, caller_of
from wick_graph.journal.reconstruct import REQUESTS
from wick_graph.langgraph_config import HIDDEN
from wick_graph.picture import Picture
from wick_graph.picture.formats import drawn

# --- The data of a page, with equal values stored once.


Made = dict[str, Any]

Pages = Mapping[str, str]
"""Addresses of pages by their threads."""

_ALONE: Final[Pages] = MappingProxyType({})

_KEPT: Final = 16
"""Checkpoints that are kept: neighbours ask for the same."""

_LONG: Final = 24
"""Characters from which on a text inside a value is a value of its own."""

_PLACE: Final = "§"
"""Before the place of such a text; a text that begins so is one too."""

_RUN: Final = (
    *("number", "run_id", "branch", "mode", "status", "stopped_because", "agent", "model", "level"),
)


def digest_of(
    journal: Journal, hider: Hider, run: int | str | None = None, pages: Pages = _ALONE
) -> Made:
    """Collect the data of a thread, or of one of its runs, with links to the `pages` of others.

    Raises:
        StorageError: The thread has no such run.
    """
    return _Digest(journal, hider, pages).made(run)


class _Digest:
    def __init__(self, journal: Journal, hider: Hider, pages: Pages) -> None:
        self._pages = pages
        self._journal = Journal(journal.saver, journal.thread_id, keep=_KEPT)
        self._hider = hider
        self._values: list[Any] = []
        self._places: dict[str, int] = {}
        self._told: dict[str | int | None, int] = {}
        self._facts = [-1] * len(_FACTS)
        """The facts of the moment before, as places."""
        self._messages: dict[int, tuple[BaseMessage, int]] = {}
        self._states: dict[str, Made] = {}
        self._last: tuple[str, dict[str, tuple[Any, Any]]] = "", {}
        """The last state: its name, and each channel with its value's place or places."""

    def made(self, run: int | str | None) -> Made:
        journal = self._journal  # not the caller's: its values must stay apart
        only = None if run is None else journal.run(run).number
        runs = [one for one in journal.runs() if only in (None, one.number)]
        with journal.rows.sharing():  # else each state would be read anew
            moments = [self._moment(entry) for entry in journal.moments(only)]
        return {
            "thread": journal.thread_id,
            "runs": [self._run(one) for one in runs],
            "moments": moments,
            "states": self._states,
            "columns": _COLUMNS,
            "facts": _FACTS,
            "values": self._values,
            "hidden": self._hider.hidden,
            "above": self._above() if self._pages else None,
        }

    def _above(self) -> str | None:
        """Return the address of the moment that started this thread, if its page is known."""
        link = caller_of(self._journal)
        page = None if link is None else self._pages.get(link.thread_id)
        return None if link is None or page is None else f"{page}#{link.seq}"

    def _below(self, entry: Entry) -> str | None:
        """Return the address of the run that a moment starts or ends, if its page is known."""
        page = self._pages.get(entry.fields["t"])
        if page is None:
            return None
        try:
            return f"{page}#{begun_by(self._journal, entry).seq}"
        except DebugError:  # it has no recording
            return None

    def _run(self, run: Any) -> Made:
        made = {name: getattr(run, name) for name in _RUN}
        made["started"] = run.started.isoformat(timespec="milliseconds")
        if run.ended is not None:
            made["seconds"] = round((run.ended - run.started).total_seconds(), 3)
        made["hooks"] = list(run.hooks)
        made["versions"] = dict(run.versions)
        return made

    def _moment(self, entry: Entry) -> list[Any]:
        details: Any = {}
        if entry.kind != GAP:
            details = self._hider.value(self._asked(lambda: self._journal.details(entry)))
        made: Made = {
            "seq": entry.seq,
            "run": entry.run,
            "step": entry.step,
            "depth": entry.depth,
            "kind": entry.kind,
            "phase": entry.phase,
            "status": None if entry.status == "ok" else entry.status,
            "at": entry.at_us,
            "took": entry.duration_us,
            "parent": entry.parent,
            "text": plain(self._hider.value(text_from(entry, details, timed=False))),
        }
        if entry.kind == GAP:
            return self._row(made)
        made["facts"] = self._new_facts(entry)
        made["told"] = self._kept(plain(details)) if details else None
        self._state(entry)
        if entry.is_left:
            made["left"] = True
        if entry.kind == "model" and entry.phase in REQUESTS:
            made["request"] = self._asked(lambda: self._request(entry))
        if entry.kind == "agent":
            made["below"] = self._below(entry)
        if entry.what == "node.exit":
            made["writes"] = self._asked(lambda: list(self._writes(entry)))
        return self._row(made)

    def _new_facts(self, entry: Entry) -> list[int]:
        """Return the facts that the moment before has not: the number of each, then its place."""
        before, self._facts = self._facts, [self._fact(value) for value in _facts(entry)]
        both = enumerate(zip(before, self._facts, strict=True))
        return [part for nth, (old, new) in both if old != new for part in (nth, new)]

    def _fact(self, value: str | int | None) -> int:
        """Return the place of a fact; most moments repeat those of the one before."""
        place = self._told.get(value)
        if place is None:
            before, place = self._hider.hidden, self._place(value)
            if self._hider.hidden == before:  # else each time counts
                self._told[value] = place
        return place

    def _row(self, made: Made) -> list[Any]:
        """Return a moment as its columns, and what only some have."""
        row = [made.pop(name, None) for name in _COLUMNS]
        row[_KIND], row[_PHASE] = self._kept(row[_KIND]), self._kept(row[_PHASE])
        rest = {name: value for name, value in made.items() if value is not None}
        return [*row, rest] if rest else row

    def _state(self, entry: Entry) -> None:
        """Store the state at a moment once."""
        name = entry.checkpoint
        if name is not None and name not in self._states:
            saved = self._asked(lambda: self._journal.saved(name))
            values = (
                None if saved is None else getattr(saved, "checkpoint", {}).get("channel_values")
            )
            values = values or {"missing": "its checkpoint is gone"}
            self._states[name] = self._difference(
                name, {c: value for c, value in values.items() if not c.startswith(HIDDEN)}
            )

    def _difference(self, name: str, values: Made) -> Made:
        """Store a state as its difference from the one before: of a list, what is new at its end.

        `set` has the changed channels: a place, a list of places, or `[kept, places]`.
        """
        base, before = self._last
        changed: Made = {}
        now: dict[str, tuple[Any, Any]] = {}
        for channel, value in values.items():
            old, places = before.get(channel, (None, None))
            if old is value or (type(old) is type(value) and old == value):
                now[channel] = value, places
            elif _extends(value, old):
                new = [self._value(item) for item in value[len(old) :]]
                changed[channel] = {"keep": len(old), "add": new}
                now[channel] = value, None
            else:
                changed[channel] = self._listed(value)
                now[channel] = value, None
        gone = [channel for channel in before if channel not in values]
        self._last = name, now
        return {"base": base, "set": changed, **({"gone": gone} if gone else {})}

    def _request(self, entry: Entry) -> Made:
        request = self._journal.request_at(entry.seq)
        kept = self._kept_messages(entry)
        parts = self._journal.blame(entry.seq, kept=kept)
        return {
            "kept": 0 if any(part.part == "message" for part in parts) else kept,
            "exact": request.exact,
            "note": request.note,
            "model": request.model,
            "purpose": request.purpose,
            "parts": [self._part(part) for part in parts],
            "tools": [self._value(tool) for tool in request.tools],
        }

    def _kept_messages(self, entry: Entry) -> int:
        """Return how many messages of its state the request began from, if that state has them."""
        count: int = entry.fields["n"]
        saved = None if entry.checkpoint is None else self._journal.saved(entry.checkpoint)
        held = [] if saved is None else saved.checkpoint["channel_values"].get("messages") or []
        plainly = "g" not in entry.fields or isinstance(entry.fields["g"], int)
        return count if plainly and len(held) >= count else 0

    def _part(self, part: Blame) -> Made:
        made = {"part": part.part, "op": part.op, "by": part.by, "name": part.name}
        return {**made, "seq": part.seq, "value": self._value(part.value)}

    def _writes(self, entry: Entry) -> Iterator[Made]:
        for write in self._journal.state_at(entry.seq).pending:
            if write.seq == entry.seq:
                yield {"channel": write.channel, "value": self._listed(write.value)}

    def _listed(self, value: Any) -> Any:
        """Refer to each item of a list separately: histories share nearly all of theirs."""
        return [self._value(v) for v in value] if isinstance(value, list) else self._value(value)

    def _value(self, value: Any) -> int:
        if isinstance(value, BaseMessage):
            held = self._messages.get(id(value))
            if held is None:
                held = self._messages[id(value)] = value, self._place(value)
            return held[1]
        return self._place(value)

    def _place(self, value: Any) -> int:
        return self._kept(plain(self._hider.value(value)))

    def _kept(self, made: Any) -> int:
        if made is None or type(made) is int or isinstance(made, str):
            text = repr(made)
        else:
            made = self._thin(made)
            text = json.dumps(made, ensure_ascii=False, sort_keys=True)
        if text not in self._places:
            self._places[text] = len(self._values)
            self._values.append(made)
        return self._places[text]

    def _thin(self, made: Any) -> Any:
        """Make a long text inside a value one of its own: a reply repeats that of its message."""
        if isinstance(made, str):
            is_own = len(made) >= _LONG or made.startswith(_PLACE)
            return f"{_PLACE}{self._kept(made)}" if is_own else made
        if isinstance(made, list):
            return [self._thin(item) for item in made]
        if isinstance(made, dict):
            return {name: self._thin(item) for name, item in made.items()}
        return made

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Return an answer, or the reason why there is none."""
        try:
            return ask()
        except StorageError as error:
            return {"missing": str(error)}


_COLUMNS: Final = (
    *("seq", "run", "step", "depth", "kind", "phase", "status", "at", "took", "parent"),
    *("text", "told", "facts"),
)
"""What each moment has; kind, phase and what was told are places of values."""

_KIND: Final = _COLUMNS.index("kind")

_PHASE: Final = _COLUMNS.index("phase")

_FACTS: Final = (
    *("name", "hook_phase", "node", "tool", "visit", "call_id", "superstep", "checkpoint", "task"),
    "error",
)
"""What is shown of each moment besides its kind and its time, in this order."""


def _facts(entry: Entry) -> Iterator[str | int | None]:
    for name in _FACTS:
        value = getattr(entry, name)
        yield None if value in (0, "") else value


def _extends(value: Any, old: Any) -> bool:
    """Return whether a list continues another one."""
    both = isinstance(value, list) and isinstance(old, list)
    return both and 0 < len(old) < len(value) and value[: len(old)] == old


# --- `html`: one file that shows a recorded thread, read-only, from disk, without a network.


_SPELT: Final = {
    **{sign: f"\\u{ord(sign):04x}" for sign in "<>&\u2028"},
    **{chr(code): f"\\\\u{code:04x}" for code in TURNING},
}
"""Signs that could end a script element or its line, with their JSON escapes. Signs that turn the
reading direction are shown as escapes."""

_TO_SPELL: Final = re.compile(f"[{''.join(map(re.escape, _SPELT))}]")


def as_page(
    journal: Journal,
    hider: Hider,
    run: int | str | None = None,
    picture: Picture | None = None,
    pages: Pages = _ALONE,
) -> str:
    """Return the page with its data, script and styles; it loads nothing.

    `pages` are the addresses of the pages of other threads, to link callers and sub-agents.

    Raises:
        StorageError: The thread has no such run.
    """
    made = digest_of(journal, hider, run, pages)
    if picture is not None:
        made["graph"] = plain(hider.value(drawn(picture)))
    data = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    script, style = _script(), _asset("small/page.css")
    return _PAGE.format(
        policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'",
        title=html.escape(f"{journal.thread_id}, recorded"),
        style=style,
        data=_TO_SPELL.sub(lambda found: _SPELT[found[0]], data),
        script=script,
    )


# --- The script: modules of the server's page, joined; `file.js` answers in place of the server.


_MODULES: Final = (
    *("vendor/preact.js", "small/file.js", "small/values.js", "small/lanes.js", "small/stream.js"),
    *("small/session.js", "small/graph.js", "small/inspector.js", "small/run.js"),
)
"""In the order in which they need each other."""

_IMPORT: Final = re.compile(r'import\{([^}]*)\}from"\./([^"]+)";')

_EXPORT: Final = re.compile(r"\bexport (?=(?:const|class|function|async function)\b)")


@cache
def _script() -> str:
    """Join the modules, each in a function of its own that returns what others import."""
    sources = {name.removeprefix("small/"): _asset(name) for name in _MODULES}
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    wanted["file.js"] = {"show"}
    wanted["run.js"] = {"Run"}
    for text in sources.values():
        for names, module in _IMPORT.findall(text):
            used = {name.partition(" as ")[0] for name in names.split(",")}
            wanted[_given(module)] |= used
    made = [_wrapped(name, text, sorted(wanted[name])) for name, text in sources.items()]
    return "\n".join(["const page={};", *made, 'page["file.js"].show(page["run.js"].Run);'])


def _given(module: str) -> str:
    return "file.js" if module == "api.js" else module


def _wrapped(name: str, text: str, names: list[str]) -> str:
    def taken(found: re.Match[str]) -> str:
        return f'const{{{found[1].replace(" as ", ":")}}}=page["{_given(found[2])}"];'

    body = _EXPORT.sub("", _IMPORT.sub(taken, text))
    return f'page["{name}"]=(()=>{{{body}\nreturn{{{",".join(names)}}}}})();'


def _asset(name: str) -> str:
    root = files("wick_graph").joinpath("server", "page", *name.split("/"))
    return root.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="app"></div>
<noscript>This page shows its data with a script that it holds itself; allow scripts for this
file.</noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
