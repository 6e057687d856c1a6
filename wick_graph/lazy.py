"""Packages and modules that are loaded when a name of theirs is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from sys import modules
from typing import Any


def load_when_used(package: str, names: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562).

    Args:
        package: The package's name.
        names: For each module, which of its names the package offers.
    """
    homes = {name: module for module, offered in names.items() for name in offered}

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(modules[package], name, value)
        return value

    return load


class Later:
    """A module that is imported when a name of it is used."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by who copies or inspects it
            raise AttributeError(name)
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, name)
