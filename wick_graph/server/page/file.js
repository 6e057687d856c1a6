// Instead of api.js in a file: answers from the recording that the file holds.
import { html, render, signal } from "./vendor/preact.js";

/** @type {any} */
const data = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
const MOST = 100; // items of a list inside another value

/** @typedef {any} Moment a row of the list, with what the file has of it */

export class Refused extends Error {}
export const isFile = true;
export const lacks = ["Preview", ...(data.graph ? [] : ["Graph"])];
export const can = () => false;
export const who = { peek: () => null };
export const secret = () => "";
const nothing = (/** @type {string} */ why) => {
  throw new Refused(why);
};
export const send = async () => nothing("a file runs nothing");
export const save = send;

/** Put long texts back into the values that share them. @param {any} value */
function fill(value) {
  for (const [key, held] of Object.entries(value)) {
    if (typeof held === "string" && held[0] === "§") value[key] = data.values[Number(held.slice(1))];
    else if (held && typeof held === "object") fill(held);
  }
}
data.values.forEach((/** @type {any} */ value) => value && typeof value === "object" && fill(value));

/** @param {number} at @returns {any} */
const valueAt = (at) => data.values[at];
/** @param {any} places one place, or those of a list's items */
const valuesAt = (places) => (Array.isArray(places) ? places.map(valueAt) : valueAt(places));

const runs = new Map(data.runs.map((/** @type {any} */ run) => [run.number, run]));
/** Facts of the moment before: a row has those that change. @type {Record<string, any>} */
let facts = {};
/** @type {Moment[]} */
const moments = data.moments.map((/** @type {any[]} */ row) => {
  const had = Object.fromEntries(data.columns.map((/** @type {string} */ name, /** @type {number} */ nth) => [name, row[nth]]));
  if (had.facts) facts = { ...facts };
  for (let nth = 0; nth < (had.facts?.length ?? 0); nth += 2) facts[data.facts[had.facts[nth]]] = valueAt(had.facts[nth + 1]);
  const made = { ...row[data.columns.length], ...had, ...(had.facts && facts), kind: valueAt(had.kind), phase: valueAt(had.phase) };
  return { ...made, name: made.name ?? "", status: had.status ?? "ok", is_left: made.left ?? false, branch: runs.get(had.run)?.branch ?? 0,
    at_us: had.at, duration_us: had.took, told: had.told === null ? {} : valueAt(had.told) };
});
const last = moments.at(-1)?.seq ?? 0;
const places = new Map(moments.map((one, at) => [one.seq, at]));

// States are differences, each from the one before it.
/** @type {Record<string, any>} */
const states = {};

/** The state of a checkpoint: by its channels, a place or the places of a list. @param {string} name */
function stateAt(name) {
  const chain = [];
  for (let at = name; at && !states[at] && data.states[at]; at = data.states[at].base) chain.push(at);
  while (chain.length) {
    const at = /** @type {string} */ (chain.pop());
    const told = data.states[at];
    const made = { ...states[told.base] };
    for (const [channel, now] of Object.entries(told.set)) {
      made[channel] = now && typeof now === "object" && !Array.isArray(now) ? made[channel].slice(0, now.keep).concat(now.add) : now;
    }
    for (const channel of told.gone ?? []) delete made[channel];
    states[at] = made;
  }
  return states[name];
}

/** The moment whose state is shown at a place: itself, the last before, or the next one. @param {number} at */
function stated(at) {
  const found = moments.slice(0, at + 1).findLast((one) => one.checkpoint) ?? moments.find((one) => one.checkpoint);
  return found && stateAt(found.checkpoint) ? found : nothing("no state is in this file");
}

/** What was written from one place to another: by the visits of nodes that began from one state.
 * @param {string} checkpoint @param {number} from @param {number} to */
const written = (checkpoint, from, to) =>
  moments.slice(from, to).filter((one) => one.checkpoint === checkpoint && Array.isArray(one.writes))
    .flatMap((one) => one.writes.map((/** @type {any} */ write) => ({ ...write, node: one.node, value: valuesAt(write.value) })));

/** @param {any} value @param {number} depth @returns {any} */
function cut(value, depth = 0) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return [...value.slice(0, MOST).map((item) => cut(item, depth + 1)), ...(value.length > MOST ? [{ $more: value.length - MOST }] : [])];
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, cut(item, depth + 1)]));
}

/** @param {string} path @param {any} before @param {any} after @returns {any[]} */
function differences(path, before, after) {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  const isDeep = [before, after].every((one) => one && typeof one === "object") && Array.isArray(before) === Array.isArray(after) && !after.role;
  if (!isDeep) return [{ path, op: before === undefined ? "add" : after === undefined ? "remove" : "change", before: cut(before), after: cut(after) }];
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((key) =>
    differences(Array.isArray(after) ? `${path}[${key}]` : path ? `${path}.${key}` : key, before[key], after[key]));
}

