"""`html`: one file that shows a recorded thread, read-only, from a disk, without a network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Final

from wick_graph.constants import TURNING
from wick_graph.exports.digest import digest_of
from wick_graph.exports.masked import Hider
from wick_graph.journal import Journal
from wick_graph.picture import Picture, as_svg
from wick_graph.picture.svg import STYLE

_SPELT: Final = {
    **{ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028"},
    **{code: f"\\\\u{code:04x}" for code in TURNING},
}
"""Signs that could end a script element, or a line of it: JSON has other spellings for them. What
turns the direction of reading is shown as its escape."""


def as_page(
    journal: Journal,
    hider: Hider,
    run: int | str | None = None,
    picture: Picture | None = None,
) -> str:
    """Return the page: its data, its script and its styles, and nothing to load.

    Raises:
        StorageError: The thread has no such run.
    """
    data = json.dumps(digest_of(journal, hider, run), ensure_ascii=False)
    data = data.translate(_SPELT)
    script, style = _asset("page.js"), _asset("page.css")
    title = html.escape(f"{journal.thread_id}, recorded")
    drawn = "" if picture is None else as_svg(picture, heading=False)
    graph = _GRAPH.format(drawn=drawn) if drawn else ""
    return _PAGE.format(
        policy=_policy(script, style),
        title=title,
        style=style,
        graph=graph,
        data=data,
        script=script,
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Forbid everything but what the page holds, by its digests."""
    styles = " ".join(_hash(text) for text in (style, f"\n{STYLE}"))
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {styles}; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_GRAPH: Final = (
    "<details><summary>Graph of the agent as it is now</summary><figure>{drawn}</figure></details>"
)
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p id="about"></p>
<p id="said" role="status" class="unseen"></p>
</header>
{graph}
<main>
<section aria-label="Moments" id="left">
<div id="tools">
<label>Search <input id="search" type="search" autocomplete="off"></label>
<label><input id="hooks" type="checkbox" checked> hooks</label>
<button id="error" type="button">Next error (e)</button>
<span id="count"></span>
</div>
<ol id="moments"></ol>
</section>
<section aria-label="The chosen moment" id="right">
<div role="tablist" aria-label="About the moment" id="tabs"></div>
<div id="panel" role="tabpanel" tabindex="0"></div>
</section>
</main>
<footer>Keys: <kbd>s</kbd> <kbd>S</kbd> next and previous moment, <kbd>n</kbd> <kbd>N</kbd> over,
<kbd>m</kbd> <kbd>M</kbd> node, <kbd>t</kbd> <kbd>T</kbd> model request, <kbd>e</kbd> <kbd>E</kbd>
error, <kbd>/</kbd> search. Nothing here runs anything.</footer>
<noscript><p>This page shows its data with a script that it holds itself; allow scripts for this
file.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
