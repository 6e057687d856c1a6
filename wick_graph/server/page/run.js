// One thread's recording: its moments in a list of which only the visible part exists, and the inspector.
import { html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { ask, lines, send, who } from "./api.js";
import { Inspector } from "./inspector.js";
import { follow } from "./stream.js";
import { counted, took } from "./values.js";

const PAGE = 200;
const ROW = 28; // pixels, as in page.css
const MORE = 8; // rows beyond the visible ones

/** @typedef {{seq: number, run: number, branch: number, step: number, depth: number, kind: string,
 *   phase: string, name: string, hook_phase: string | null, node: string | null, tool: string | null,
 *   status: string, is_left: boolean, duration_us: number | null, error: string | null}} Row */

/** The moments of one thread, fetched page by page as they are looked at. */
class Moments {
  /** @param {string} thread */
  constructor(thread) {
    this.thread = thread;
    /** @type {Map<number, Row>} */
    this.rows = new Map();
    /** @type {Set<number>} */
    this.asked = new Set();
    this.last = signal(0);
    this.changed = signal(0);
    this.failed = signal("");
  }

  /** Fetch the pages of some moments. @param {number} from @param {number} to */
  need(from, to) {
    for (let page = Math.floor((from - 1) / PAGE); page * PAGE < to; page++) {
      if (page < 0 || this.asked.has(page)) continue;
      this.asked.add(page);
      ask(`/threads/${this.thread}/moments`, { after: page * PAGE, limit: PAGE }).then(
        (found) => this.take(found.moments, found.last),
        (error) => (this.asked.delete(page), (this.failed.value = error.message)),
      );
    }
  }

  /** @param {Row[]} rows @param {number} last */
  take(rows, last) {
    for (const row of rows) this.rows.set(row.seq, row);
    this.last.value = Math.max(this.last.value, last);
    this.changed.value++;
  }
}

/** @param {Row} row */
function words(row) {
  if (row.kind === "gap") return row.error ?? "not readable";
  const mark = row.status !== "ok" && !row.is_left ? "✕" : BEGINS.has(row.phase) ? "→" : ENDS.has(row.phase) ? "←" : "·";
  const name = row.name === row.kind ? "" : row.name;
  return [mark, row.kind, row.hook_phase, name, PLAIN.has(row.phase) ? "" : row.phase, row.error].filter((part) => part).join(" ");
}
const BEGINS = new Set(["enter", "request", "call"]);
const ENDS = new Set(["exit", "response", "error"]);
const PLAIN = new Set(["enter", "exit", "taken"]);

/** @param {{moments: Moments, seq: number, go: (seq: number) => void}} props */
function Steps({ moments, seq, go }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 600 });
  const last = moments.last.value;
  moments.changed.value; // drawn again when a page comes
  const look = () => {
    const found = box.current;
    if (found) setView({ top: found.scrollTop, height: found.clientHeight });
  };
  useLayoutEffect(() => {
    look();
    const watch = new ResizeObserver(look);
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    const found = box.current;
    if (!found) return;
    const at = (seq - 1) * ROW;
    if (at < found.scrollTop) found.scrollTop = at;
    else if (at + ROW > found.scrollTop + found.clientHeight) found.scrollTop = at + ROW - found.clientHeight;
    look();
  }, [seq, last]);
  const first = Math.max(1, Math.floor(view.top / ROW) + 1 - MORE);
  const end = Math.min(last, Math.ceil((view.top + view.height) / ROW) + MORE);
  useEffect(() => moments.need(first, end), [first, end, last]);
  const rows = [];
  for (let at = first; at <= end; at++) rows.push(at);
  const keys = (/** @type {KeyboardEvent} */ event) => {
    const many = Math.max(1, Math.floor(view.height / ROW) - 1);
    const to = { ArrowDown: seq + 1, ArrowUp: seq - 1, PageDown: seq + many, PageUp: seq - many, Home: 1, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(to);
  };
  return html`<div class="steps" role="grid" aria-label="Moments" aria-rowcount=${last} tabindex="0"
    aria-activedescendant=${`m${seq}`} ref=${box} onScroll=${look} onKeyDown=${keys}>
    <div role="rowgroup" style=${{ height: `${last * ROW}px` }}>
      ${rows.map((at) => {
        const row = moments.rows.get(at);
        const kind = row ? `k-${row.kind}${row.status === "ok" || row.is_left ? "" : " bad"}` : "";
        return html`<div role="row" key=${at} id=${`m${at}`} aria-rowindex=${at} aria-selected=${at === seq}
          class=${`step ${kind}`} style=${{ top: `${(at - 1) * ROW}px` }} onClick=${() => go(at)}>
          <span role="gridcell" class="faint number">${at}</span>
          <span role="gridcell" class="faint number">${row?.step ? `@${row.step}` : ""}</span>
          <span role="gridcell" class="what" style=${{ paddingInlineStart: `${(row?.depth ?? 0) * 14}px` }}>
            ${row ? words(row) : "…"}
          </span>
          <span role="gridcell" class="faint number">${took(row?.duration_us ?? null)}</span>
        </div>`;
      })}
    </div>
  </div>`;
}

