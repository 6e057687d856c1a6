"""The output of an agent: its types as JSON schemas, the ways to ask for it, the check of replies.

A model gives an object in one of three ways: as the arguments of an *output tool*, as a text in
the provider's own structured form (*native*), or as a text that the prompt asks for (*prompted*).
If the schema of a type is no object, it is wrapped in one, under `response`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, Literal, get_args
from urllib.parse import urlsplit

from langchain_core.messages import AIMessage
from pydantic import TypeAdapter, ValidationError, WithJsonSchema
from pydantic.errors import PydanticUserError
from pydantic_core import from_json
from typing_extensions import TypeVar

from wick_graph.constants import OUTPUT_RETRIES, TOO_DEEP
from wick_graph.errors import ConfigError, OutputError, ToolError, describe
from wick_graph.messages.base import MARK_KEY, portable_tool_name, sanitise_tool_name
from wick_graph.messages.content import is_deep, refusal_in
from wick_graph.models.providers import provider_of

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from wick_graph.core.request import ModelRequest
    from wick_graph.models.resolve import ModelChoice

Way = Literal["tool", "native", "prompted"]
"""How a model is asked for the output."""


OutputT = TypeVar("OutputT", covariant=True, default=Any)
"""What an agent gives."""

WRAPPER: Final = "response"
"""The one key of an object around an output that is no object itself."""

SOURCE: Final = "output"
"""The source of the section of the system prompt that asks for the output."""

GIVES: Final = "Call this to give the final answer; it ends the task."
"""Ends the description of each output tool."""

ACCEPTED: Final = "The answer was accepted."

NOT_RUN: Final = "the answer was given in the same reply, so this call was not run"

_ONE_ONLY: Final = "the answer was given more than once in one reply; give it once"

ASKS: Final = (
    "Give the final answer as one JSON object and nothing else. It must fit this JSON schema:"
)
"""Begins the section of the system prompt that asks for a prompted output; the schema follows."""

_MOST_PROBLEMS: Final = 10

_LONGEST_NAME: Final = 64

_LONGEST_REFUSAL: Final = 500

_OFFICIAL: Final = {
    "openai-chat": ("openai_api_base", "api.openai.com"),
    "anthropic-chat": ("anthropic_api_url", "api.anthropic.com"),
    "chat-google-generative-ai": ("base_url", "generativelanguage.googleapis.com"),
}
"""By LangChain's type name: the field with a model's address, and the provider's own host."""

_FENCED: Final = (
    re.compile(r"```(?:json)?(.*)```", re.DOTALL),
    re.compile(r"```(?:json)?(.*?)```", re.DOTALL),
)
"""Blocks of code: up to the last mark, as the JSON may hold blocks itself, and up to the next."""


class OutputStrategy(Generic[OutputT]):
    """An output type, and the way in which a model is asked for it.

    Args:
        output_type: A type, a tuple of types (the model gives one), or a JSON schema.
    """

    way: ClassVar[Way]

    def __init__(
        self, output_type: type[OutputT] | tuple[type[OutputT], ...] | Mapping[str, Any]
    ) -> None:
        self.output_type: Any = output_type


class ToolOutput(OutputStrategy[OutputT]):
    """The model gives the output as the arguments of a tool, one tool for each type."""

    way = "tool"


class NativeOutput(OutputStrategy[OutputT]):
    """The model gives the output in its provider's structured form; not every model can."""

    way = "native"


class PromptedOutput(OutputStrategy[OutputT]):
    """The prompt asks for JSON; works with every model, and less reliably."""

    way = "prompted"


def in_strategy(output_type: Any, name: str) -> Any:
    """Return an output type in the strategy of this name; `auto` leaves it to the model."""
    known = {one.way: one for one in (ToolOutput, NativeOutput, PromptedOutput)}
    return known[name](output_type) if name in known else output_type


class InvalidOutput(ValueError):
    """Tell a model what is wrong with what it gave."""


