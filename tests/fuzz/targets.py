"""What is attacked: each target is a property with arguments that Hypothesis makes up."""

from __future__ import annotations

import atexit
import io
import json
import math
import re
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.oracle import quick
from wick_graph import Agent
from wick_graph.backends import LocalBackend, Stop
from wick_graph.backends.protocol import MAX_REPEATED
from wick_graph.backends.search import find_ripgrep, glob_pattern, line_pattern, repeated_parts
from wick_graph.client.wire import Call, Following
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import (
    ConfigError,
    ExpressionError,
    MessageError,
    ServerError,
    StorageError,
    ToolError,
)
from wick_graph.exports.plain import Hider
from wick_graph.exports.wickrun import open_wickrun, write_wickrun
from wick_graph.expressions import compile_expression, glob_match
from wick_graph.hooks.approvals import ApprovalHook
from wick_graph.journal import Journal
from wick_graph.messages import ToolCall
from wick_graph.messages.content import json_parts
from wick_graph.messages.validation import read_history, read_input
from wick_graph.server import guard
from wick_graph.service.options import Problem
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel
from wick_graph.tools.builtin_tools import BUILTINS
from wick_graph.tools.http import HTTPTool
from wick_graph.tools.mcp_transport import TooMuch, check_message
from wick_graph.tools.toolsets import RESERVED, ToolStore
from wick_graph.web import Target

TARGETS: dict[str, Callable[[], None]] = {}
"""By name."""
Attack = Callable[..., None]
ROUND = settings(
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)
"""Of a target before the next one has its turn."""

PLAIN = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=40)),
    *(
        st.integers(min_value=10**20),
        st.just("a" * 20_000),
        st.just("\ud800"),
        st.just("../" * 999),
    ),
)
_SMALL = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=12), inner, max_size=6)
    ),
    max_leaves=12,
)
JSON = st.one_of(_SMALL, _SMALL, PLAIN.map(lambda value: [value] * 100))
NAMES = st.one_of(
    st.sampled_from(["path", "command", "text", "args", "tool", "true", "null", "None", "__x__"]),
    st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
    st.text(max_size=10),
)


def target(fn: Attack) -> Attack:
    """Add a target."""
    TARGETS[fn.__name__] = ROUND(fn)
    return fn


# --- rules and expressions ----------------------------------------------------------------------

ATOMS = st.one_of(
    st.sampled_from(["path", "command", "args", "tool", "x", "true", "null", "not", "1", "''"]),
    st.sampled_from(["[x, x, x]", "{'a': x}", "len(path)", "path[0]", "args['path']", "str(args)"]),
    st.integers().map(str),
    st.text(max_size=8).map(repr),
)
EXPRESSIONS = st.one_of(
    st.text(max_size=200),
    st.recursive(
        ATOMS,
        lambda inner: st.one_of(
            st.tuples(
                inner, st.sampled_from(["+", "*", "%", "and", "or", "==", "<", "in", "**"]), inner
            ).map(lambda parts: f"({' '.join(parts)})"),
            st.tuples(
                st.sampled_from(["len", "str", "int", "sorted", "any", "last", "round", "glob"]),
                st.lists(inner, max_size=3),
            ).map(lambda made: f"{made[0]}({', '.join(made[1])})"),
            inner.map(lambda text: f"{text} * 1000000"),
            inner.map(lambda text: f"[y for y in {text}]"),
            inner.map(lambda text: f"{text}.__class__"),
        ),
        max_leaves=20,
    ),
)


@target
@given(text=EXPRESSIONS, names=st.dictionaries(NAMES, JSON, max_size=5))
def expressions(text: str, names: dict[str, Any]) -> None:
    """An expression is refused or has a value that is data, in bounded time."""
    made = quick(lambda: compile_expression(text), ExpressionError)
    if made is None:
        return
    value = quick(lambda: made.evaluate(names), ExpressionError)
    assert value is None or isinstance(value, bool | int | float | str | list | tuple | dict)
    assert "__class__" not in re.sub(r"'[^']*'|\"[^\"]*\"", "", made.text)


