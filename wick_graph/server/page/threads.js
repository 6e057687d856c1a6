// The view of signing in, and the list of threads with those below them.
import { html, signal, useEffect, useState } from "./vendor/preact.js";
import { agents, Beginnings, loadAgents } from "./agents.js";
import { ask, can, current, send, signIn, threadPath } from "./api.js";
import { listen } from "./stream.js";
import { counted } from "./values.js";

export function SignIn() {
  const [token, setToken] = useState("");
  const [said, setSaid] = useState("");
  const enter = (/** @type {Event} */ event) => {
    event.preventDefault();
    signIn(token.trim()).catch((error) => setSaid(error.message));
  };
  return html`<main class="sign-in">
    <form onSubmit=${enter}>
      <h1>Sign in</h1>
      <label for="token">Access token</label>
      <input id="token" type="password" autocomplete="off" required value=${token}
        aria-describedby="said"
        onInput=${(/** @type {any} */ event) => setToken(event.target.value)} />
      <button class="main">Sign in</button>
      <p id="said" class="bad" role="alert">${said}</p>
      <p class="faint">
        <code>wick token create</code> makes a token; <code>wick ui</code> opens this page without one.
      </p>
    </form>
  </main>`;
}

/** @type {import("./vendor/preact.js").Signal<any[] | null>} */
const threads = signal(/** @type {any[] | null} */ (null));
const failed = signal("");
const isWhole = signal(true);
const PAGE = 50;

/** @param {boolean} isMore whether the next older ones are added to those that are shown @param {number} limit */
async function load(isMore = false, limit = Math.min(500, Math.max(PAGE, threads.peek()?.length ?? 0))) {
  const kept = () => (isMore && threads.peek()) || [];
  try {
    const found = await current(() => ask("/threads", { limit, ...(kept().length > 0 && { before: kept().at(-1).last_access }) }));
    threads.value = [...kept(), ...found];
    isWhole.value = found.length < limit;
    failed.value = "";
  } catch (error) {
    failed.value = /** @type {Error} */ (error).message;
  }
}

const MARKS = /** @type {Record<string, string>} */ ({
  idle: "○ idle", running: "● running", waiting: "◆ waiting", failed: "✕ failed",
});

/** Delete a thread for good. @param {string} id */
async function drop(id) {
  await send("DELETE", threadPath(id));
  threads.value = (threads.peek() ?? []).filter((known) => known.thread_id !== id);
}

/** @param {string | null} text */
const when = (text) => (text ? new Date(text).toLocaleString() : "never");

/** Fetch older threads until all are here, so that a search finds them. @param {string} text */
async function searched(text) {
  for (let round = 0; text && round < 20 && !isWhole.peek() && !failed.peek(); round++) await load(true, 500);
}

/** @param {{one: any, all: any[], depth: number}} props */
function Thread({ one, all, depth }) {
  const [asks, setAsks] = useState(false);
  const [error, setError] = useState("");
  const [cost, setCost] = useState(/** @type {string | null} */ (null));
  const path = threadPath(one.thread_id);
  const name = one.title || one.thread_id;
  const count = async () => {
    const { last } = await ask(`${path}/recording`).catch(() => ({ last: 0 }));
    const of = (/** @type {string} */ what) => (last ? ask(`${path}/moments/${last}/state`, { path: what }).then((found) => found.value, () => null) : null);
    const [usage, spent] = await Promise.all([of("usage"), of("cost")]);
    const money = spent && Object.keys(spent).length ? `, ${Object.entries(spent).filter(([, value]) => typeof value === "number").map(([key, value]) => `${key} ${value}`).join(", ")}` : ", no price is known";
    setCost(usage ? `${counted(usage.total_tokens ?? 0, "token")} in ${counted(usage.calls ?? 0, "call")}${money}` : "not recorded");
  };
  const below = depth < 5 ? all.filter((child) => child.parent === one.thread_id) : [];
  return html`<li>
    <div class="row">
      <a class="name" href=${`#/chat/${encodeURIComponent(one.thread_id)}`}>${name}</a>
      <span class=${`status ${one.status}`}>${MARKS[one.status] ?? one.status}</span>
      <p class="faint">
        ${[one.agent, counted(one.steps, "checkpoint"), `used ${when(one.last_access)}`, one.pinned ? "pinned" : `expires ${when(one.expires_at)}`, cost].filter((part) => part).join(" · ")}
      </p>
      <p class="line">
        ${asks
          ? html`<span>Delete it for good?</span> <button class="danger" ref=${(/** @type {any} */ found) => found?.focus()} onClick=${() => drop(one.thread_id).catch((failure) => setError(failure.message))}>Delete</button> <button onClick=${() => setAsks(false)}>Keep</button>`
          : html`<a href=${`#${threadPath(one.thread_id)}`} aria-label=${`Run of ${name}`}>Run</a>
              ${cost === null && html`<button class="quiet" aria-label=${`Cost of ${name}`} onClick=${count}>Cost</button>`}
              ${can("run") && html`<button class="quiet" aria-label=${`Delete ${name}`} onClick=${() => setAsks(true)}>Delete …</button>`}`}
        <span class="bad" role="alert">${error}</span>
      </p>
      ${one.last_error && html`<p class="bad">${one.last_error}</p>`}
    </div>
    ${below.length > 0 && html`<details><summary>${counted(below.length, "thread")} below</summary><ul>${below.map((child) => html`<${Thread} key=${child.thread_id} one=${child} all=${all} depth=${depth + 1} />`)}</ul></details>`}
  </li>`;
}

export function Threads() {
  const [text, setText] = useState("");
  useEffect(() => {
    load();
    loadAgents();
    let due = 0;
    const end = listen(() => (clearTimeout(due), (due = setTimeout(() => load(), 500))));
    return () => (clearTimeout(due), end());
  }, []);
  const found = threads.value;
  if (failed.value) return html`<main class="page"><p class="bad" role="alert">${failed.value}</p></main>`;
  if (found === null) return html`<main class="page" aria-busy="true"><p class="faint">Loading the threads …</p></main>`;
  const words = text.toLowerCase().split(/\s+/).filter((word) => word);
  const ids = new Set(found.map((one) => one.thread_id));
  const shown = words.length
    ? found.filter((one) => words.every((word) => `${one.title} ${one.thread_id} ${one.agent} ${one.status}`.toLowerCase().includes(word)))
    : found.filter((one) => !ids.has(one.parent));
  return html`<main class="page threads">
    <h1>Threads</h1>
    ${!found.length && html`<p>There are no threads yet. A chat makes one:</p><${Beginnings} all=${agents.value ?? []} />`}
    ${found.length > 0 && html`<form class="row-form" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label for="find">Find</label>
      <input id="find" type="search" autocomplete="off" placeholder="title, id, agent or status" value=${text} onInput=${(/** @type {any} */ event) => (setText(event.target.value), searched(event.target.value))} />
      <span role="status" class="faint">${words.length > 0 && counted(shown.length, "thread")}</span>
    </form>`}
    <ul>${shown.map((one) => html`<${Thread} key=${one.thread_id} one=${one} all=${words.length ? [] : found} depth=${0} />`)}</ul>
    ${!isWhole.value && html`<button onClick=${() => load(true)}>Show older threads</button>`}
  </main>`;
}
