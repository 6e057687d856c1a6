// A session of the debugger: one per page; its commands are those of the terminal.
import { html, signal, useEffect, useRef, useState } from "./vendor/preact.js";
import { ask, can, isAt, send, threadPath } from "./api.js";
import { counted } from "./values.js";

const ALIVE = 20_000; // milliseconds between two signs of life; the server waits for 60 s
const KEY = "wick-session";
const KEPT = 500; // lines of the console

/** @typedef {{session: string, thread_id: string, seq: number | null, mode: string, held: boolean,
 *   executes: boolean, executed: number[], breakpoints: {number: number, spec: string, hits: number}[]}} About */

/** What is open: null for nothing.
 * @type {import("./vendor/preact.js").Signal<About | null>} */
export const session = signal(/** @type {About | null} */ (null));
/** Whether a command goes on. */
export const running = signal(false);
/** The last stop or refusal, for the one place that says it. */
export const said = signal("");
const log = signal(/** @type {{kind: string, text: string}[]} */ ([]));
const plan = signal(/** @type {any[]} */ ([]));
let alive = 0;

/** @param {string} kind @param {string[]} lines */
const put = (kind, lines) => {
  if (lines.length) log.value = [...log.value, ...lines.map((text) => ({ kind, text }))].slice(-KEPT);
};

/** @param {About | null} about */
function hold(about) {
  clearInterval(alive);
  if (about?.session !== session.peek()?.session) running.value = false;
  session.value = about;
  if (about) sessionStorage.setItem(KEY, about.session);
  else sessionStorage.removeItem(KEY);
  if (about) alive = setInterval(() => running.value || ask(`/sessions/${about.session}`).catch(lost), ALIVE);
}

/** @param {any} error */
function lost(error) {
  if (error.status === 404 || error.status === 401) hold(null);
  said.value = error.message;
  put("bad", [error.message]);
}

/** Open a session over a thread, or over a new one of an agent.
 * @param {{thread?: string, agent?: string}} of */
export async function open({ thread, agent }) {
  const about = thread
    ? await send("POST", `${threadPath(thread)}/sessions`)
    : await send("POST", "/sessions", { agent });
  hold(about);
}

/** Take up the session that this tab had before a reload. @param {string} thread */
export async function resume(thread) {
  const name = sessionStorage.getItem(KEY);
  if (!name || session.peek()) return session.peek();
  const found = await ask(`/sessions/${name}`).catch(() => null);
  hold(found?.session.thread_id === thread ? found.session : null);
  return session.peek();
}

export async function close() {
  const name = session.value?.session;
  hold(null);
  plan.value = [];
  if (name) await send("DELETE", `/sessions/${name}`).catch(() => null);
}

/** Give a command; the reply to one that goes on is asked for until it ends. While one goes on, only
 * `pause` and `abort` are taken, and the first one's reply has the stop.
 * @param {string} line @param {number} [at] @returns {Promise<any>} */
export async function say(line, at) {
  const about = session.peek();
  if (!about) return null;
  const path = `/sessions/${about.session}`;
  const isOpen = () => session.peek()?.session === about.session;
  put("in", [line]);
  try {
    let reply = await send("POST", path, { line, ...(at ? { at } : {}) });
    if (running.peek() || !isOpen()) return null; // it was for the command that goes on, or is of no use
    running.value = reply.running;
    while (reply.running && isOpen()) {
      session.value = reply.session;
      said.value = `The agent runs: ${reply.session.mode}`;
      put("", reply.lines);
      reply = await ask(path);
    }
    if (!isOpen()) return null; // it was closed meanwhile; another may be open
    running.value = false;
    session.value = reply.session;
    plan.value = reply.plan;
    put("", reply.lines);
    put("bad", reply.error ? [reply.error] : []);
    const stop = reply.stop;
    said.value = reply.error || (stop ? `Stopped: ${stop.text || stop.reason}, moment ${stop.seq ?? 0}` : said.peek());
    return reply;
  } catch (error) {
    if (isOpen()) {
      running.value = false;
      lost(error);
    }
    return null;
  }
}

/** What a fork would execute, and how each answer is made.
 * @param {{tell: (line: string) => void}} props */
