"""The context of a run: values of the caller that tools and hooks read, and nothing stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from typing_extensions import is_typeddict

from wick_graph.errors import ConfigError

CHAT: Final = ("channel", "chat_id", "sender_id", "session")
"""The fields of a context that are given in a chat, each a text."""


@dataclass(frozen=True, slots=True)
class ContextSchema:
    """The type of an agent's context."""

    schema: type
    subject: str
    """The field with the caller's identity, which a server sets; empty for none."""
    adapter: TypeAdapter[Any] | None = field(compare=False, repr=False)
    """Reads it from a mapping; None if it has fields that no data describes."""

    @classmethod
    def of(cls, schema: Any, subject: str = "") -> ContextSchema | None:
        """Read the arguments of an agent.

        Raises:
            ConfigError: The schema is no type, or pydantic cannot read it.
        """
        if schema is None and not subject:
            return None
        if not isinstance(schema, type):
            raise ConfigError(
                "context_schema takes a dataclass, a pydantic model or a TypedDict, "
                f"not {schema!r:.80}"
            )
        if not isinstance(subject, str) or (subject and subject not in schema.__annotations__):
            raise ConfigError(f"context_subject names a field of the context, not {subject!r:.80}")
        try:
            return cls(schema, subject, TypeAdapter(schema))
        except PydanticUserError as error:
            if subject or is_typeddict(schema):
                reason = str(error).partition("\n")[0]
                raise ConfigError(
                    f"context_schema {schema.__name__} is refused: {reason}"
                ) from None
            return cls(schema, subject, None)

    def read(self, agent: str, given: Any) -> Any:
        """Return a caller's context as an instance; None means the schema's defaults.

        Raises:
            ConfigError: It does not fit. Names fields and never a value, which may be a secret.
        """
        if self.fits(given):
            return given
        name = self.schema.__name__
        if given is not None and (self.adapter is None or not isinstance(given, Mapping)):
            raise ConfigError(
                f"the context of the agent {agent} is a {name}, not a {type(given).__name__}"
            )
        faults = ""
        try:
            if self.adapter is not None:
                return self.adapter.validate_python({} if given is None else given)
        except ValidationError as error:
            found = error.errors(include_input=False, include_url=False)
            faults = f": {', '.join(map(_fault, found))}"
        if given is None:
            raise ConfigError(
                f"the agent {agent} needs a context of {name}, also to resume a thread{faults}; "
                "pass context="
            )
        raise ConfigError(f"the context of the agent {agent} does not fit {name}{faults}")

    def own(self, around: Any) -> Any:
        """Return the context of a graph around the agent, if it can be the agent's; else None."""
        return around if isinstance(around, Mapping) or self.fits(around) else None

    def of_chat(self, agent: str, origin: Mapping[str, Any]) -> Any:
        """Return the context of a turn in a chat as data: the fields that its origin knows.

        The identity is `channel:sender_id`.

        Raises:
            ConfigError: The schema needs more.
        """
        names = {
            name for one in self.schema.__mro__ for name in getattr(one, "__annotations__", ())
        }
        chat = {name: str(origin.get(name) or "") for name in CHAT}
        known = {name: chat[name] for name in CHAT if name in names and name != self.subject}
        try:
            return self.with_subject(agent, known, f"{chat['channel']}:{chat['sender_id']}")
        except ConfigError as error:
            raise ConfigError(
                f"{error}; a chat knows {', '.join(CHAT)} and the subject, so give other fields a "
                "default"
            ) from None

    def fits(self, value: Any) -> bool:
        """Return whether a value is an instance of the schema; that of a TypedDict has none."""
        return not is_typeddict(self.schema) and isinstance(value, self.schema)

    def with_subject(self, agent: str, given: Mapping[str, Any] | None, who: str) -> Any:
        """Return a remote caller's context as data, with the identity that its token has.

        Raises:
            ConfigError: It does not fit, or the caller names an identity.
        """
        if not self.subject:
            self.read(agent, given)
            return given
        if self.subject in (given or ()):
            raise ConfigError(
                f"the field {self.subject} of the context comes from the token; leave it out"
            )
        made = {**(given or {}), self.subject: who}
        held = self.read(agent, made)
        is_map = isinstance(held, Mapping)
        known = held.get(self.subject) if is_map else getattr(held, self.subject, None)
        if known != who:  # an alias of the field, or a validator
            raise ConfigError(
                f"the field {self.subject} of the context is not the token's; make it a plain text"
            )
        return made


@runtime_checkable
class GivesTasks(Protocol):
    """A tool or a hook that gives tasks to other agents."""

    def check_caller(self, context: ContextSchema | None) -> None:
        """Refuse an agent that has no context for one of them.

        Raises:
            ConfigError: It has none.
        """


def check_child(name: str, child: ContextSchema | None, parent: ContextSchema | None) -> None:
    """Check that a sub-agent gets the context that it needs.

    Raises:
        ConfigError: Its caller has another one or none, and its own has fields without a default.
    """
    if child is None or (parent is not None and _is_kin(child.schema, parent.schema)):
        return
    try:
        child.read(name, None)
    except ConfigError:
        raise ConfigError(
            f"the sub-agent {name} needs a context of {child.schema.__name__}, and the agent that "
            "gives it tasks has none of this type; give both the same context_schema, or its "
            "fields a default"
        ) from None


def _is_kin(one: type, other: type) -> bool:
    """Say whether an instance of one type may be one of the other."""
    if is_typeddict(one) or is_typeddict(other):
        return one is other
    return issubclass(one, other) or issubclass(other, one)


def _fault(error: Any) -> str:
    """Describe an error by the field and pydantic's word for it: a message may hold the value."""
    where = ".".join(map(str, error["loc"]))
    what = str(error["type"]).replace("_", " ")
    return f"{where} ({what})" if where else what