/** What a step changed: up to the next state, or in its writes if the file ends before. @param {number} at @param {number} [to] */
function changes(at, to) {
  const one = stated(at);
  const next = to ? stated(places.get(to) ?? nothing(`the file has no moment ${to}`)) : moments.slice(at).find((later) => later.checkpoint && later.checkpoint !== one.checkpoint);
  if (!next) return { at: last, changes: written(one.checkpoint, 0, moments.length).map(({ channel, value }) => ({ path: channel, op: "add", after: cut(value) })) };
  const [before, after] = [stateAt(one.checkpoint), stateAt(next.checkpoint)];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
  return { at: next.seq, changes: names.flatMap((name) => differences(name, name in before ? valuesAt(before[name]) : undefined, name in after ? valuesAt(after[name]) : undefined)) };
}

/** @param {number} at */
function state(at, { path = "", offset = 0, limit = MOST }) {
  const found = stateAt(stated(at).checkpoint);
  /** @type {any} */
  let value = Object.fromEntries(Object.entries(found).map(([name, held]) => [name, valuesAt(held)]));
  for (const [step] of path.matchAll(/-?\d+(?=\])|[^.[\]"]+/g)) value = value?.at && /^-?\d+$/.test(step) ? value.at(Number(step)) : value?.[step];
  if (value === undefined) nothing(`there is nothing at ${path}`);
  const list = Array.isArray(value);
  return { path, offset, total: list ? value.length : null, value: cut(list ? value.slice(offset, offset + limit) : value) };
}

/** The request of a moment: its own, the last before, or the next one. @param {number} at */
function asked(at) {
  const found = moments.slice(0, at + 1).findLast((one) => one.request) ?? moments.find((one) => one.request) ?? nothing("no model was called");
  return found.request.missing ? nothing(found.request.missing) : found;
}

/** @param {number} at @param {any} query */
function blame(at, { offset, limit }) {
  const { seq, request, checkpoint } = asked(at);
  const kept = request.kept ? stateAt(checkpoint).messages.slice(0, request.kept) : [];
  const parts = [...kept.map((/** @type {number} */ value) => ({ part: "message", op: "kept", by: "thread", seq: null, value })), ...request.parts];
  const order = ["system", "message", "tool", "setting"];
  parts.sort((a, b) => order.indexOf(a.part) - order.indexOf(b.part) || Number(a.op === "dropped") - Number(b.op === "dropped"));
  const from = offset ?? Math.max(0, parts.length - limit);
  return { seq, offset: from, total: parts.length, parts: parts.slice(from, from + limit).map((one) => ({ ...one, value: cut(valueAt(one.value)) })) };
}

/** @param {number} at */
function stack(at) {
  const made = [];
  for (let one = moments[at]; one; one = moments[places.get(one.parent) ?? -1]) made.push({ depth: one.depth, text: one.text, seq: one.seq });
  return made;
}

/** @param {number} at */
function moment(at) {
  const { seq, run, text, told, kind, call_id: call, at_us: us, below } = moments[at];
  const of = call ? moments.filter((one) => one.call_id === call && one.kind === "tool") : [];
  const facts = Object.fromEntries(data.facts.map((/** @type {string} */ name) => [name.replace("_", " "), moments[at][name]]).filter((/** @type {any[]} */ [, value]) => value != null));
  const time = new Date(Date.parse(runs.get(run)?.started) + us / 1000);
  return { position: `run ${run}, moment ${seq}, ${kind}`, line: text, stack: stack(at), below, facts: cut({ ...facts, ...(isNaN(+time) ? {} : { time: time.toISOString() }), ...told }),
    call: of.length ? { args: cut(of[0].told.args), ...(of.at(-1).told.output !== undefined && { result: of.at(-1).told.output }) } : null };
}

/** @param {number} at */
function tokens(at) {
  let total = 0;
  const answers = moments.filter((one) => one.branch === moments[at].branch && one.told.usage);
  return { rows: answers.map(({ seq, name, told: { usage } }) => ({ position: `moment ${seq}`, model: name, input: usage.input_tokens, output: usage.output_tokens, total: (total += usage.total_tokens) })) };
}

/** @param {number} at */
function route(at) {
  const found = moments.slice(at).find((one) => one.kind === "route") ?? moments.slice(0, at).findLast((one) => one.kind === "route") ?? nothing("no decision is recorded");
  return { seq: found.seq, ...found.told };
}

const VERBS = /** @type {Record<string, (one: Moment, from: Moment) => boolean>} */ ({
  step: () => true, next: (one, from) => one.depth <= from.depth, finish: (one, from) => one.depth < from.depth, node: (one) => one.kind === "node" && one.phase === "enter",
  turn: (one) => one.kind === "model" && one.phase === "request", error: (one) => one.status !== "ok" && !one.is_left, cont: () => false,
});

/** @param {number} at @param {{verb: string}} query */
function move(at, { verb }) {
  const isBack = /^(reverse|prev)/.test(verb);
  const test = VERBS[verb.replace(/^(reverse_|prev_?|next(?=node)|next_)/, "")];
  const way = isBack ? moments.slice(0, at).reverse() : moments.slice(at + 1);
  const found = way.find((one) => test(one, moments[at])) ?? (/error/.test(verb) ? null : way.at(-1));
  return { seq: found?.seq ?? null, text: found?.text ?? (/error/.test(verb) ? "no more errors are recorded" : `the recording ${isBack ? "begins" : "ends"} here`) };
}

const OF_MOMENT = /** @type {Record<string, (at: number, query: any) => any>} */ ({
  "": moment, request: (at) => {
    const { seq, request } = asked(at);
    return { ...request, seq, when: seq === moments[at].seq ? "at" : seq < moments[at].seq ? "before" : "after", messages: blame(at, { limit: 1e9 }).parts.filter((one) => one.part === "message" && one.op !== "dropped").length };
  },
  blame, state, tokens, route, move, diff: (at, { to }) => changes(at, to), writes: (at) => ({ writes: written(moments[at].checkpoint, 0, at + 1).map((one) => ({ ...one, value: cut(one.value) })) }),
});
const seqs = (/** @type {(one: Moment) => any} */ test) => moments.filter(test).map((one) => one.seq);
const OF_THREAD = /** @type {Record<string, (query: any) => any>} */ ({
  "": () => ({ title: `${data.thread}, recorded`, status: "idle", above: data.above }),
  recording: () => ({ last, first: moments[0]?.seq ?? 1, runs: data.runs.map((/** @type {any} */ run) => ({ ...run, first: moments.find((one) => one.run === run.number)?.seq })),
    notes: data.hidden ? [`Secrets are hidden in ${data.hidden} values.`] : [] }),
  moments: ({ after, limit, node }) => ({ last, moments: moments.slice(node || !moments.length ? 0 : Math.max(0, after + 1 - moments[0].seq)).filter((one) => one.seq > after && (!node || one.node === node)).slice(0, limit) }),
  overview: () => ({ last, errors: seqs((one) => one.status !== "ok" && !one.is_left), interrupts: seqs((one) => one.kind === "interrupt"),
    forks: seqs((one) => one.branch && one.kind === "run" && one.phase === "enter"), runs: seqs((one) => one.kind === "run" && one.phase === "enter") }),
  graph: () => data.graph ?? nothing("the file has no graph"),
});

/** Answer as the server does. @param {string} path @param {any} [query] @param {AbortSignal} [_stop] @returns {Promise<any>} */
export async function ask(path, query = {}, _stop) {
  const [what = "", seq, about = ""] = path.split("/").slice(3);
  if (what !== "moments" || !seq) return OF_THREAD[what](query);
  return OF_MOMENT[about](places.get(Number(seq)) ?? nothing(`the file has no moment ${seq}`), query);
}

/** Search the moments. @param {string} _path @param {any} query @param {AbortSignal} _stop @param {(line: string) => void} take */
export async function lines(_path, { q }, _stop, take) {
  const wanted = q.toLowerCase();
  const found = moments.filter((one) => `${one.text} ${JSON.stringify(one.told)}`.toLowerCase().includes(wanted));
  for (const { seq, text } of found.slice(0, 200)) take(JSON.stringify({ seq, line: text }));
}

const here = signal(Number(/(\d+)(?:,\w+)?$/.exec(location.hash)?.[1]) || moments.find((one) => one.status !== "ok" && !one.is_left)?.seq || (moments[0]?.seq ?? 1));
/** The tab that the address names. */
export const tabOf = () => /,(\w+)$/.exec(location.hash)?.[1] ?? "";

/** The path of a thread, of the server and of the page. @param {string} thread */
export const threadPath = (thread) => `/threads/${encodeURIComponent(thread)}`;

/** Whether the recording is still shown: nothing else is. */
export const isAt = () => true;

/** Go to a moment, and write its place into the address. @param {string} path @param {number} seq */
export function goTo(path, seq) {
  here.value = seq;
  try {
    history.replaceState(null, "", `#${seq}`);
  } catch {
    // some viewers of files forbid it
  }
}

/** Show the recording. @param {any} Run */
export function show(Run) {
  const Page = () => html`<${Run} thread=${data.thread} seq=${here.value} />`;
  addEventListener("hashchange", () => (here.value = Number(/^#(\d+)/.exec(location.hash)?.[1]) || here.peek()));
  render(html`<${Page} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
}
