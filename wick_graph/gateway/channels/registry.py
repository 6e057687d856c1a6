"""From the configuration of a channel to the channel."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from wick_graph.config.fields import Block
from wick_graph.config.gateway import ChannelConfig
from wick_graph.errors import ConfigError, describe, did_you_mean, missing_extra
from wick_graph.gateway.channels.protocol import Channel
from wick_graph.gateway.messages import INTERNAL

GROUP: Final = "wick_graph.channels"
"""The group of entry points; each is called with a name and a `ChannelConfig`."""

_EXTRAS: Final = {
    **{kind: kind for kind in ("discord", "email", "slack", "telegram")},
    "http": "server",
}
"""By type of our own channels, the extra that brings their libraries."""

_HERE: Final = "wick_graph.gateway.channels"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

OptionsT = TypeVar("OptionsT", bound=Block)


def make_channel(name: str, config: ChannelConfig) -> Channel:
    """Make a channel of a configuration.

    Args:
        name: Its key under `channels:`, the first part of session keys.
        config: Its block; without `type`, its name is its type.

    Raises:
        ConfigError: Its name, type or a setting is invalid, or a package is missing.
    """
    if name in INTERNAL or not _NAME.fullmatch(name):
        raise ConfigError(
            f"channels.{name:.80}: the name is reserved, or has other signs than letters, digits, "
            "- and _; choose another one, and say which platform by type:"
        )
    kind = config.type or name
    makers = {found.name: found for found in entry_points(group=GROUP)}
    for own in _EXTRAS:
        makers[own] = EntryPoint(own, f"{_HERE}.{own}:{own.title()}Channel", GROUP)
    if kind not in makers:
        said = f"no channel has the type {kind!r:.80}; use one of {', '.join(sorted(makers))}"
        raise ConfigError(f"channels.{name}: {said}{did_you_mean(kind, makers)}")
    why, fault = "makes no channel; see `Channel`", None
    try:
        made = makers[kind].load()(name, config)
    except ConfigError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and kind in _EXTRAS:
            missing = str(error.name).partition(".")[0]
            said = missing_extra(f"the channel {name}", missing, _EXTRAS[kind])
            raise ConfigError(said) from None
        made, fault = None, error
        why = f"cannot be made ({describe(error)}); mend or remove its package"
    if not isinstance(made, Channel):
        raise ConfigError(f"channels.{name}: the channel {makers[kind].value} {why}") from fault
    return made


def read_options(kind: type[OptionsT], name: str, options: Mapping[str, Any]) -> OptionsT:
    """Check the `options:` of a channel.

    Raises:
        ConfigError: One is unknown or invalid; values are not shown.
    """
    try:
        return kind.model_validate_json(json.dumps(dict(options), default=str))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        said = f": {first['msg'].removeprefix('Value error, ')}"
        if first["type"] == "extra_forbidden":
            said = f" is unknown{did_you_mean(key, kind.model_fields) or '; leave it out'}"
        raise ConfigError(f"channels.{name}.options.{key:.80}{said}") from None
