"""The scripted demo model: serves if there is no model, and never pretends to be one.

It makes the calls that a question writes out, such as `find_order(number="A-17")`, passes its
arithmetic to `calculate` and a question about files to `ls`, and answers with the results. It
computes nothing itself and keeps no state: everything follows from the last user message and the
messages after it. What is in the place of a user's words, such as a summary, is no question.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from wick_graph.messages.lowering import SYSTEM_LABEL
from wick_graph.models.scripted.model import BindsTools
from wick_graph.models.scripted.reply import Draft, DraftCall, estimate_usage, tool_name

_WHO: Final = (
    "This is the scripted demo model, not a language model: it can pass arithmetic such as 21*2 to "
    "the tool `calculate`, list a folder with the tool `ls`, and make a call that you write out, "
    'such as calculate(expression="21*2").'
)

_HOW: Final = (
    "For real answers name a model, for example WICK_MODEL=openai:gpt-5-mini with "
    "OPENAI_API_KEY set, or start an Ollama on its port (11434)."
)

_SIGNS: Final = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})

_DATE: Final = re.compile(r"\b\d{4}-\d{2}-\d{2}(?:T[\d:.]+Z?)?\b")

_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")

_TOKEN: Final = re.compile(
    r"(?P<part>(?<![\w.])\d+(?:\.\d+)?(?!\.?\w)|\*\*|//|[-+*/%()])|(?P<space>[ \t]+)|.",
    re.DOTALL,
)

_OPERATORS: Final = frozenset({"**", "//", "+", "-", "*", "/", "%"})

_BEFORE_OPERAND: Final = frozenset({"(", "+", "-"})

_NAME: Final = r"(?<![\w.])(?<!\w-)([A-Za-z_]\w*(?:-\w+)*)"

_CALL: Final = re.compile(_NAME + r"\(\s*(?=\)|[A-Za-z_]\w*\s*=)")

_BEGUN: Final = re.compile(_NAME + r"\(")

_MOST_CALLS: Final = 100

_MOST_STEPS: Final = 200_000
"""Most signs to look at for the arithmetic of a text; what is behind them is not seen."""

_MOST_READ: Final = 20_000
"""The most characters of a question in which calls and sums are looked for: some 15 ms of a
server's loop, which a tenant's text would hold up for seconds."""

_NOT_ASKED: Final = (
    SYSTEM_LABEL.strip(),
    "[Conversation Summary]",
    "[Response from ",
    "[Error from ",
)
"""How messages begin that have the user's place in a request, and are not the user's words."""

_ARGUMENT: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*")

_BETWEEN: Final = re.compile(r"\s*([,)])")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError("too large")
    return number


_VALUES: Final = json.JSONDecoder(parse_constant=int, parse_float=_finite)
"""Read arguments; NaN and Infinity are refused, as they are no JSON, and so is 1e999."""

_FILES: Final = re.compile(r"\b(files?|folders?|director(y|ies)|here)\b", re.IGNORECASE)

_FOLDER: Final = re.compile(
    r"""`([\w./-]+)`"""
    r"""|\b(?:in|of|at|under|inside|list|ls|folder|directory)\s+["']([\w./-]+)["']"""
    r"""|\b(?:folder|directory)\s+(?:named|called)\s+([\w./-]+)"""
    r"""|\b(?:in|of|at|under|inside|folder|directory)\s+((?:[\w.-]*/[\w./-]*|\.\.?))(?=[\s?!,.]|$)"""
    r"""|\bthe\s+([\w.-]+)\s+(?:folder|directory)\b""",
    re.IGNORECASE,
)

_NO_NAMES: Final = frozenset(
    {"and/or", "current", "same", "working", "whole", "this", "project", "root"}
)


def demo_model() -> BaseChatModel:
    """Make the model that `model: auto` uses if it finds no other."""
    return DemoModel()


class DemoModel(BindsTools):
    """Answer from the results of `calculate` and `ls`, or say that it cannot."""

    model_name: str = "scripted:demo"

    @property
    def _llm_type(self) -> str:
        return "scripted-demo"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = self._draft(messages, kwargs).message()
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, **kwargs)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self._draft(messages, kwargs).chunks():
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream(messages, **kwargs):
            yield chunk

    def _draft(self, messages: Sequence[BaseMessage], asked: dict[str, Any]) -> Draft:
        bound = frozenset(map(tool_name, asked.get("tools") or ()))
        content, calls = reply_to(messages, bound)
        return Draft(
            content=content,
            calls=calls,
            usage=estimate_usage(messages, content, calls),
            metadata={"model_name": self.model_name},
        )


def reply_to(
    messages: Sequence[BaseMessage], bound: frozenset[str]
) -> tuple[str, tuple[DraftCall, ...]]:
    """Decide on the reply: a text, or calls of the bound tools."""
    at = next((i for i in range(len(messages) - 1, -1, -1) if _is_user(messages[i])), None)
    if at is None:
        return f"{_WHO} {_HOW}", ()
    question, after = messages[at].text[:_MOST_READ], messages[at + 1 :]
    wanted = _wishes(question)
    if any(isinstance(message, ToolMessage) for message in after):
        return _answer(after, [tool for tool, _ in wanted if tool not in bound]), ()
    calls = tuple(
        DraftCall.of(tool, args, _call_id(messages[at], at, number))
        for number, (tool, args) in enumerate(wanted)
        if tool in bound
    )
    if calls:
        return "", calls
    missing = _missing([tool for tool, _ in wanted]) or _unread(question, bound)
    return " ".join(filter(None, (missing, _WHO, _HOW))), ()