@dataclass(frozen=True, slots=True, eq=False)
class OutputForm:
    """One type of an output. As a tool it has a name, a description and parameters."""

    name: str
    description: str
    inner: dict[str, Any] = field(repr=False)
    """The JSON schema of the data."""
    parameters: dict[str, Any] = field(repr=False)
    """The JSON schema of what a model writes: an object."""
    type: Any
    """As Python's typing knows it."""
    adapter: TypeAdapter[Any] | None = field(repr=False)
    """Builds the object; None for a JSON schema: its data is the output."""

    @property
    def is_wrapped(self) -> bool:
        """Whether a model writes the data inside an object."""
        return self.parameters is not self.inner

    def execute(self, **written: Any) -> str:
        """Refuse to run: `model` settles these calls, so this one was written by hand.

        Raises:
            ToolError: Always.
        """
        raise ToolError("an answer is taken only from the model's own reply; give it again")

    def take(self, written: Any, check: Callable[[Any], str | None]) -> Any:
        """Return the data of what a model wrote, as JSON, such that it builds the same object.

        Args:
            written: JSON data.
            check: Returns what is wrong with data, by the JSON schema.

        Raises:
            InvalidOutput: It does not fit the type.
        """
        if is_deep(written):
            raise InvalidOutput(TOO_DEEP)
        try:
            json.dumps(written, allow_nan=False)
        except ValueError:
            raise InvalidOutput("NaN and Infinity are no JSON; give a number or null") from None
        by_schema = self.adapter is None or not isinstance(written, dict)
        if by_schema and (wrong := check(written)) is not None:
            raise InvalidOutput(wrong)
        if self.is_wrapped:
            if WRAPPER not in written:
                raise InvalidOutput(f"{WRAPPER}: Field required")
            written = written[WRAPPER]
        if self.adapter is None:
            return written
        try:
            made = self.build(written)
        except ValidationError as error:
            raise InvalidOutput("; ".join(self._problems(error))) from None
        except Exception as error:  # of a validator
            raise InvalidOutput(describe(error)) from None
        return self._kept(written, made)

    def build(self, data: Any) -> Any:
        """Return the object of stored data."""
        return data if self.adapter is None else self.adapter.validate_json(json.dumps(data))

    def _kept(self, written: Any, made: Any) -> Any:
        """Return the data to keep: with defaults filled in, if it builds an equal object."""
        assert self.adapter is not None
        for data in (self._dumped(made), written):
            try:
                json.dumps(data, allow_nan=False)  # "Infinity" is a number to pydantic, and no JSON
                if data is not None and self._dumped(self.build(data)) == self._dumped(made):
                    return data
            except Exception:  # a type may write what it does not read
                continue
        return written

    def _dumped(self, made: Any) -> Any:
        assert self.adapter is not None
        try:
            return self.adapter.dump_python(made, mode="json", by_alias=True, round_trip=True)
        except Exception:
            return None

    def _problems(self, error: ValidationError) -> Iterator[str]:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        for one in found[:_MOST_PROBLEMS]:
            path = ".".join(map(str, ((WRAPPER,) if self.is_wrapped else ()) + one["loc"]))
            yield f"{path}: {one['msg']}" if path else one["msg"]
        if len(found) > _MOST_PROBLEMS:
            yield f"and {len(found) - _MOST_PROBLEMS} more"


@dataclass(frozen=True, slots=True)
class Judged:
    """What a reply gives as the output."""

    value: dict[str, Any] | None = None
    """For the channel `output`: the name of its type, and its data; None if there is none."""
    problem: str = ""
    """What is wrong with it, for the model; empty if it is valid, or if the loop goes on."""
    calls: tuple[str, ...] = ()
    """Ids of the calls that gave it."""


Checks = Mapping[str, Callable[[Any], str | None]]
"""The check by the JSON schema of each form, by name."""


