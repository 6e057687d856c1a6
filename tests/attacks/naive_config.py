"""How one would first read a configuration. An attack must succeed against this."""

from __future__ import annotations

from typing import Any

import yaml


def read(text: str) -> Any:
    """Trust the safe loader."""
    return yaml.safe_load(text)