@target
@given(
    rule=st.one_of(st.booleans(), EXPRESSIONS),
    pattern=st.sampled_from(["write_file", "write_*", "*", "[vw]rite_file"]),
    args=st.dictionaries(NAMES, JSON, max_size=5),
)
def approvals(rule: bool | str, pattern: str, args: dict[str, Any]) -> None:
    """A rule asks or does not; one that cannot be evaluated asks."""
    try:
        hook = ApprovalHook({pattern: rule})
    except ConfigError:
        return
    known: Any = {"parameters": {"properties": dict(args)}}  # of a tool that names them all
    context = SimpleNamespace(folders=(), told=lambda: known)
    call = ToolCall(id="c", name="write_file", args=args, ctx=context)
    why = quick(lambda: hook.why(call))
    if isinstance(rule, bool):
        assert (why is not None) is rule
    try:
        holds = compile_expression(str(rule)).evaluate({**args, "args": args, "tool": call.name})
    except ExpressionError:
        assert isinstance(rule, bool) or why is not None, "a rule that fails must ask"
    else:
        if holds is True and not isinstance(rule, bool) and not {"args", "tool"} & args.keys():
            assert why is not None


@target
@given(
    text=st.one_of(st.text(max_size=300), st.just("a" * 20_000)),
    pattern=st.one_of(st.text("*?[]!-ab/.", max_size=200), st.just("*a" * 400)),
)
def globs_of_rules(text: str, pattern: str) -> None:
    """A pattern is matched in bounded steps, and a text fits the pattern that it is itself."""

    def spend(steps: int, left: list[int] = [20_000]) -> None:  # noqa: B006  # one budget per call
        left[0] -= steps
        if left[0] < 0:
            left[0] = 20_000
            raise ExpressionError("enough")

    quick(lambda: glob_match(text, pattern, spend), ExpressionError, most=1.0)
    if not set(text) & set("*?[") and len(text) < 1_000:
        assert glob_match(text, text)


# --- what a caller sends ------------------------------------------------------------------------

BLOCKS = st.one_of(
    st.text(max_size=20),
    JSON,
    st.lists(
        st.one_of(
            JSON,
            st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", "file"])}),
            st.builds(lambda text: {"type": "text", "text": text}, JSON),
            st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, JSON),
        ),
        max_size=4,
    ),
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.one_of(st.sampled_from(["user", "system", "assistant", "tool", "ai"]), PLAIN)},
    optional={
        "content": BLOCKS,
        "tool_calls": JSON,
        "tool_call_id": PLAIN,
        "id": PLAIN,
        "name": PLAIN,
        "extra": JSON,
    },
)


@target
@given(messages=st.one_of(JSON, st.lists(MESSAGES, max_size=6)), system=st.booleans())
def message_shapes(messages: Any, system: bool) -> None:
    """A caller's messages are taken or refused, and a user never speaks for the model."""
    made = quick(lambda: read_input(messages, allow_system=system), MessageError)
    assert all(m.type in ("human", "system") for m in made or ())
    assert system or all(m.type == "human" for m in made or ())
    quick(lambda: read_history(messages, allow_system=system), MessageError)


@target
@given(
    body=st.one_of(
        st.binary(max_size=400),
        st.text(max_size=400).map(lambda text: text.encode("utf-8", "surrogatepass")),
        JSON.map(lambda value: json.dumps(value).encode()),
        st.text('{}[],:"\\u1eE.-0 ntf', max_size=300).map(str.encode),
    ),
    repeated=st.integers(1, 2_000),
)
def bodies(body: bytes, repeated: int) -> None:
    """A body that is taken means what JSON says; the count before it is never too low."""
    for sent in (body, body * repeated):
        if len(sent) > 4 * 2**20:
            continue
        value = quick(partial(guard.parse, sent, 64, 20_000), Problem, most=0.1)
        counted = json_parts(sent, 10)
        quick(partial(check_message, sent), TooMuch)
        if value is not None:
            assert value == json.loads(sent)
            assert counted == 0 or counted >= min(_parts(value) - 1, 11)