class Output:
    """The output that an agent gives, compiled once.

    Args:
        output_type: A type, a tuple of types, a JSON schema, or one of the strategies around it.
        retries: How often the model is asked again in one run.

    Raises:
        ConfigError: An argument is invalid.
    """

    def __init__(self, output_type: Any, retries: int = OUTPUT_RETRIES) -> None:
        if type(retries) is not int or retries < 0:
            raise ConfigError(f"output_retries must be 0 or more, not {retries!r:.80}")
        self.way: Way | None = None
        """The chosen way; None leaves it to the model."""
        if isinstance(output_type, OutputStrategy):
            self.way, output_type = output_type.way, output_type.output_type
        self.retries = retries
        given = output_type if isinstance(output_type, tuple) else (output_type,)
        self.forms: tuple[OutputForm, ...] = _forms(given)
        self.by_name: Mapping[str, OutputForm] = {form.name: form for form in self.forms}
        self.root: OutputForm = _root(self.forms)
        """The one form of a native or prompted output."""
        self._ways: dict[tuple[int, bool], tuple[Way, Any]] = {}

    @classmethod
    def of(cls, output_type: Any, retries: int) -> Output | None:
        """Compile an agent's arguments; None if it gives a text."""
        if output_type is None or output_type is str:
            return None
        return cls(output_type, retries)

    def way_of(self, choice: ModelChoice, tools: bool) -> Way:
        """Return how a model is asked, given whether it gets other tools."""
        if self.way is not None:
            return self.way
        known = self._ways.get((id(choice), tools))
        if known is None:
            native = len(self.forms) == 1 and all(
                is_native(one.model, tools) for one in choice.leaves()
            )
            known = self._ways[id(choice), tools] = ("native" if native else "tool", choice)
        return known[0]

    def settings(self, choice: ModelChoice, way: Way) -> dict[str, Any]:
        """Return the settings of a request for the output."""
        if way == "native":
            form = {"name": self.root.name, "schema": self.root.parameters}
            return {"response_format": {"type": "json_schema", "json_schema": form}}
        return {} if way == "prompted" or _refuses_choice(choice) else {"tool_choice": "any"}

    @property
    def prompt(self) -> str:
        """The section of the system prompt that asks for a prompted output."""
        return f"{ASKS}\n{json.dumps(self.root.parameters, ensure_ascii=False)}"

    def judge(self, reply: AIMessage, way: Way, checks: Checks, done: Collection[str]) -> Judged:
        """Look for the output in a reply; `done` has the ids of calls that are answered."""
        calls = [c for c in reply.tool_calls if c["name"] in self.by_name and c["id"] not in done]
        ids = tuple(call["id"] or "" for call in calls)
        if not calls:
            return Judged() if reply.tool_calls else self._of_text(reply, way, checks)
        if len(calls) > 1:
            return Judged(problem=_ONE_ONLY, calls=ids)
        bad = (reply.response_metadata.get(MARK_KEY) or {}).get("bad") or {}
        form = self.by_name[calls[0]["name"]]
        try:
            if ids[0] in bad:
                raise InvalidOutput(bad[ids[0]])
            data = form.take(calls[0]["args"], checks[form.name])
        except InvalidOutput as error:
            return Judged(problem=str(error), calls=ids)
        return Judged({"name": form.name, "data": data}, calls=ids)

    def _of_text(self, reply: AIMessage, way: Way, checks: Checks) -> Judged:
        text = reply.text
        if not text.strip():
            refusal = " ".join(refusal_in(reply).split())[:_LONGEST_REFUSAL]
            return Judged(
                problem=f"the model refused: {refusal}" if refusal else "the reply is empty"
            )
        if way == "tool":
            return Judged(problem="a text is not taken as the answer")
        try:
            written = json_in(text)
            if len(self.forms) > 1 and isinstance(written, dict):
                written = written.get(WRAPPER, written)
            return self._first_fit(written, checks)
        except InvalidOutput as error:
            return Judged(problem=str(error))

    def _first_fit(self, written: Any, checks: Checks) -> Judged:
        """Return the output as the first of its types that it fits."""
        wrong: list[str] = []
        for form in self.forms:
            inner = {WRAPPER: written} if len(self.forms) > 1 and form.is_wrapped else written
            try:
                return Judged({"name": form.name, "data": form.take(inner, checks[form.name])})
            except InvalidOutput as error:
                wrong.append(str(error) if len(self.forms) == 1 else f"as {form.name}: {error}")
        raise InvalidOutput("; ".join(wrong))

    def again(self, judged: Judged, way: Way) -> str:
        """Ask the model for the output again."""
        if way == "tool":
            names = " or ".join(self.by_name)
            return f"{judged.problem}; give the final answer by calling {names}."
        return (
            f"The answer is invalid: {judged.problem}. Give the final answer again as one JSON "
            "object that fits the schema, and nothing else."
        )

    def refused(self, judged: Judged, count: int) -> OutputError:
        """Make the error of a run without a valid output in all its attempts."""
        times = "once" if count == 1 else f"{count} times"
        return OutputError(
            f"the model gave no valid {' or '.join(self.by_name)} when asked {times}, "
            f"last: {judged.problem}; "
            "raise `output_retries` (`output: {retries}` in agents.yaml), describe the type "
            "better, or choose another model"
        )

    def build(self, value: Mapping[str, Any]) -> Any:
        """Return the object of a value of the channel `output`.

        Raises:
            OutputError: It was made for another type, or its type refuses it now.
        """
        form = self.by_name.get(str(value.get("name")))
        if form is None:
            raise OutputError(
                f"the thread holds an output of the type {value.get('name')!r}; "
                f"read it with an agent that gives {' or '.join(self.by_name)} and that type"
            )
        try:
            return form.build(value.get("data"))
        except Exception as error:
            raise OutputError(
                f"the thread's output is no {form.name} any more: {describe(error)}; "
                "read it with the type that it was made for"
            ) from error

    def partial(self, text: str, name: str | None = None) -> Any:
        """Return the data that a model has written so far; None if there is none yet.

        Args:
            text: Its JSON.
            name: The output tool that it calls; None for a text.
        """
        form = self.root if name is None else self.by_name[name]
        try:
            written = from_json(text[text.index("{") :], allow_partial=True)
        except ValueError:
            return None
        return written.get(WRAPPER) if form.is_wrapped else written


