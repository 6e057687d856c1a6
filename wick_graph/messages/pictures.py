"""Pictures in a message, in each of the forms in which clients write them."""

from __future__ import annotations

import binascii
from typing import Any, Final

PICTURES: Final = ("image_url", "image")
"""Types of blocks that are pictures."""


def picture_of(block: dict[str, Any]) -> tuple[str, str]:
    """Return a picture's media type and its data in base64; of an address, "" and the address.

    Forms: OpenAI's `image_url`, LangChain's `image` with `base64` or `url`, and Anthropic's with a
    `source`. What is none of these has the media type `none`.
    """
    source = block.get("source") if isinstance(block.get("source"), dict) else block
    assert isinstance(source, dict)
    url = source.get("url") or source.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    if isinstance(url, str):
        return _of_url(url)
    kind = source.get("media_type") or source.get("mime_type")
    data = source.get("data") or source.get("base64")
    if isinstance(kind, str) and isinstance(data, str):
        return kind, data
    return "none", ""


def _of_url(url: str) -> tuple[str, str]:
    if url.startswith(("https://", "http://")):
        return "", url
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:image/") and head.endswith(";base64"):
        return head.removeprefix("data:").removesuffix(";base64"), data
    return "none", ""


def picture_problem(block: dict[str, Any]) -> str | None:
    """Say why no provider reads a picture, or None."""
    kind, data = picture_of(block)
    if kind == "":
        return None
    if not kind.startswith("image/"):
        return "a picture is an http(s) address, or data:image/…;base64,…"
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except (binascii.Error, ValueError):
        return "a picture's data is no base64"
    return None if data else "a picture has no data"