def _parts(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + _parts(inner) for inner in value.values())
    return 1 + sum(map(_parts, value)) if isinstance(value, list) else 1


@target
@given(
    name=st.one_of(NAMES, st.sampled_from([*BUILTINS, *RESERVED]), st.just("a" * 65)),
    description=st.text(max_size=30),
    parameters=st.one_of(
        st.dictionaries(NAMES, JSON, max_size=4),
        _SCHEMAS := st.recursive(
            st.sampled_from([{"type": "string"}, {"$ref": "#"}, {"pattern": "(a+)+$"}, {}]),
            lambda inner: st.one_of(
                st.builds(lambda one: {"type": "object", "properties": {"a": one}}, inner),
                st.builds(lambda one: {"anyOf": [one] * 3}, inner),
                st.builds(lambda one: {"items": one, "$ref": "#/items"}, inner),
            ),
            max_leaves=8,
        ),
    ),
    url=st.one_of(st.text(max_size=60), st.just("https://tools.example.com")),
)
def tool_names(name: str, description: str, parameters: dict[str, Any], url: str) -> None:
    """A tool from elsewhere has a name that no built-in has and every provider takes."""
    store = ToolStore()

    def register() -> str:
        return store.register(HTTPTool(name, description, parameters, url)).name

    made = quick(register, ConfigError)
    if made is not None:
        assert re.fullmatch(r"[a-z][a-z0-9_]{0,63}", made)
        assert made not in RESERVED
        assert not set(made) - set("abcdefghijklmnopqrstuvwxyz0123456789_")


@target
@given(url=st.one_of(st.text(max_size=200), st.text("htps:/@.[]%#?\\127x", max_size=400)))
def addresses(url: str) -> None:
    """An address is refused, or read as one host that stands in it."""
    made = quick(lambda: Target.parse(url), ConfigError)
    if made is not None:
        assert "@" not in url.partition("//")[2].partition("/")[0]
        assert str(Target.parse(str(made))) == str(made)


@target
@given(text=st.text(max_size=300), times=st.integers(1, 500))
def secrets(text: str, times: int) -> None:
    """Hiding secrets takes time in proportion to the text."""
    quick(lambda: REDACTOR.text(text * times), most=0.25)


# --- what a model sends -------------------------------------------------------------------------

PATTERNS = st.recursive(
    st.one_of(
        st.sampled_from(["a", ".", r"\d", r"\w", "[a-z]", "[^a]", r"\pL", "(?i)", "^", "$", r"\b"]),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map(lambda text: f"({text})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1000}", "{0,99}", "{,}"])).map(
            "".join
        ),
        st.tuples(inner, st.integers(1, 60)).map(lambda made: f"(?:{made[0]})" * made[1]),
    ),
    max_leaves=12,
)


class Corpus:
    """Files to search, once for all attacks."""

    def __init__(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="wick-fuzz-")
        atexit.register(folder.cleanup)
        here = Path(folder.name)
        (here / "a").write_text(("a" * 200 + "\n") * 500, "utf-8")
        (here / "b").write_text("word 12 é\n\n\tx\n" * 50, "utf-8")
        self.fast = LocalBackend(here)
        self.plain = LocalBackend(here, ripgrep=False)
        self.both = find_ripgrep(str(here)) is not None


@cache
def corpus() -> Corpus:
    return Corpus()


