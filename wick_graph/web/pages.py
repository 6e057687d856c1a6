"""Pages of the web as text."""

from __future__ import annotations

import html
import re
from typing import Final

import re2  # type: ignore[import-untyped]  # it has no stubs

from wick_graph.errors import ToolError
from wick_graph.web.client import Answer

_TEXTS: Final = re.compile(r"text/.*|application/(?:.*\+)?(?:json|xml)|")

_CHARSET: Final = re.compile(
    r"charset=[\"']?((?:utf|iso-8859|windows|koi8|big|gb|euc|shift)[-_]?\w+)", re.ASCII
)

# RE2: linear in the page, whatever its author does; an element without an end goes on to the last
_DROPPED: Final = re2.compile(
    "(?is)"
    + "|".join(
        rf"<{tag}\b.*?(?:</{tag}\b[^>]*>|\z)"
        for tag in ("script", "style", "template", "svg", "noscript", "iframe")
    )
    + r"|<!--.*?(?:-->|\z)"
)

_BREAK: Final = re2.compile(
    r"(?i)</?(?:p|div|br|hr|li|ul|ol|dl|dt|dd|tr|table|h[1-6]|pre|blockquote|title|section|article"
    r"|header|footer|main|nav|aside|figure|form|option)\b[^>]*>"
)

_CELL: Final = re2.compile(r"(?i)</t[dh]\b[^>]*>")

_TAG: Final = re2.compile(r"<[a-zA-Z/!?][^>]*>|&#x?[0-9a-fA-F]{9,}")  # Python refuses long numbers


def page_text(answer: Answer) -> str:
    """Return the text of a page.

    Raises:
        ToolError: It is no text.
    """
    kind = answer.headers.get("content-type", "").lower()
    name = kind.partition(";")[0].strip()
    if not _TEXTS.fullmatch(name):
        raise ToolError(f"the page is {name:.80}, which is no text; fetch another one")
    head = kind + answer.body[:1024].decode("latin-1").lower() if "html" in name else kind
    charset = _CHARSET.search(head)
    try:
        text = answer.body.decode(charset.group(1) if charset else "utf-8", "replace")
    except LookupError:
        text = answer.body.decode("utf-8", "replace")
    return (
        html_text(text) if "html" in name or text[:200].lstrip().startswith("<!") else text.strip()
    )


def html_text(page: str) -> str:
    """Return the text of HTML, a line for each block."""
    for pattern, by in ((_DROPPED, " "), (_CELL, " | "), (_BREAK, "\n"), (_TAG, "")):
        page = pattern.sub(by, page)
    lines = (" ".join(line.split()) for line in html.unescape(page).splitlines())
    return "\n".join(line for line in lines if line)