function Plan({ tell }) {
  const rows = plan.value;
  if (!rows.length) return null;
  const live = rows.filter((row) => row.policy === "live" && row.kind !== "node");
  const asked = rows.filter((row) => !row.edited && (row.kind === "tool" || row.kind === "model"));
  const calls = new Map(asked.map((row) => [row.kind === "model" ? "model" : row.name, row.policy]));
  const effects = new Set(rows.filter((row) => row.side_effects).map((row) => row.name));
  return html`<h3>This would execute</h3>
    <table class="policies"><tbody>${[...calls].map(([name, policy]) => html`<tr key=${name}>
      <th scope="row">${name}${effects.has(name) && html` <span class="bad">has side effects</span>`}</th>
      <td><select aria-label=${`Answers of ${name}`} value=${policy}
        onChange=${(/** @type {any} */ event) => tell(`policy ${name} ${event.target.value}`)}>
        <option value="recorded">from the recording</option><option value="live">really</option><option value="ask">ask me</option>
      </select></td></tr>`)}</tbody></table>
    <p class="faint">The recorded thread stays as it is: the fork is a copy.</p>
    <button class="runs" disabled=${!can("run")} onClick=${() => tell("live")}>
      Run the fork: ${counted(rows.filter((row) => row.kind === "node").length, "node")}, ${counted(live.length, "real call")}
    </button>
    <button onClick=${() => (plan.value = [])}>Not now</button>
    <ol class="plan">${rows.slice(0, 100).map((row) => html`<li class=${row.side_effects && row.policy === "live" ? "bad" : ""}>${row.text}</li>`)}</ol>
    ${rows.length > 100 && html`<p class="faint">and ${rows.length - 100} more</p>`}`;
}

/** @param {{does: (line: string) => void, held: boolean}} props */
function Execute({ does, held }) {
  const [text, setText] = useState("");
  const [path, setPath] = useState("");
  const [value, setValue] = useState("");
  const busy = running.value;
  const may = can("run") && !busy;
  const form = (/** @type {string} */ line) => (/** @type {Event} */ event) => (event.preventDefault(), does(line));
  if (busy) {
    return html`<p aria-busy="true">The agent runs.</p>
      <button onClick=${() => does("pause")}>Pause at the next moment</button>
      <button onClick=${() => does("abort")}>End the run</button>`;
  }
  return html`${held
      ? html`<button class="runs" disabled=${!may} onClick=${() => does("continue")}>Run to the next stop</button>
          <button class="runs" disabled=${!may} onClick=${() => does("detach continue")}>Let the run go on alone</button>
          <button disabled=${!may} onClick=${() => does("skip")}>Skip this call</button>
          <button onClick=${() => does("detach keep")}>Keep it for later</button>
          <button onClick=${() => does("abort")}>End the run</button>`
      : html`<form class="row-form" onSubmit=${form(`run ${/^["']/.test(text) ? JSON.stringify(text) : text}`)}>
          <label for="input">Message</label>
          <input id="input" value=${text} required autocomplete="off" onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
          <button class="runs" disabled=${!may}>Run, held at its first moment</button>
        </form>
        <button disabled=${!may} onClick=${() => does("hold")}>Hold the next run that others start</button>
        <button disabled=${!may} onClick=${() => does("live")} class="runs">Run on from the end</button>
        <button disabled=${!may} onClick=${() => does("replay")} class="runs">Run the code again on recorded answers</button>
        <button onClick=${() => does("fork")}>Prepare a fork from here (k)</button>`}
    <form class="row-form" onSubmit=${form(`set ${path} = ${value}`)}>
      <label for="edited">Change</label>
      <input id="edited" value=${path} required autocomplete="off" placeholder=${held ? "args.expression" : "messages[-1].content"}
        onInput=${(/** @type {any} */ event) => setPath(event.target.value)} />
      <label for="value">to</label>
      <input id="value" value=${value} required autocomplete="off" placeholder="JSON" onInput=${(/** @type {any} */ event) => setValue(event.target.value)} />
      <button>${held ? "Change what is held" : "Prepare a fork with it"}</button>
    </form>`;
}