@target
@given(pattern=PATTERNS)
def search_patterns(pattern: str) -> None:
    """A search costs this thread nothing, and both engines give one answer."""
    here = corpus()
    answers = []
    for backend in (here.fast, here.plain) if here.both else (here.plain,):

        def search(backend: LocalBackend = backend) -> Any:
            try:
                return backend.grep(pattern, stop=Stop())
            except ToolError as error:
                return str(error)

        answers.append(quick(search))
    if not any(getattr(answer, "notes", ()) for answer in answers):
        assert answers[0] == answers[-1]
    read = quick(lambda: line_pattern(pattern), ToolError)
    assert read is None or repeated_parts(pattern) <= MAX_REPEATED


@target
@given(pattern=st.one_of(PATTERNS, st.text("*?[]{},!-ab/.\\", max_size=300)))
def file_patterns(pattern: str) -> None:
    """Finding files costs this thread the walk alone."""
    quick(lambda: glob_pattern(pattern), ToolError)
    quick(lambda: corpus().plain.glob(pattern), ToolError)


# --- what another machine sends -----------------------------------------------------------------


@target
@given(
    lines=st.lists(
        st.one_of(
            st.text(max_size=60),
            st.builds(lambda value: f"id: {value}", PLAIN),
            st.builds(lambda value: f"data: {json.dumps(value)}", JSON),
            st.builds(
                lambda name, data: "data: " + json.dumps({"event": name, "data": data}),
                st.sampled_from(
                    ["done", "error", "gap", "on_tool_end", "on_chat_model_stream", "interrupt"]
                ),
                JSON,
            ),
            st.just("data: " + "[" * 50_000),
            st.just("id: " + "9" * 5_000),
        ),
        max_size=8,
    )
)
def event_streams(lines: list[str]) -> None:
    """A client reads a stream or says that the server is none."""
    following = Following(Call("GET", "/"), 1.0)

    def read() -> None:
        reader = following.lines()
        next(reader)
        for line in lines:
            reader.send(line)

    quick(read, ServerError)


@cache
def recording() -> bytes:
    """Make a real archive to be broken."""
    with tempfile.TemporaryDirectory(prefix="wick-fuzz-") as folder:
        path = Path(folder) / "a.wickrun"
        with SqlSaver.from_url(f"sqlite:///{folder}/a.db") as saver:
            Agent("it", ScriptedModel(["Done."]), store=saver).invoke("Go", thread_id="t")
            journal = Journal(saver, "t")
            write_wickrun(journal, saver, path, Hider.of(journal))
        return path.read_bytes()


@target
@given(data=st.data())
def archives(data: st.DataObject) -> None:
    """A broken archive opens or is refused."""
    whole = bytearray(recording())
    if data.draw(st.booleans(), "inside"):
        whole = bytearray(_changed_inside(bytes(whole), data))
    else:
        for _ in range(data.draw(st.integers(0, 6))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        del whole[data.draw(st.integers(0, len(whole))) :]
    with tempfile.TemporaryDirectory(prefix="wick-fuzz-") as folder:
        path = Path(folder) / "a.wickrun"
        path.write_bytes(whole)

        def read() -> None:
            with open_wickrun(path) as found:
                for run in found.journal.runs():
                    list(found.journal.moments(run.run_id))

        quick(read, StorageError, most=1.0)


def _changed_inside(whole: bytes, data: st.DataObject) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            body = bytearray(old.read(name))
            for _ in range(data.draw(st.integers(0, 3))):
                body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
            if name == "manifest.json" and data.draw(st.booleans()):
                made = {**json.loads(old.read(name)), data.draw(NAMES): data.draw(JSON)}
                body = bytearray(json.dumps(made).encode())
            new.writestr(name, bytes(body))
    return out.getvalue()


@target
@given(value=st.floats(), text=st.text(max_size=40))
def numbers(value: float, text: str) -> None:
    """A number that is none never gets in."""
    if not math.isfinite(value):
        body = json.dumps({text: value}).encode()
        assert quick(lambda: guard.parse(body, 64, 100), Problem) is None
