"""The page in Debian's chromium, over threads of 5,000 and 36,000 moments, and over a running one.

    python benchmarks/page.py [--rounds 5] [--sizes 5000 36000] [--small] [--json out.json]

Each figure is the median of the rounds, beside its goal and the load average. `interactive` is from
the start of loading the page to the first moment in its list; `step` is the 95th percentile of 60
keys, from the key to the row that is chosen then; `heap` is what is left after a collection.
`frame` is the longest time between two frames while a run of more than 200 moments a second is
followed. With `--small` one short thread shows that all of it works, and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from threading import Thread
from typing import Any, Final

import httpx
from playwright.sync_api import Browser, Page

from tests.server.support import Served, serving
from tests.support.browser import launched

AGENTS: Final = """\
store: sqlite:///wick.db
defaults: {ttl: never, tools: [calculate], max_iterations: 1000}
agents:
  default: {model: 'scripted:talk.yaml'}
"""

RUN: Final = 5_000
"""Moments of a run; a longer thread has several."""

TURN: Final = 18
"""Moments of a turn."""

GOALS: Final = {
    "interactive ms": (1_000, 2_000),
    "step p95 ms": (50, 50),
    "nodes": (3_000, 3_000),
    "heap MB": (150, 150),
    "first hit ms": (300, 300),
}
"""By figure: for the smaller and for the larger thread."""

FRAME: Final = 100
"""Milliseconds."""

_STEP: Final = """async () => {
  const grid = document.querySelector(".steps");
  const chosen = () => document.querySelector('.step[aria-selected="true"]')?.id;
  const took = [];
  for (let count = 0; count < 60; count++) {
    const before = chosen(), begun = performance.now();
    grid.dispatchEvent(new KeyboardEvent("keydown", { key: count % 2 ? "n" : "s", bubbles: true }));
    while (chosen() === before && performance.now() - begun < 5000) {
      await new Promise((done) => setTimeout(done));
    }
    took.push(performance.now() - begun);
  }
  return took.sort((a, b) => a - b)[56];
}"""

_SEARCH: Final = """async () => {
  const field = document.getElementById("q");
  field.value = "Step 3";
  const begun = performance.now();
  field.form.requestSubmit();
  while (!document.querySelector(".hits li")) await new Promise((done) => setTimeout(done));
  return performance.now() - begun;
}"""

_FRAMES: Final = """() => {
  window.longest = 0;
  let before = performance.now();
  const frame = (now) => {
    window.longest = Math.max(window.longest, now - before);
    before = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame((now) => ((before = now), frame(now)));
}"""


def asked(http: httpx.Client, **more: Any) -> str:
    """Run the agent, and return its thread."""
    body = {"messages": [{"role": "user", "content": "Add them all."}], **more}
    done = http.post("/agents/default/invoke", json=body, timeout=600)
    done.raise_for_status()
    return str(done.json()["thread_id"])


def made(http: httpx.Client, moments: int) -> tuple[str, int]:
    """Make a thread with so many moments; return it and their number."""
    thread = asked(http)
    while (last := recorded(http, thread)) < moments:
        asked(http, thread_id=thread)
    return thread, last


def recorded(http: httpx.Client, thread: str) -> int:
    """Return the number of a thread's moments."""
    page = http.get(f"/ui/api/v1/threads/{thread}/moments", params={"limit": 1})
    return int(page.json()["last"])


def once(browser: Browser, served: Served, thread: str) -> dict[str, float]:
    """Measure a thread in a browser without a cache."""
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    page = context.new_page()
    begun = time.perf_counter()
    page.goto(f"{served.url}/ui/#/threads/{thread}/1")
    page.wait_for_selector('.step.k-run[aria-selected="true"]')
    found = {"interactive ms": (time.perf_counter() - begun) * 1000}
    page.wait_for_timeout(500)
    found["step p95 ms"] = float(page.evaluate(_STEP))
    found["first hit ms"] = float(page.evaluate(_SEARCH))
    for tab in ("Request", "State", "Graph", "Lanes"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(300)
        nodes = page.evaluate("document.querySelectorAll('*').length")
        found["nodes"] = max(found.get("nodes", 0), float(nodes))
    found["heap MB"] = heap(page)
    context.close()
    return found


def heap(page: Page) -> float:
    """Return the megabytes of the page's objects."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("HeapProfiler.enable")
    devtools.send("HeapProfiler.collectGarbage")
    devtools.send("Performance.enable")
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "JSHeapUsedSize")) / 1e6


def followed(browser: Browser, served: Served, http: httpx.Client) -> dict[str, float]:
    """Follow a run; return the longest frame and the moments of a second."""
    thread = asked(http)
    before = recorded(http, thread)
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    page = context.new_page()
    work = Thread(target=asked, args=(http,), kwargs={"thread_id": thread})
    work.start()
    while recorded(http, thread) == before:
        time.sleep(0.02)
    page.goto(f"{served.url}/ui/#/threads/{thread}/1")
    page.wait_for_selector('.step.k-run[aria-selected="true"]')
    page.wait_for_timeout(300)
    page.evaluate(_FRAMES)
    begun, first = time.perf_counter(), recorded(http, thread)
    work.join(8)
    rate = (recorded(http, thread) - first) / (time.perf_counter() - begun)
    longest = float(page.evaluate("window.longest"))
    work.join()
    context.close()
    return {"frame ms": longest, "moments a second": rate}


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure."""
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5_000, 36_000])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds, sizes = (1, [60]) if options.small else (options.rounds, options.sizes)
    turns = 20 if options.small else RUN // TURN
    call = {"tool": "calculate", "args": {"expression": "1+1"}}
    steps = [*({"text": f"Step {n}", "calls": [call]} for n in range(turns)), "Done."]
    talk = json.dumps({"steps": steps * (10 if options.small else 12)})
    results: dict[str, dict[str, float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), agents=AGENTS, talk=talk) as served,
        served.http() as http,
        launched() as browser,
    ):
        for size in sizes:
            thread, last = made(http, size)
            found = medians([once(browser, served, thread) for _ in range(rounds)])
            results[f"{last} moments"] = found
            for name, value in found.items():
                say(f"{last:,} moments", name, value, GOALS[name][size > RUN])
        found = medians([followed(browser, served, http) for _ in range(rounds)])
        results["followed"] = found
        say(
            f"{found['moments a second']:.0f} moments a second",
            "frame ms",
            found["frame ms"],
            FRAME,
        )
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2), "utf-8")


def say(what: str, name: str, value: float, goal: float) -> None:
    """Print a figure beside its goal."""
    word = "met" if value <= goal else "missed"
    load = os.getloadavg()[0]
    print(f"{what:24} {name:16} {value:9.1f}  goal {goal:6,}  {word:7} load {load:.1f}", flush=True)


if __name__ == "__main__":
    main()