def way_of(output: Output, request: ModelRequest, choice: ModelChoice) -> Way:
    """Return how a request asks for the output; `choice` is the agent's model."""
    others = any(name not in output.by_name for name in request.tools)
    return output.way_of(request.model or choice, others)


def asking(output: Output, request: ModelRequest, choice: ModelChoice) -> ModelRequest:
    """Return a request as the model gets it: with all that asks for the output.

    Hooks may have changed the tools and the model, so it is composed last; twice changes nothing.
    """
    way = way_of(output, request, choice)
    others = tuple(name for name in request.tools if name not in output.by_name)
    settings = {**output.settings(request.model or choice, way), **request.settings}
    if way == "tool":  # the last call of a run has these tools alone
        tools = (*(() if request.withheld else others), *output.by_name)
        return replace(request, tools=tools, settings=settings, withheld=False)
    if way == "prompted" and all(section.source != SOURCE for section in request.system):
        request = request.append_system(output.prompt, source=SOURCE)
    return replace(request, tools=others, settings=settings)


# --- JSON schemas of types


def _forms(given: Sequence[Any]) -> tuple[OutputForm, ...]:
    if not given:
        raise ConfigError("output_type is an empty tuple; name at least one type")
    names: list[str] = []
    forms = []
    for one in given:
        name = _name(one)
        while name in names:
            name = f"{name[: _LONGEST_NAME - 3]}_{len(names) + 1}"
        names.append(name)
        forms.append(_form(one, name))
    return tuple(forms)


def _name(given: Any) -> str:
    if isinstance(given, Mapping):
        named = given.get("title") or given.get("name") or ""
    else:
        named = "" if get_args(given) else getattr(given, "__name__", "")
    return portable_tool_name(sanitise_tool_name(str(named))[:_LONGEST_NAME] or "output")


def _form(given: Any, name: str) -> OutputForm:
    if isinstance(given, Mapping):
        inner, adapter = _checked(given), None
    else:
        try:
            adapter = TypeAdapter(given)
            inner = adapter.json_schema()
        except (PydanticUserError, TypeError) as error:
            why = str(error).split("\n", 1)[0].rstrip(".")
            raise ConfigError(
                f"output_type {given!r:.80} has no JSON schema: {why}; "
                "give a pydantic model, a dataclass, a TypedDict, a list, or a JSON schema"
            ) from None
    about = str(inner.get("description") or "").strip()
    if _is_object(inner):
        inner = {**inner, "type": "object", "title": name}
        parameters = inner
    else:
        parameters = _wrapped(name, inner)
    known = Annotated[Any, WithJsonSchema(inner)] if adapter is None else given
    return OutputForm(name, f"{about}\n\n{GIVES}".strip(), inner, parameters, known, adapter)


def _checked(schema: Mapping[str, Any]) -> dict[str, Any]:
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415  # slow, and seldom used
    from jsonschema.validators import Draft202012Validator, validator_for  # noqa: PLC0415  # slow, and seldom used

    made = {**schema}
    if not isinstance(made.get("$schema", ""), str):
        raise ConfigError("output_type is no JSON schema at $.$schema: it must be a text")
    try:
        validator_for(made, default=Draft202012Validator).check_schema(made)
    except SchemaError as error:
        raise ConfigError(
            f"output_type is no JSON schema at {error.json_path}: {error.message:.200}; correct it"
        ) from None
    return made


