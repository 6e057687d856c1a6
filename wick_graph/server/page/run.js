// One thread's recording: its moments in a list of which only the visible part exists, and the inspector.
import { html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { ask, can, goTo, isAt, isFile, lines, save, threadPath } from "./api.js";
import { Inspector } from "./inspector.js";
import { close, Debugger, open, resume, running, said, say, session } from "./session.js";
import { follow } from "./stream.js";
import { counted, took } from "./values.js";

const PAGE = 200;
const ROW = 28; // pixels, as in page.css
const MORE = 8; // rows beyond the visible ones

/** @typedef {{seq: number, run: number, branch: number, step: number, depth: number, kind: string,
 *   phase: string, name: string, hook_phase: string | null, node: string | null, tool: string | null,
 *   status: string, is_left: boolean, duration_us: number | null, error: string | null}} Row */

/** The moments of one thread, fetched page by page as they are looked at; or those of one node. */
export class Moments {
  /** @param {string} thread */
  constructor(thread) {
    this.thread = thread;
    /** @type {Map<number, Row>} */
    this.rows = new Map();
    /** @type {Set<number>} */
    this.asked = new Set();
    this.last = signal(0);
    /** The moments before the first one, which a file may leave out. */
    this.before = 0;
    this.changed = signal(0);
    this.failed = signal("");
    /** The node of the filter. */
    this.only = signal("");
    /** @type {number[]} */
    this.found = [];
    this.isWhole = false;
  }

  get count() {
    return this.only.value ? this.found.length : this.last.value - this.before;
  }

  /** The number of a moment in the list, from 0. @param {number} at @returns {number} */
  seq(at) {
    return this.only.value ? this.found[at] : at + 1 + this.before;
  }

  /** The place of a moment in the list, or of the next one. @param {number} seq */
  place(seq) {
    if (!this.only.value) return seq - 1 - this.before;
    const at = this.found.findIndex((one) => one >= seq);
    return at < 0 ? this.found.length - 1 : at;
  }

  /** Show one node alone, or all. @param {string} node */
  filter(node) {
    this.only.value = node;
    this.found = [];
    this.isWhole = false;
    if (node) this.more();
    this.changed.value++;
  }

  async more() {
    const node = this.only.value;
    if (this.isWhole) return;
    this.isWhole = true; // until there is an answer
    const query = { after: this.found.at(-1) ?? 0, limit: PAGE, node };
    const got = await ask(`/threads/${this.thread}/moments`, query);
    if (node !== this.only.value) return;
    this.isWhole = got.moments.length < PAGE;
    this.found = [...this.found, ...got.moments.map((/** @type {Row} */ row) => row.seq)];
    this.take(got.moments, got.last);
  }

  /** Fetch the pages of some moments, by places in the list. @param {number} from @param {number} to */
  need(from, to) {
    if (this.only.value) {
      if (to >= this.found.length) this.more();
      return;
    }
    for (let page = Math.floor((from - 1 + this.before) / PAGE); page * PAGE < to + this.before; page++) {
      if (page < 0 || this.asked.has(page)) continue;
      this.asked.add(page);
      ask(`/threads/${this.thread}/moments`, { after: page * PAGE, limit: PAGE }).then(
        (found) => this.take(found.moments, found.last),
        (error) => (this.asked.delete(page), (this.failed.value = error.message)),
      );
    }
  }

  /** Fetch what has been recorded since. */
  async grow() {
    for (;;) {
      const got = await ask(`/threads/${this.thread}/moments`, { after: this.last.peek(), limit: 500 });
      this.take(got.moments, got.last);
      if (got.moments.length < 500) return;
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
  const last = moments.count;
  const place = moments.place(seq);
  moments.changed.value; // drawn again when a page comes
  const look = () => {
    const found = box.current;
    if (found) setView({ top: found.scrollTop, height: found.clientHeight });
  };
  const there = useRef(place);
  there.current = place;
  const reveal = () => {
    const found = box.current;
    if (!found) return;
    const at = there.current * ROW;
    if (at < found.scrollTop) found.scrollTop = at;
    else if (at + ROW > found.scrollTop + found.clientHeight) found.scrollTop = at + ROW - found.clientHeight;
    look();
  };
  useLayoutEffect(() => {
    const watch = new ResizeObserver(reveal);
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(reveal, [place, last]);
  const first = Math.max(1, Math.floor(view.top / ROW) + 1 - MORE);
  const end = Math.min(last, Math.ceil((view.top + view.height) / ROW) + MORE);
  useEffect(() => moments.need(first, end), [first, end, last, moments.only.value]);
  useEffect(() => box.current?.focus({ preventScroll: true }), []); // the keys work at once
  const rows = [];
  for (let at = first; at <= end; at++) rows.push(at);
  const keys = (/** @type {KeyboardEvent} */ event) => {
    const many = Math.max(1, Math.floor(view.height / ROW) - 1);
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, PageDown: place + many, PageUp: place - many, Home: 0, End: last - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(moments.seq(Math.min(Math.max(to, 0), last - 1)));
  };
  return html`<div class="steps" role="grid" aria-label="Moments" aria-rowcount=${last} tabindex="0"
    aria-activedescendant=${`m${seq}`} ref=${box} onScroll=${look} onKeyDown=${keys}>
    <div role="rowgroup" style=${{ height: `${last * ROW}px` }}>
      ${rows.map((index) => {
        const at = moments.seq(index - 1);
        const row = moments.rows.get(at);
        const kind = row ? `k-${row.kind}${row.status === "ok" || row.is_left ? "" : " bad"}` : "";
        return html`<div role="row" key=${at} id=${`m${at}`} aria-rowindex=${index} aria-selected=${at === seq}
          class=${`step ${kind}`} style=${{ top: `${(index - 1) * ROW}px` }} onClick=${() => go(at)}>
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
  ["turn", "t", "Turn"], ["next_error", "e", "Error"], ["cont", "c", "Continue"],
];
const BACK = /** @type {Record<string, string>} */ ({
  step: "reverse_step", next: "reverse_next", finish: "reverse_finish", nextnode: "prevnode",
  turn: "prevturn", next_error: "prev_error", cont: "reverse_cont",
});
/** Commands that are not a verb's name. */
const LINES = /** @type {Record<string, string>} */ ({
  cont: "continue", reverse_cont: "reverse-continue", next_error: "error next", prev_error: "error prev",
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

/** Errors, questions and forks of the run, and a slider over all of it.
 * @param {{thread: string, moments: Moments, seq: number, go: (seq: number) => void}} props */
function Strip({ thread, moments, seq, go }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const last = moments.last.value;
  useEffect(() => {
    const stop = new AbortController();
    const later = setTimeout(() => ask(`/threads/${thread}/overview`, undefined, stop.signal).then(setFound, () => null), found ? 1000 : 0);
    return () => (clearTimeout(later), stop.abort());
  }, [thread, last]);
  const first = moments.before + 1;
  const at = (/** @type {number} */ one) => ((one - first) / Math.max(1, last - first)) * 1000;
  const marks = (/** @type {number[]} */ ones, /** @type {number} */ from, /** @type {number} */ to) =>
    ones.map((one) => `M${at(one).toFixed(1)} ${from}V${to}`).join("");
  return html`<div class="strip">
    <svg viewBox="0 0 1000 24" preserveAspectRatio="none" aria-hidden="true">
      ${found && html`<path class="begun" d=${marks(found.runs, 0, 24)} /><path class="asked" d=${marks(found.interrupts, 6, 18)} />
        <path class="forked" d=${marks(found.forks, 0, 10)} /><path class="failed" d=${marks(found.errors, 10, 24)} />`}
    </svg>
    <input type="range" min=${first} max=${last} value=${seq} aria-label="Moment" aria-valuetext=${`Moment ${seq} of ${last}`}
      onInput=${(/** @type {any} */ event) => go(Number(event.target.value))} />
    ${found && html`<p class="sr">
      ${[[found.runs, "│", "run"], [found.errors, "✕", "error"], [found.interrupts, "◆", "question"], [found.forks, "↳", "fork"]]
        .filter(([ones]) => ones.length).map(([ones, mark, word]) => `${mark} ${counted(ones.length, word)}`).join("   ")}
    </p>`}
  </div>`;
}

/** Choose another run of the thread, and compare it with this one.
 * @param {{thread: string, runs: any[], run: any, go: (seq: number) => void}} props */
function Runs({ thread, runs, run, go }) {
  if (runs.length < 2) return null;
  const others = runs.filter((one) => one !== run);
  return html`<label>Run <select value=${run?.number} onChange=${(/** @type {any} */ event) =>
      go(runs.find((one) => one.number === Number(event.target.value)).first)}>
      ${runs.map((one) => html`<option value=${one.number}>${one.number}${one.branch ? `, branch ${one.branch}` : ""}: ${one.stopped_because ?? one.status}</option>`)}
    </select></label>
    ${!isFile && html`<a href=${`#/compare/${thread}/${run?.number}/${thread}/${others.at(-1).number}`}>Compare it</a>`}`;
}

const KEYS = [
  ["s n f m t e", "step, over, out, node, turn, error; with Shift back"], ["c C", "to the next stop, and back to the one before"],
  ["b", "breakpoint at this moment"], ["k r", "prepare a fork from here, with a list of what it would run"], ["p", "pause a run"],
  ["y", "why: the first change"], ["d", "differences up to another moment"], ["x", "compare with another run"], [".", "the last moment"], ["1 … 9", "a tab of the inspector"],
  ["/", "search"], [":", "a command of the debugger"], ["?", "these keys"],
];

/** Keys that press, or focus, what is on the page. */
const THERE = { d: "#to", x: ".head a[href*=compare]" };

/** Ask why the first change is there, once what is shown is of the moment that was gone to. */
async function why() {
  for (let frame = 0; frame < 2 || (frame < 300 && document.querySelector(".inspector [aria-busy=true]")); frame++) await new Promise(requestAnimationFrame);
  document.querySelector(/** @type {HTMLElement | any} */ (".change [aria-expanded]"))?.click();
}

/** @param {Row | undefined} row @returns {string} */
function stopAt(row) {
  if (row?.tool) return `break tool:${row.tool}`;
  if (row?.kind === "hook") return `break hook:${row.name}${row.hook_phase ? `.${row.hook_phase}` : ""}`;
  if (row?.kind === "model") return "break model:request";
  return row?.node ? `break ${row.node}` : "break run";
}

/** @param {{thread: string, seq: number}} props */
export function Run({ thread: id, seq }) {
  const thread = encodeURIComponent(id);
  const moments = useMemo(() => new Moments(thread), [thread]);
  const [about, setAbout] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  const [isOpen, setOpen] = useState(session.peek() !== null);
  const [help, setHelp] = useState(false);
  const last = moments.last.value;
  const here = Math.min(Math.max(seq, moments.before + 1), Math.max(last, 1));
  const show = (/** @type {string} */ where, /** @type {number} */ at) => {
    if (isAt("threads", id)) goTo(`#${threadPath(where)}`, at);
  };
  const go = (/** @type {number} */ to) => show(id, Math.min(Math.max(to, moments.before + 1), moments.last.peek() || 1));
  const cursor = useRef(here);
  cursor.current = here;
  const queue = useRef(Promise.resolve()); // a second key waits until the first has moved
  const after = (/** @type {() => Promise<any>} */ work) => {
    queue.current = queue.current.then(work).catch((failed) => void (said.value = failed.message));
  };
  const does = (/** @type {string} */ line) => {
    if (running.peek()) return void say(line);
    after(async () => {
      if (!session.peek()) {
        await open({ thread: id });
        if (!isAt("threads", id)) return close();
      }
      const reply = await say(line, cursor.current);
      const now = reply?.session;
      if (!now) return;
      if (now.thread_id !== id) return show(now.thread_id, now.seq ?? 1);
      await moments.grow();
      if (now.seq && now.seq !== cursor.current && now.mode !== "REPLAY") go((cursor.current = now.seq));
    });
  };
  const move = (/** @type {string} */ verb) => {
    if (session.peek()) return does(LINES[verb] ?? verb.replace("_", "-"));
    after(async () => {
      const stop = await ask(`/threads/${thread}/moments/${cursor.current}/move`, { verb });
      said.value = stop.text;
      if (stop.seq) go((cursor.current = stop.seq));
    });
  };
  useEffect(() => {
    const stop = new AbortController();
    if (!session.peek()) said.value = "";
    if (can("debug")) resume(id).then((found) => found && setOpen(true));
    moments.need(Math.max(1, seq - 20), Math.max(seq + 40, 60));
    Promise.all(["", "/recording"].map((what) => ask(`/threads/${thread}${what}`, undefined, stop.signal)))
      .then(async ([info, recording]) => {
        moments.before = (recording.first ?? 1) - 1;
        moments.last.value = recording.last;
        setAbout({ info, recording });
        if (info.status === "running") moments.asked.clear(); // a page may have come before the last moments
        const end = follow("moments", id, recording.last, (row) => moments.take([row], row.seq));
        stop.signal.addEventListener("abort", end);
      })
      .catch((failed) => stop.signal.aborted || setError(failed.message));
    return () => {
      stop.abort();
      setTimeout(() => session.peek() && !isAt("threads", session.peek()?.thread_id) && close());
    };
  }, [thread]);
  moments.changed.value;
  const row = moments.rows.get(here);
  const keys = (/** @type {any} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=range]), textarea, select")) return;
    const verb = VERBS.find(([, key]) => key === event.key.toLowerCase());
    const tab = document.querySelectorAll(".inspector [role=tab]")[Number(event.key) - 1];
    if (event.key === "/") document.getElementById("q")?.focus();
    else if (event.key === "?") setHelp(!help);
    else if (event.key === ".") go(last);
    else if (event.key in THERE) document.querySelector(/** @type {HTMLElement | any} */ (THERE)[event.key])?.[event.key === "d" ? "focus" : "click"]();
    else if (event.key === "y") after(why);
    else if (event.key === "p") running.peek() && does("pause");
    else if (tab instanceof HTMLElement) tab.click();
    else if (verb) move(event.key === verb[1] ? verb[0] : BACK[verb[0]]);
    else if (!can("debug")) return;
    else if (event.key === "b") setOpen(true), does(stopAt(row));
    else if (event.key === "k" || event.key === "r") setOpen(true), does("fork");
    else if (event.key === ":") setOpen(true), setTimeout(() => document.getElementById("line")?.focus());
    else return;
    event.preventDefault();
  };
  if (error) return html`<main><p class="bad" role="alert">${error}</p><p><a href="#/">All threads</a></p></main>`;
  if (!about) return html`<main aria-busy="true"><p class="faint">Loading the recording …</p></main>`;
  const runs = about.recording.runs;
  const run = runs.find((/** @type {any} */ one) => one.number === row?.run) ?? runs.at(-1);
  const executes = session.value?.executes ?? false;
  const props = { thread, seq: here, go, row, moments, node: row?.node ?? null, does: can("debug") ? does : null };
  return html`<main class=${isOpen ? "run with-debugger" : "run"} onKeyDown=${keys}>
    <div class="head">
      <h1>${about.info.title || id}</h1>
      <p class="faint line">
        ${[about.info.agent, run && `run ${run.number} of ${runs.length} with ${run.model}, ${run.stopped_because ?? run.status}`,
          counted(last, "moment"), row?.branch ? `branch ${row.branch}` : "", session.value?.mode].filter((part) => part).join(" · ")}
        <${Runs} thread=${thread} runs=${runs} run=${run} go=${go} />
        ${about.info.agent && html`<a href=${`#/chat/${thread}`}>Chat</a>`}
        ${!isFile && last > 0 && html`<button class="quiet" title="One file that shows this recording offline; secrets are hidden"
          onClick=${() => save(`/threads/${thread}/export`, `${id}.html`).catch((failed) => void (said.value = failed.message))}>Export</button>`}
        ${(about.info.above || about.info.parent) && html`<a href=${about.info.above ?? `#${threadPath(about.info.parent)}`}>The run that made this thread</a>`}
      </p>
      ${about.recording.notes.map((/** @type {string} */ note) => html`<p class="note">${note}</p>`)}
      ${moments.failed.value && html`<p class="bad" role="alert">${moments.failed.value}</p>`}
      ${last > 1 && html`<${Strip} thread=${thread} moments=${moments} seq=${here} go=${go} />`}
    </div>
    <section class="left" aria-label="Steps">
      <div class="verbs" role="group" aria-label=${executes ? "Move; forwards runs the agent" : "Move; this runs nothing"}>
        ${VERBS.map(([verb, key, word]) => html`<span class="pair">
          <button title=${`Back: ${word.toLowerCase()} (${key.toUpperCase()})`} aria-label=${`Back: ${word.toLowerCase()}`}
            onClick=${() => move(BACK[verb])}>◀</button>
          <button class=${executes && verb !== "next_error" ? "runs" : ""} disabled=${running.value} title=${`${word} (${key})`} onClick=${() => move(verb)}>
            ${executes && verb !== "next_error" ? `Run: ${word.toLowerCase()}` : word} ▶</button>
        </span>`)}
        ${can("debug") && html`<button aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Debugger</button>`}
        <button aria-expanded=${help} aria-label="Keys" onClick=${() => setHelp(!help)}>?</button>
      </div>
      ${help && html`<dl class="keys">${KEYS.map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>`}
      <${Search} thread=${thread} go=${go} />
      ${moments.only.value && html`<p class="line row-form">Only <b>${moments.only.value}</b>
        <button onClick=${() => moments.filter("")}>Show all</button></p>`}
      <p role="status" class="said">${said.value}</p>
      ${last ? html`<${Steps} moments=${moments} seq=${here} go=${go} />` : html`<p class="row-form">Nothing is recorded in this thread.</p>`}
    </section>
    ${last > 0 && html`<${Inspector} ...${props} />`}
    ${isOpen && html`<${Debugger} does=${does} />`}
  </main>`;
}
