// What ran beside what: lanes for the agent, its models, each of its tools' slots, and sub-agents.
import { html, useEffect, useState } from "./vendor/preact.js";
import { took } from "./values.js";

const AROUND = 250; // moments on each side of the cursor
const TALL = 26;
const ENDS = new Set(["exit", "response", "error", "return"]);

/** The spans among some moments, each in a lane that is free. @param {any[]} rows */
function spans(rows) {
  /** @type {Map<string, number[]>} */
  const free = new Map();
  const found = [];
  const began = (/** @type {any} */ row) => row.at_us - row.duration_us;
  for (const row of rows.filter((one) => one.duration_us !== null).sort((a, b) => began(a) - began(b))) {
    if (!ENDS.has(row.phase) || (row.kind === "tool" && row.phase === "return")) continue;
    const kind = { node: "node", model: "model", tool: "tool", agent: "sub-agent" }[/** @type {"node"} */ (row.kind)];
    if (!kind) continue;
    const begin = began(row);
    const slots = free.get(kind) ?? [];
    let slot = slots.findIndex((end) => end <= begin);
    if (slot < 0) slot = slots.length;
    slots[slot] = row.at_us;
    free.set(kind, slots);
    found.push({ row, begin, lane: slot ? `${kind} ${slot + 1}` : kind });
  }
  return found;
}

/** @param {any} props */
export function Lanes({ moments, row, seq, go }) {
  const [wide, setWide] = useState(1);
  const from = Math.max(1, seq - AROUND);
  const to = Math.min(moments.last.value, seq + AROUND);
  useEffect(() => moments.only.peek() || moments.need(from, to), [Math.floor(from / 100), Math.floor(to / 100)]);
  moments.changed.value;
  const rows = [];
  for (let at = from; at <= to; at++) {
    const one = moments.rows.get(at);
    if (one && (!row || one.run === row.run)) rows.push(one);
  }
  const found = spans(rows);
  if (!found.length) return html`<p>Nothing around this moment has ended.</p>`;
  const begin = Math.min(...found.map((one) => one.begin));
  const end = Math.max(...found.map((one) => one.row.at_us), begin + 1);
  const lanes = ["node", "model", "tool", "sub-agent"].flatMap((kind) => [...new Set(found.map((one) => one.lane))].filter((lane) => lane.startsWith(kind)).sort());
  const part = (/** @type {number} */ us) => `${((us / (end - begin)) * 100).toFixed(3)}%`;
  return html`<p class="line faint">From ${took(begin)} to ${took(end)} of run ${row?.run}
      <button aria-label="Wider" onClick=${() => setWide(Math.min(64, wide * 2))}>+</button>
      <button aria-label="Narrower" onClick=${() => setWide(Math.max(1, wide / 2))}>−</button></p>
    <div class="lanes" tabindex="0" role="region" aria-label="Lanes">
      <div style=${{ width: `${wide * 100}%` }}>
        ${lanes.map((lane) => html`<div class="lane" key=${lane}><span class="faint">${lane}</span>
          <div style=${{ height: `${TALL}px` }}>${found.filter((one) => one.lane === lane).map(({ row: one, begin: at }) => html`<button
            key=${one.seq} class=${`span k-${one.kind}${one.status === "ok" ? "" : " bad"}${Math.abs(one.seq - seq) < 1 ? " here" : ""}`}
            style=${{ left: part(at - begin), width: part(one.duration_us) }} onClick=${() => go(one.seq)}
            title=${`${one.tool ?? one.node ?? one.name}, ${took(one.duration_us)}`}>${one.kind === "tool" ? one.tool : one.name || one.node}</button>`)}</div>
        </div>`)}
      </div>
    </div>`;
}