def _is_object(schema: Mapping[str, Any]) -> bool:
    kind = "object" if "properties" in schema else None
    return schema.get("type", kind) == "object" and "$ref" not in schema


def _wrapped(name: str, inner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with the data as its one property."""
    inner = _placed(inner, f"#/properties/{WRAPPER}")
    return {
        "type": "object",
        "title": name,
        "properties": {WRAPPER: {k: v for k, v in inner.items() if k not in _DEFINED}},
        "required": [WRAPPER],
        "additionalProperties": False,
        **{key: inner[key] for key in _DEFINED if key in inner},
    }


def _placed(part: Any, at: str, suffix: str = "") -> Any:
    """Return a schema for a place in another: its references lead there, or to shared definitions.

    Args:
        part: The schema, or a part of it.
        at: The place.
        suffix: Ends the names of its definitions in the other schema.
    """
    if isinstance(part, list):
        return [_placed(one, at, suffix) for one in part]
    if not isinstance(part, Mapping):
        shared = isinstance(part, str) and part.startswith(_SHARED)
        return f"{part}{suffix}" if shared else part
    made = {key: _placed(one, at, suffix) for key, one in part.items()}
    ref = made.get("$ref")
    if isinstance(ref, str) and re.match("#(/|$)", ref) and not ref.startswith(_SHARED):
        made["$ref"] = at + ref[1:]
    return made


_DEFINED: Final = ("$defs", "definitions")

_SHARED: Final = tuple(f"#/{key}/" for key in _DEFINED)


def _root(forms: Sequence[OutputForm]) -> OutputForm:
    """Return the one form for all types: their union, in an object."""
    if len(forms) == 1:
        return forms[0]
    inner: dict[str, Any] = {"anyOf": []}
    for number, form in enumerate(forms):
        suffix = f"_{number + 1}" if _clash(form.inner, inner) else ""
        part = _placed(form.inner, f"#/anyOf/{number}", suffix)
        for key in _DEFINED:
            named = {f"{name}{suffix}": one for name, one in part.pop(key, {}).items()}
            inner |= {key: {**inner.get(key, {}), **named}} if named else {}
        inner["anyOf"].append(part)
    return OutputForm("output", GIVES, inner, _wrapped("output", inner), Any, None)


def _clash(schema: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two schemas define something of the same name differently."""
    return any(
        other.get(key, {}).get(name, one) != one
        for key in _DEFINED
        for name, one in schema.get(key, {}).items()
    )


def json_in(text: str) -> Any:
    """Return the JSON of a text, which may stand in a block of code.

    Raises:
        InvalidOutput: There is none.
    """
    blocks = (found[1] for one in _FENCED if (found := one.search(text)) is not None)
    why = ""
    for one in (text, *blocks):
        try:
            return from_json(one.strip(), allow_inf_nan=False)
        except ValueError as error:
            why = str(error)
    raise InvalidOutput(f"the text is not JSON: {why}")


# --- The default way


def is_native(model: BaseChatModel, tools: bool) -> bool:
    """Say whether LangChain would take the provider's structured form, at the provider itself."""
    return not _is_foreign(model) and _langchain_says(model, tools)


def _langchain_says(model: BaseChatModel, tools: bool) -> bool:
    from langchain.agents import factory  # noqa: PLC0415  # it brings all of LangChain's agents

    return factory._supports_provider_strategy(model, [{}] if tools else None)


def _is_foreign(model: BaseChatModel) -> bool:
    """Say whether a model is called at an address that is not its provider's own."""
    name, own = _OFFICIAL.get(model._llm_type, ("base_url", ""))
    client = getattr(model, "root_client", None)  # OpenAI's knows the environment's address too
    address = getattr(client, "base_url", None) or getattr(model, name, None)
    if not address:
        return False
    host = urlsplit(str(address)).hostname or ""
    return not own or not (host == own or host.endswith(f".{own}"))


def _refuses_choice(choice: ModelChoice) -> bool:
    """Say whether a model that thinks refuses to be forced to call a tool."""
    fits = (provider_of(one.model, True) for one in choice.leaves())
    return any(
        fit is not None and fit.thinks(one.model)
        for fit, one in zip(fits, choice.leaves(), strict=True)
    )
