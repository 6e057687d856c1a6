// One stream of events for all tabs of this browser: the tab that holds a lock reads it and passes it on.
// A browser opens six connections to a server, so ten tabs with a stream each would block one another.
import { signal } from "./vendor/preact.js";
import { lines, Refused, secret, who } from "./api.js";

const AGAIN = 1000; // milliseconds until a stream that broke off is opened again
const ID = crypto.getRandomValues(new Uint32Array(2)).join("-");

/** @typedef {{after: number, take: (event: any, number: number) => void, gone: () => void}} Reader */

/** The readers of this tab, by topic: `run ID` and `moments ID`.
 * @type {Map<string, Set<Reader>>} */
const readers = new Map();
/** @type {Set<(event: any) => void>} */
const listeners = new Set();
/** What each tab wants: topics, with the number after which it wants them. Kept by the leader.
 * @type {Map<string, Record<string, number>>} */
const wanted = new Map();
/** How far the open stream is, by topic. @type {Map<string, number>} */
const read = new Map();

/** Whether the server is reached. */
export const isOnline = signal(true);

/** @type {BroadcastChannel | undefined} */
let channel;
let isLeader = false;
let current = new AbortController();

/** Follow a topic after a number, without an event twice; returns how to stop.
 * @param {"run" | "moments"} kind @param {string} thread @param {number} after
 * @param {(event: any, number: number) => void} take @param {() => void} [gone] */
export function follow(kind, thread, after, take, gone = () => undefined) {
  const topic = `${kind} ${thread}`;
  const reader = { after, take, gone };
  if (!readers.has(topic)) readers.set(topic, new Set());
  readers.get(topic)?.add(reader);
  want();
  return () => {
    readers.get(topic)?.delete(reader);
    if (!readers.get(topic)?.size) readers.delete(topic);
    want();
  };
}

/** Hear of the tenant's news: runs that begin and end, agents that change, and each new connection.
 * @param {(event: any) => void} take */
export function listen(take) {
  listeners.add(take);
  return () => void listeners.delete(take);
}

/** Begin to read, or to be told by the tab that reads. */
export function connect() {
  if (channel) return;
  const name = `wick-stream-${secret().slice(0, 8)}`; // those who have signed in together
  channel = new BroadcastChannel(name);
  channel.onmessage = ({ data }) => heard(data);
  addEventListener("pagehide", () => say({ tab: ID, topics: {} }));
  const lead = async () => {
    isLeader = true;
    say({ leader: ID });
    want();
    for (;;) await readOn();
  };
  const held = `wick-tab-${ID}`;
  if (!navigator.locks) return void lead(); // no secure context: each tab reads for itself
  navigator.locks.request(held, () => new Promise(() => undefined));
  navigator.locks.request(name, lead);
  say({ who: true });
}

/** @param {any} message */
const say = (message) => navigator.locks && channel?.postMessage(message);

/** @param {any} message */
function heard(message) {
  if (message.leader) want();
  else if (message.tab && isLeader) note(message.tab, message.topics);
  else if (message.who && isLeader) say({ online: isOnline.peek() });
  else if (message.events) message.events.forEach(deliver);
  else if (message.gone) dropped(message.gone);
  else if ("online" in message) isOnline.value = message.online;
}

/** Tell the tab that reads what this tab wants. */
function want() {
  if (!channel) return;
  const topics = Object.fromEntries([...readers].map(([topic, all]) => [topic, Math.min(...[...all].map((one) => one.after))]));
  if (isLeader) note(ID, topics);
  else say({ tab: ID, topics });
}

/** @param {string} tab @param {Record<string, number>} topics */
function note(tab, topics) {
  wanted.set(tab, topics);
  const isRead = Object.entries(topics).every(([topic, after]) => (read.get(topic) ?? Infinity) <= after);
  if (!isRead) current.abort();
}

/** Read until the stream breaks off, or a tab wants more. @returns {Promise<void>} */
async function readOn() {
  const own = (current = new AbortController());
  if (!who.peek()) return new Promise((done) => void setTimeout(done, AGAIN));
  await prune();
  read.clear();
  for (const topics of wanted.values()) {
    for (const [topic, after] of Object.entries(topics)) read.set(topic, Math.min(after, read.get(topic) ?? Infinity));
  }
  const query = [...read].map(([topic, after]) => ["follow", topic.replace(" ", `:${after}:`)]);
  try {
    await lines("/stream", query, own.signal, (line) => {
      online(true);
      if (line.startsWith("data: ")) pass(JSON.parse(line.slice(6)));
    });
  } catch (error) {
    if (own.signal.aborted) return;
    if (error instanceof Refused && error.more.thread_id) return void (say({ gone: error.more.thread_id }), dropped(error.more.thread_id));
    online(false);
  }
  if (!own.signal.aborted) await new Promise((done) => setTimeout(done, AGAIN));
}

/** Forget what tabs wanted that are closed. */
async function prune() {
  const held = navigator.locks ? (await navigator.locks.query()).held ?? [] : [];
  for (const tab of wanted.keys()) {
    if (tab !== ID && !held.some((lock) => lock.name === `wick-tab-${tab}`)) wanted.delete(tab);
  }
}

/** @param {boolean} value */
function online(value) {
  if (isOnline.peek() !== value) say({ online: (isOnline.value = value) });
}

/** @param {any} event */
function pass(event) {
  const topic = `${event.event} ${event.data.thread_id}`;
  const told = { ...event, prior: read.get(topic) ?? 0 };
  if (event.event !== "news") read.set(topic, event.data.number);
  say({ events: [told] });
  deliver(told);
}

/** @param {any} event */
function deliver({ event, data, prior }) {
  if (event === "news") return listeners.forEach((take) => take(data));
  for (const reader of [...(readers.get(`${event} ${data.thread_id}`) ?? [])]) {
    // The stream from before this tab joined is further on: what lies between comes by the next one.
    if (data.number <= reader.after || prior > reader.after) continue;
    reader.after = data.number;
    reader.take(data.data, data.number);
  }
}

/** @param {string} thread */
function dropped(thread) {
  for (const kind of ["run", "moments"]) {
    const all = readers.get(`${kind} ${thread}`);
    readers.delete(`${kind} ${thread}`);
    all?.forEach((reader) => reader.gone());
  }
  for (const topics of wanted.values()) delete topics[`run ${thread}`], delete topics[`moments ${thread}`];
}