/** @param {{does: (line: string) => void}} props */
function Console({ does }) {
  const end = useRef(/** @type {HTMLElement | null} */ (null));
  const past = useRef({ lines: /** @type {string[]} */ ([]), at: 0 });
  const lines = log.value;
  useEffect(() => void (end.current && (end.current.scrollTop = end.current.scrollHeight)), [lines]);
  const enter = (/** @type {any} */ event) => {
    event.preventDefault();
    const field = event.target.elements.line;
    if (!field.value.trim()) return;
    past.current.lines.push(field.value);
    past.current.at = past.current.lines.length;
    does(field.value);
    field.value = "";
  };
  const keys = (/** @type {any} */ event) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[/** @type {"ArrowUp"} */ (event.key)];
    if (!by) return;
    event.preventDefault();
    const held = past.current;
    held.at = Math.min(Math.max(held.at + by, 0), held.lines.length);
    event.target.value = held.lines[held.at] ?? "";
  };
  return html`<div class="console" ref=${end} tabindex="0" role="log" aria-live="off" aria-label="Console">
      ${lines.map((one) => html`<pre class=${one.kind}>${one.text}</pre>`)}
    </div>
    <form class="row-form" onSubmit=${enter}>
      <label for="line">Command</label>
      <input id="line" name="line" autocomplete="off" spellcheck=${false} placeholder="help" onKeyDown=${keys} />
      <button>Do</button>
    </form>`;
}

/** Begin a run in a new thread, held at its first moment. */
export function NewRun() {
  const [agents, setAgents] = useState(/** @type {string[] | null} */ (null));
  const [error, setError] = useState("");
  useEffect(() => void ask("/sessions").then(setAgents, (failed) => setError(failed.message)), []);
  const begin = async (/** @type {any} */ event) => {
    event.preventDefault();
    const { agent, text } = event.target.elements;
    try {
      await close();
      await open({ agent: agent.value });
      const opened = session.peek()?.session;
      const reply = await say(`run ${text.value}`);
      if (!isAt("new")) return void (session.peek()?.session === opened && (await close())); // the reader has left
      if (reply?.stop) location.hash = `#${threadPath(reply.session.thread_id)}/${reply.session.seq ?? 1}`;
      else setError(reply?.error ?? said.peek());
    } catch (failed) {
      setError(/** @type {Error} */ (failed).message);
    }
  };
  return html`<main class="wide"><h1>A new run, held at its first moment</h1>
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    ${agents && html`<form class="row-form" onSubmit=${begin}>
      <label for="agent">Agent</label><select id="agent">${agents.map((name) => html`<option>${name}</option>`)}</select>
      <label for="text">Message</label><input id="text" required autocomplete="off" placeholder="a message; for a graph, its input as JSON" />
      <button class="runs" disabled=${running.value || !can("run")}>Run, held</button></form>`}
  </main>`;
}

/** The debugger below a run. `does` gives a command at the cursor, and opens a session if there is none.
 * @param {{does: (line: string) => void}} props */
export function Debugger({ does }) {
  const about = session.value;
  const add = (/** @type {any} */ event) => {
    event.preventDefault();
    does(`${event.target.elements.kind.value} ${event.target.elements.spec.value}`);
  };
  return html`<section class="debugger" aria-label="Debugger">
    <section aria-label="Stops">
      <h2>Breakpoints and watches</h2>
      <form class="row-form" onSubmit=${add}>
        <select name="kind" aria-label="Kind of stop"><option>break</option><option>watch</option><option>catch</option><option>log</option></select>
        <label for="spec" class="sr">Breakpoint</label>
        <input id="spec" name="spec" required placeholder="tool:* if error" autocomplete="off" />
        <button>Set</button>
      </form>
      ${about && about.breakpoints.length > 0 && html`<ul>${about.breakpoints.map((one) => html`<li key=${one.number}>
        <code>${one.spec}</code> <span class="faint">${counted(one.hits, "hit")}</span>
        <button aria-label=${`Delete breakpoint ${one.number}`} onClick=${() => does(`delete ${one.number}`)}>Delete</button></li>`)}</ul>`}
    </section>
    <section aria-label="Run">
      <h2>${about ? about.mode : "Run"}</h2>
      ${!plan.value.length && html`<${Execute} does=${does} held=${about?.held ?? false} />`}
      <${Plan} tell=${async (/** @type {string} */ line) => {
        does(line);
        if (line !== "live") does("fork");
      }} />
      ${about && about.executed.some((count) => count > 0) &&
        html`<p>Really called: ${counted(about.executed[0], "model")}, ${counted(about.executed[1], "tool")}.</p>`}
    </section>
    <section aria-label="Commands"><h2>Console</h2><${Console} does=${does} /></section>
  </section>`;
}