const VERBS = [
  ["step", "s", "Step"], ["next", "n", "Over"], ["finish", "f", "Out"], ["nextnode", "m", "Node"],
  ["turn", "t", "Turn"], ["next_error", "e", "Error"],
];
const BACK = /** @type {Record<string, string>} */ ({
  step: "reverse_step", next: "reverse_next", finish: "reverse_finish", nextnode: "prevnode",
  turn: "prevturn", next_error: "prev_error",
});

/** @param {{thread: string, go: (seq: number) => void}} props */
function Search({ thread, go }) {
  const [hits, setHits] = useState(/** @type {any[]} */ ([]));
  const [said, setSaid] = useState("");
  const stop = useRef(/** @type {AbortController | null} */ (null));
  const end = () => (stop.current?.abort(), (stop.current = null));
  useEffect(() => () => void end(), []);
  const begin = async (/** @type {any} */ event) => {
    event.preventDefault();
    end();
    setHits([]);
    const q = event.target.elements.q.value;
    if (!q) return setSaid("");
    const own = (stop.current = new AbortController());
    let count = 0;
    setSaid("searching …");
    try {
      await lines(`/threads/${thread}/search`, { q }, own.signal, (line) => {
        count++;
        if (count <= 200) setHits((known) => [...known, JSON.parse(line)]);
        if (count >= 200) own.abort();
      });
      setSaid(counted(count, "hit"));
    } catch (error) {
      if (own.signal.aborted) setSaid(count >= 200 ? "the first 200 hits" : "stopped");
      else setSaid(/** @type {Error} */ (error).message);
    }
    if (stop.current === own) stop.current = null;
  };
  return html`<form class="row-form" role="search" onSubmit=${begin}>
      <label for="q">Search</label><input id="q" name="q" type="search" autocomplete="off" />
      <button>Search</button>
      ${said === "searching …" && html`<button type="button" onClick=${end}>Stop</button>`}
      <span role="status" class="faint">${said}</span>
    </form>
    ${hits.length > 0 && html`<ul class="hits">
      ${hits.map((hit) => html`<li><button onClick=${() => go(hit.seq)}>${hit.line.trim()}</button></li>`)}
    </ul>`}`;
}

/** Breakpoints of a session over the recording; the session is opened with the first one.
 * @param {{thread: string, seq: number, go: (seq: number) => void, say: (text: string) => void}} props */
function Breakpoints({ thread, seq, go, say }) {
  const [held, setHeld] = useState(/** @type {any} */ (null));
  const name = useRef("");
  useEffect(() => () => void (name.current && send("DELETE", `/sessions/${name.current}`).catch(() => null)), []);
  const tried = (/** @type {() => Promise<any>} */ work) => work().catch((error) => {
    if (error.status === 404) (name.current = ""), setHeld(null);
    say(error.message);
  });
  const add = (/** @type {any} */ event) => {
    event.preventDefault();
    const spec = event.target.elements.spec.value;
    tried(async () => {
      if (!name.current) name.current = (await send("POST", `/threads/${thread}/sessions`)).session;
      setHeld(await send("POST", `/sessions/${name.current}/breakpoints`, { spec }));
    });
  };
  const drop = (/** @type {number} */ number) =>
    tried(async () => setHeld(await send("DELETE", `/sessions/${name.current}/breakpoints/${number}`)));
  const run = (/** @type {string} */ verb) =>
    tried(async () => {
      await send("POST", `/sessions/${name.current}/move`, { verb: "goto", to: `#${seq}` });
      const stop = await send("POST", `/sessions/${name.current}/move`, { verb });
      say(stop.text || stop.reason);
      if (stop.seq) go(stop.seq);
    });
  return html`<details class="breakpoints">
    <summary>Breakpoints${held?.breakpoints.length ? ` (${held.breakpoints.length})` : ""}</summary>
    <form class="row-form" onSubmit=${add}>
      <label for="spec">Breakpoint</label>
      <input id="spec" name="spec" required placeholder="break tool:* if error" autocomplete="off" />
      <button>Set</button>
    </form>
    ${held?.breakpoints.length > 0 && html`<ul>
        ${held.breakpoints.map((/** @type {any} */ one) => html`<li key=${one.number}>
          ${one.number} <code>${one.spec}</code> <button onClick=${() => drop(one.number)}>Delete</button>
        </li>`)}
      </ul>
      <button onClick=${() => run("reverse_cont")}>Back to the last stop</button>
      ${" "}<button onClick=${() => run("cont")}>Go to the next stop</button>`}
  </details>`;
}