def calls_in(question: str) -> list[tuple[str, dict[str, Any]]]:
    """Find the calls that a text writes out as a stream shows them: `find_order(number="A-17")`."""
    found: list[tuple[str, dict[str, Any]]] = []
    at = 0
    for match in islice(_CALL.finditer(question), _MOST_CALLS):
        if match.start() < at:
            continue  # a part of the call before
        args, at = _arguments(question, match.end())
        if args is not None:
            found.append((match[1], args))
    return found


def _arguments(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
    """Read arguments up to the parenthesis; return them, or None, with the place behind them.

    What was read before a fault is not looked at again: a string may hold another call.
    """
    args: dict[str, Any] = {}
    if text[at : at + 1] == ")":
        return args, at + 1
    while named := _ARGUMENT.match(text, at):
        if named[1] in args:
            return None, at
        try:
            args[named[1]], at = _VALUES.raw_decode(text, named.end())
            json.dumps(args[named[1]], ensure_ascii=False).encode()  # half a pair is no text
        except (ValueError, RecursionError):
            return None, at
        sign = _BETWEEN.match(text, at)
        if sign is None or sign[1] == ")":
            return (args, sign.end()) if sign else (None, at)
        at = sign.end()
    return None, at


def expressions(question: str) -> list[str]:
    """Find the arithmetic in a text: each longest stretch that is an expression by itself."""
    plain = _THOUSANDS.sub("", _DATE.sub(";", question.translate(_SIGNS)))
    found: list[str] = []
    left = _MOST_STEPS
    for tokens in _runs(plain):
        start = 0
        while start < len(tokens) and left > 0:
            stop, seen = _longest(tokens, start)
            left -= seen
            if stop > start:
                found.append("".join(tokens[start:stop]).strip())
            start = max(stop, start + 1)
    return list(dict.fromkeys(found))


def folder(question: str) -> str | None:
    """Find the folder that a question is about: its name, or `.`; None if it is about no files."""
    if not _FILES.search(question):
        return None
    for match in _FOLDER.finditer(question):
        name = next(filter(None, match.groups()))
        name = name.rstrip(".") or name  # the full stop of the sentence, but not `..`
        if name.casefold() not in _NO_NAMES and not name[0].isdigit():
            return name.rstrip("/") or "/"
    return "."


def _wishes(question: str) -> list[tuple[str, dict[str, Any]]]:
    if wishes := calls_in(question):
        return wishes
    wishes = [("calculate", {"expression": one}) for one in expressions(question)]
    place = folder(question)
    return wishes if place is None else [*wishes, ("ls", {"path": place})]


def _is_user(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and not message.text.startswith(_NOT_ASKED)


def _call_id(question: BaseMessage, at: int, number: int) -> str:
    """Make an id: the same for the same prompt, another for each turn."""
    seed = f"{question.id}/{at}/{number}/{question.text}"
    return f"call_{hashlib.sha256(seed.encode()).hexdigest()[:16]}"


def _runs(text: str) -> Iterator[list[str]]:
    """Cut a text into stretches of numbers and signs, each with the space before it."""
    run: list[str] = []
    space = ""
    for match in _TOKEN.finditer(text + "\n;"):
        if match["part"]:
            run.append(space + match["part"])
        elif not match["space"]:
            yield run
            run = []
        space = " " if match["space"] and run else ""
    yield run


def _longest(tokens: Sequence[str], start: int) -> tuple[int, int]:
    """Find the end of the longest expression that starts here, or `start`; count the steps."""
    depth, operators, operand_due, end, at = 0, 0, True, start, start
    for at in range(start, len(tokens)):
        token = tokens[at].strip()
        if operand_due:
            depth += token == "("
            operand_due = token in _BEFORE_OPERAND
            if not (operand_due or token[0].isdigit()):
                break
        elif token in _OPERATORS:
            operators += 1
            operand_due = True
        elif token == ")" and depth:
            depth -= 1
        else:
            break
        if operators and not depth and not operand_due:
            end = at + 1
    return end, at - start + 1


def _answer(after: Sequence[BaseMessage], missing: Sequence[str]) -> str:
    asked = {call["id"]: call for m in after if isinstance(m, AIMessage) for call in m.tool_calls}
    said = [
        _report(message, asked.get(message.tool_call_id))
        for message in after
        if isinstance(message, ToolMessage)
    ]
    return "\n".join(filter(None, (*said, _missing(missing))))


def _report(result: ToolMessage, call: Any) -> str:
    tool = result.name or (call["name"] if call else "the tool")
    args = call["args"] if call else {}
    output = result.text
    if result.status == "error" or output.startswith("Error:"):
        return f"{tool}({', '.join(map(str, args.values()))}) failed. {output}"
    if tool == "calculate":
        return f"{args.get('expression', 'The result')} = {output}."
    return _listing(str(args.get("path", ".")), output) if tool == "ls" else f"{tool}: {output}"


def _listing(path: str, output: str) -> str:
    place = "The folder" if path == "." else f"The folder {path}"
    try:
        entries = json.loads(output)
        names = [str(e["name"]) + "/" * (e.get("type") == "dir") for e in entries]
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{place} holds: {output}"
    return f"{place} holds: {', '.join(names)}." if names else f"{place} is empty."


def _unread(question: str, bound: frozenset[str]) -> str:
    """Say that a call cannot be read: the quotes of a terminal are a first slip."""
    begun = next((m[1] for m in _BEGUN.finditer(question) if m[1] in bound), "")
    how = "write each argument as name=value, and a text in double quotes"
    return f"The call of `{begun}` cannot be read; {how}." if begun else ""


def _missing(tools: Sequence[str]) -> str:
    names = " and ".join(f"`{name}`" for name in dict.fromkeys(tools))
    return f"The question needs {names}, which this agent does not have." if names else ""
