// Talks to the server: the secret of this browser, requests, streams.
import { signal } from "./vendor/preact.js";

const BASE = "api/v1";
const KEY = "wick-secret";
const channel = new BroadcastChannel("wick");

/** @typedef {{tenant: string, scopes: string[]}} Who */

/** Whether a file is shown, and no server. @type {boolean} */
export const isFile = false;
/** Tabs of a moment that there are not here. @type {string[]} */
export const lacks = [];
/** The tab of a moment that the address names. @returns {string} */
export const tabOf = () => "";

/** Who is signed in: undefined while that is not known, null for nobody.
 * @type {import("./vendor/preact.js").Signal<Who | null | undefined>} */
export const who = signal(/** @type {Who | null | undefined} */ (undefined));

/** Whether a scope is the reader's. @param {string} scope */
export const can = (scope) => who.value?.scopes.includes(scope) ?? false;

channel.onmessage = (event) => {
  const held = sessionStorage.getItem(KEY);
  if (event.data === "secret?" && held) channel.postMessage({ secret: held });
};

export class Refused extends Error {
  /** @param {number} status @param {any} said what the server answers */
  constructor(status, said) {
    super(said.error ?? `the server answers ${status}`);
    this.status = status;
    this.more = said;
  }
}

let writes = 0; // that the server has taken from this page

/** Ask for what this page changes, and again if it wrote meanwhile: the first answer may be of the time before.
 * @template T @param {() => Promise<T>} get @returns {Promise<T>} */
export async function current(get) {
  for (;;) {
    const before = writes;
    const found = await get();
    if (before === writes) return found;
  }
}

/** The path of a thread, of the server and of the page. @param {string} thread */
export const threadPath = (thread) => `/threads/${encodeURIComponent(thread)}`;

export const secret = () => sessionStorage.getItem(KEY) ?? "";

/** @param {string} path @param {RequestInit & {token?: string, key?: string}} [options] */
async function sent(path, options = {}) {
  const { token, key, ...rest } = options;
  /** @type {Record<string, string>} */
  const headers = { "X-Wick-Secret": secret() };
  if (key) headers["Idempotency-Key"] = key;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (rest.method) headers["Content-Type"] = "application/json";
  const got = await fetch(`${BASE}${path}`, { ...rest, headers, cache: "no-store" });
  if (got.ok && rest.method) writes += 1;
  if (got.ok) return got;
  const said = await got.json().catch(() => ({}));
  if (got.status === 401 && !token) who.value = null;
  throw new Refused(got.status, said);
}

/** Ask for JSON.
 * @param {string} path @param {Record<string, string | number>} [query]
 * @param {AbortSignal} [stop] @returns {Promise<any>} */
export async function ask(path, query, stop) {
  const said = query ? `?${new URLSearchParams(Object.entries(query).map(([k, v]) => [k, `${v}`]))}` : "";
  return (await sent(path + said, { signal: stop })).json();
}

/** Send JSON. @param {string} method @param {string} path @param {object} [body]
 * @returns {Promise<any>} */
export async function send(method, path, body = {}) {
  const got = await sent(path, { method, body: JSON.stringify(body) });
  return got.status === 204 ? null : got.json();
}

/** Save what the server answers as a file. @param {string} path @param {string} name */
export async function save(path, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await (await sent(path)).blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // a browser may ask where to put it
}

/** Begin a run, which needs no connection; its events come by the stream of this browser.
 * @param {string} path @param {object} body @param {string} [key] the same for a repeated request */
export async function begin(path, body, key) {
  const more = { ...body, on_disconnect: "continue" };
  const got = await sent(path, { method: "POST", body: JSON.stringify(more), key });
  got.body?.cancel();
  return got.headers.get("X-Thread-Id") ?? "";
}

/** Read a stream line by line, until it ends or is stopped.
 * @param {string} path @param {Record<string, string | number> | string[][]} query
 * @param {AbortSignal} stop @param {(line: string) => void} take */
export async function lines(path, query, stop, take) {
  const pairs = Array.isArray(query) ? query : Object.entries(query);
  const said = new URLSearchParams(pairs.map(([k, v]) => [k, `${v}`]));
  const got = await sent(`${path}?${said}`, { signal: stop });
  const reader = /** @type {ReadableStream<Uint8Array>} */ (got.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    parts.filter((line) => line).forEach(take);
  }
}

/** The parts of the address after the sign `#`. */
export const address = () => location.hash.replace(/^#\/?/, "").split("/").map(decoded);

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Whether the address is that of a view; it changes before the view does, and a late answer leads nobody back.
 * @param {string} view @param {string} [name] */
export function isAt(view, name) {
  const [now, of] = address();
  return now === view && (of || undefined) === name;
}

/** Show another place of the page, without a step of the browser's history. @param {string} path @param {number} seq */
export function goTo(path, seq) {
  history.replaceState(null, "", `${path}/${seq}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Sign in by a token. @param {string} token */
export async function signIn(token) {
  const got = await sent("/sign-in", { method: "POST", body: "{}", token });
  const made = await got.json();
  const isAgain = who.peek() !== undefined && secret() !== "";
  sessionStorage.setItem(KEY, made.secret);
  if (isAgain) return location.reload(); // what is open belongs to the one before
  who.value = { tenant: made.tenant, scopes: made.scopes };
}

export async function signOut() {
  await send("DELETE", "/sign-in").catch(() => null);
  sessionStorage.removeItem(KEY);
  who.value = null;
}

/** Find out who is signed in: by a link, by this tab, or by another tab of this browser. */
export async function identify() {
  const link = new URLSearchParams(location.hash.slice(1)).get("link");
  if (link) {
    const thread = new URLSearchParams(location.hash.slice(1)).get("thread");
    history.replaceState(null, "", thread ? `#${threadPath(thread)}` : "#/");
    if (await signIn(link).then(() => true, () => false)) return;
  }
  if (!secret()) await fromOtherTab();
  await known();
}

/** Ask who is signed in; again if another tab's secret came before the refusal of a request without it. */
async function known() {
  const used = secret();
  const found = await ask("/me").catch(() => null);
  if (found === null && used !== secret()) return known();
  who.value = found;
}

/** Wait a moment for another tab's secret; one that comes later, from a busy tab, signs in too. */
function fromOtherTab() {
  return new Promise((done) => {
    const own = new BroadcastChannel("wick");
    own.onmessage = (event) => {
      if (typeof event.data?.secret !== "string") return;
      own.close();
      if (!secret()) sessionStorage.setItem(KEY, event.data.secret);
      if (who.peek() === null) known();
      done(null);
    };
    own.postMessage("secret?");
    setTimeout(() => done(null), 150);
  });
}
