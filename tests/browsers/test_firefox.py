"""The page in Debian's Firefox, driven by npm's puppeteer-core: `make test-browsers`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.server.support import Served
from tests.server.test_page_looks import served, token_of, views
from tests.source import ROOT
from tests.support import axe

__all__ = ["served", "views"]

pytestmark = [pytest.mark.browsers, pytest.mark.xdist_group("browsers"), pytest.mark.timeout(3_000)]

HERE = Path(__file__).parent
PICTURES = ROOT / "build/firefox"
LIGHT, DARK = ({"layout.css.prefers-color-scheme.content-override": number} for number in (1, 0))
MODES: dict[str, dict[str, Any]] = {
    "light": LIGHT,
    "dark": DARK,
    "forced": {**DARK, "browser.display.document_color_use": 2},
}
SIZES = {
    "1600": {"width": 1_600, "height": 900},
    "900": {"width": 900, "height": 900},
    "320": {"width": 320, "height": 700},
    "zoomed": {"width": 320, "height": 256, "deviceScaleFactor": 4},
}


def test_each_view_in_firefox(served: Served, views: dict[str, str]) -> None:
    firefox = shutil.which("firefox-esr")
    assert firefox is not None, "install Debian's firefox-esr"
    chats = [place for place in views if place.startswith("#/chat/")]
    thread = next(place for place in views if place.startswith("#/threads/")).rpartition("/")[2]
    asked = {
        "views": [*views.items()],
        "modes": MODES,
        "sizes": SIZES,
        "thread": thread,
        "approvals": next(p for p in chats if views[p] == "careful").rpartition("/")[2],
    }
    given = (HERE / "firefox.mjs", firefox, served.url, token_of(served), axe.FILE, PICTURES)
    done = subprocess.run(
        ["node", *map(str, given)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=2_900,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["keys"] == ["request", "fork", "3 approvals", "chat"]
    assert {name: found[name] for name in ("wide", "rules", "said", "foreign")} == {
        "wide": [],
        "rules": [],
        "said": [],
        "foreign": [],
    }