/** @param {{thread: string, seq: number}} props */
export function Run({ thread: id, seq }) {
  const thread = encodeURIComponent(id);
  const moments = useMemo(() => new Moments(thread), [thread]);
  const [about, setAbout] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  const [said, setSaid] = useState("");
  const last = moments.last.value;
  const here = Math.min(Math.max(seq, 1), Math.max(last, 1));
  const go = (/** @type {number} */ to) => {
    const at = Math.min(Math.max(to, 1), moments.last.peek() || 1);
    history.replaceState(null, "", `#/threads/${thread}/${at}`);
    dispatchEvent(new HashChangeEvent("hashchange"));
  };
  const cursor = useRef(here);
  cursor.current = here;
  const moving = useRef(Promise.resolve()); // a second key waits until the first has moved
  const move = (/** @type {string} */ verb) => {
    moving.current = moving.current.then(async () => {
      try {
        const stop = await ask(`/threads/${thread}/moments/${cursor.current}/move`, { verb });
        setSaid(stop.text);
        if (stop.seq) go((cursor.current = stop.seq));
      } catch (failed) {
        setSaid(/** @type {Error} */ (failed).message);
      }
    });
  };
  useEffect(() => {
    const stop = new AbortController();
    ask(`/threads/${thread}`, undefined, stop.signal)
      .then(async (info) => {
        const recording = await ask(`/threads/${thread}/recording`, undefined, stop.signal);
        moments.last.value = recording.last;
        setAbout({ info, recording });
        moments.need(Math.max(1, seq - 20), Math.max(seq + 40, 60));
        const end = follow("moments", id, recording.last, (row) => moments.take([row], row.seq));
        stop.signal.addEventListener("abort", end);
      })
      .catch((failed) => stop.signal.aborted || setError(failed.message));
    return () => stop.abort();
  }, [thread]);
  const keys = (/** @type {any} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
    const verb = VERBS.find(([, key]) => key === event.key.toLowerCase());
    if (event.key === "/") document.getElementById("q")?.focus();
    else if (verb) move(event.key === verb[1] ? verb[0] : BACK[verb[0]]);
    else return;
    event.preventDefault();
  };
  if (error) return html`<main><p class="bad" role="alert">${error}</p><p><a href="#/">All threads</a></p></main>`;
  if (!about) return html`<main aria-busy="true"><p class="faint">Loading the recording …</p></main>`;
  moments.changed.value;
  const row = moments.rows.get(here);
  const runs = about.recording.runs;
  const run = runs.find((/** @type {any} */ one) => one.number === row?.run) ?? runs.at(-1);
  return html`<main class="run" onKeyDown=${keys}>
    <div class="head">
      <h1>${about.info.title || id}</h1>
      <p class="faint">
        ${[about.info.agent, run && `run ${run.number} of ${runs.length} with ${run.model}, ${run.stopped_because ?? run.status}`,
          counted(last, "moment"), row?.branch ? `branch ${row.branch}` : ""].filter((part) => part).join(" · ")}
      </p>
      ${about.recording.notes.map((/** @type {string} */ note) => html`<p class="note">${note}</p>`)}
      ${moments.failed.value && html`<p class="bad" role="alert">${moments.failed.value}</p>`}
    </div>
    <section class="left" aria-label="Steps">
      <div class="verbs" role="group" aria-label="Move; this runs nothing">
        ${VERBS.map(([verb, key, word]) => html`<span class="pair">
          <button title=${`Back: ${word.toLowerCase()} (${key.toUpperCase()})`} aria-label=${`Back: ${word.toLowerCase()}`}
            onClick=${() => move(BACK[verb])}>◀</button>
          <button title=${`${word} (${key})`} onClick=${() => move(verb)}>${word} ▶</button>
        </span>`)}
      </div>
      <${Search} thread=${thread} go=${go} />
      ${who.value?.scopes.includes("debug") && html`<${Breakpoints} thread=${thread} seq=${here} go=${go} say=${setSaid} />`}
      <p role="status" class="said">${said}</p>
      ${last ? html`<${Steps} moments=${moments} seq=${here} go=${go} />` : html`<p>Nothing is recorded in this thread.</p>`}
    </section>
    ${last > 0 && html`<${Inspector} thread=${thread} seq=${here} go=${go} node=${row?.node ?? null} />`}
  </main>`;
}
