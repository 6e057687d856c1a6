"""numpy's arrays and scalars as data: numpy is not needed until one is read."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

from wick_graph.store.values.allow import StoredObject

NAME: Final = "numpy:ndarray"
"""Of the `StoredObject` that stands for an array where there is no numpy."""


def parts(value: Any) -> list[Any] | None:
    """Take an array or a scalar of numpy apart: type, shape (None of a scalar), bytes.

    None for anything else, and for arrays of Python objects or of records.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
        return None
    if value.dtype.hasobject or value.dtype.names is not None:
        return None
    shape = list(value.shape) if type(value) is numpy.ndarray else None
    return [value.dtype.str, shape, value.tobytes()]


def read(data: list[Any]) -> Any:
    """Rebuild an array or scalar; without numpy it is a `StoredObject`."""
    kind, shape, body = data
    try:
        numpy: Any = importlib.import_module("numpy")
    except ImportError:
        return StoredObject(NAME, data)
    flat = numpy.frombuffer(body, dtype=numpy.dtype(kind))
    return flat[0] if shape is None else flat.reshape(shape).copy()
