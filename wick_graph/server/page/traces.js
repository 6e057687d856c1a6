// Runs of all processes as spans; the gateway's boxes.
import { html, useEffect, useState } from "./vendor/preact.js";
import { ask, can, send, threadPath } from "./api.js";
import { counted, Value } from "./values.js";

/** Ask once, and again by `again`. @param {string} path @param {Record<string, string | number>} [query] */
function useAsked(path, query) {
  const [held, setHeld] = useState(/** @type {{answer?: any, error?: string}} */ ({}));
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    ask(path, query, stop.signal).then((answer) => setHeld({ answer }), (error) => stop.signal.aborted || setHeld({ error: error.message }));
    return () => stop.abort();
  }, [path, round]);
  return { ...held, again: () => setRound(round + 1) };
}

/** @param {string} title @param {any} held @param {(answer: any) => any} show */
const shown = (title, held, show) => html`<main class="wide" aria-busy=${!held.answer && !held.error}>
  <h1>${title} <button onClick=${held.again}>Look again</button></h1>
  ${held.error ? html`<p class="bad" role="alert">${held.error}</p>` : held.answer ? show(held.answer) : html`<p class="faint">Loading …</p>`}</main>`;

const when = (/** @type {number} */ seconds) => new Date(seconds * 1000).toLocaleString();

/** @param {{caption: string, heads: string[], rows: any[][]}} props */
const Table = ({ caption, heads, rows }) => html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table class="listed">
  <thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
  <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`;

export function Traces() {
  const held = useAsked("/agents/traces", { limit: 100 });
  return shown("Traces", held, (found) => found.length
    ? html`<${Table} caption="Runs" heads=${["Begun", "Agent", "Status", "Took", "Thread"]} rows=${found.map((/** @type {any} */ one) => [
        html`<a href=${`#/traces/${encodeURIComponent(one.trace_id)}`}>${when(one.start_time)}</a>`, one.agent_id, one.status,
        one.duration_ms === null ? "goes on" : `${one.duration_ms.toLocaleString("en")} ms`,
        html`<a href=${`#${threadPath(one.thread_id)}`}>${one.thread_id}</a>`])} />`
    : html`<p>Nothing has run yet.</p>`);
}

/** @param {{id: string}} props */
export function Trace({ id }) {
  const held = useAsked(`/agents/traces/${encodeURIComponent(id)}`);
  const [most, setMost] = useState(200);
  return shown("Trace", held, (found) => {
    const spans = found.spans ?? [];
    const first = Math.min(...spans.map((/** @type {any} */ one) => one.start_time));
    const whole = Math.max(...spans.map((/** @type {any} */ one) => one.end_time ?? one.start_time)) - first || 1;
    const depth = new Map();
    for (const span of spans) depth.set(span.span_id, (depth.get(span.parent_id) ?? -1) + 1);
    return html`<p>${[found.agent_id, found.model, found.status, when(found.start_time)].filter((part) => part).join(" · ")} ·
        ${" "}<a href=${`#${threadPath(found.thread_id)}`}>${found.thread_id}</a></p>
      ${found.error && html`<p class="bad">${found.error}</p>`}
      ${found.subagents?.map((/** @type {any} */ one) => html`<p>sub-agent <a href=${`#/traces/${encodeURIComponent(one.trace_id)}`}>${one.thread_id}</a></p>`)}
      <ul class="spans">${spans.slice(0, most).map((/** @type {any} */ one) => html`<li class=${one.error || one.status === "error" ? "bad" : ""}>
        <details><summary><span class="what" style=${{ paddingInlineStart: `${Math.min(20, depth.get(one.span_id) ?? 0) * 12}px` }}>${one.name ?? one.type}</span>
          <span class="bar-of"><i style=${{ left: `${((one.start_time - first) / whole) * 100}%`, width: `${(((one.end_time ?? one.start_time) - one.start_time) / whole) * 100}%` }}></i></span>
          <span class="faint number">${(((one.end_time ?? one.start_time) - one.start_time) * 1000).toFixed(1)} ms</span></summary>
          <${Value} thread=${found.thread_id} value=${one} /></details></li>`)}</ul>
      ${spans.length > most && html`<button onClick=${() => setMost(most + 500)}>Show ${counted(spans.length - most, "more span")}</button>`}`;
  });
}

export function Gateway() {
  const held = useAsked("/gateway");
  const [said, setSaid] = useState("");
  const [box, setBox] = useState("dead");
  const resend = (/** @type {number} */ row) => send("POST", `/gateway/outbox/${row}/resend`).then(
    () => (setSaid(`Message ${row} is sent again.`), held.again()), (error) => setSaid(error.message));
  return shown("Gateway", held, (found) => html`
    <p>${Object.keys(found.running).length
      ? Object.entries(found.running).map(([name, channels]) => `${name}: ${Object.entries(channels).map(([channel, wrong]) => `${channel} ${wrong || "ok"}`).join(", ")}`).join("; ")
      : "No gateway runs on this store."}</p>
    <p role="status">${said}</p>
    <div class="line" role="group" aria-label="Box">${["dead", "inbox", "outbox", "cron", "chats"].map((name) => html`<button aria-pressed=${name === box} onClick=${() => setBox(name)}>
      ${{ dead: "Dead letters", inbox: "Inbox", outbox: "Outbox", cron: "Cron", chats: "Chats" }[/** @type {"dead"} */ (name)]} (${name === "chats" ? Object.keys(found.threads).length : Array.isArray(found[name]) ? found[name].length : Object.keys(found[name]).length})</button>`)}</div>
    ${box === "chats"
      ? html`<p class="faint">Open one to read it, and to write in it.</p><ul>${Object.entries(found.threads).map(([chat, thread]) => html`<li key=${chat}><a href=${`#/chat/${encodeURIComponent(thread)}`}>${chat}</a></li>`)}</ul>`
      : box === "cron"
      ? Object.entries(found.cron).map(([name, job]) => html`<h2>${name}</h2><${Value} thread="" value=${job} />`)
      : found[box].length
        ? html`<${Table} caption=${box} heads=${["When", "Chat", "State", "Text", "Tries", "Do"]} rows=${found[box].map((/** @type {any} */ one) => [
            when(one.at), found.threads[one.chat] ? html`<a href=${`#/chat/${encodeURIComponent(found.threads[one.chat])}`}>${one.chat}</a>` : one.chat, one.state, html`<pre>${String(one.message?.content ?? "")}</pre>${one.error && html`<p class="bad">${one.error}</p>`}`, one.tries,
            box === "dead" && can("admin") && html`<button class="runs" onClick=${() => resend(one.row)}>Send again</button>`])} />`
        : html`<p>There is nothing here.</p>`}`);
}
