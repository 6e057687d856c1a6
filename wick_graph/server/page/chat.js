// A conversation with an agent: its messages page by page, the run that goes on, and what to say next.
import { html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { ask, begin, can, isAt, send, threadPath } from "./api.js";
import { groups, Questions, Refusal } from "./approvals.js";
import { Markdown } from "./markdown.js";
import { follow, listen } from "./stream.js";
import { Talk } from "./talk.js";
import { counted, took, Value } from "./values.js";

const PAGE = 50; // messages that are fetched at once
const MOST = 150; // messages and steps that are shown at once
const SLOW = 4000; // milliseconds between looks for runs of other processes

class Conversation {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.path = threadPath(id);
    this.info = signal(/** @type {any} */ (null));
    this.more = signal(/** @type {Record<string, any>} */ ({}));
    this.failed = signal("");
    this.changed = signal(0);
    /** @type {Map<string, number>} */
    this.took = new Map();
    this.base = new Talk(this.took);
    this.live = new Talk(this.took);
    this.run = "";
    this.pending = signal("");
    this.from = this.to = this.total = this.at = 0;
    /** @type {any[]} */
    this.runs = [];
    this.isDue = this.isClosed = this.isStale = this.isTimed = this.isLooking = false;
    /** @type {Promise<void> | null} */
    this.loading = null;
    this.stop = () => {};
  }

  draw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => ((this.isDue = false), this.changed.value++));
  }

  /** Load the thread as it is now, and follow its run if one goes on. @returns {Promise<void>} */
  load() {
    this.isStale = true;
    return (this.loading ??= this.loadAll().finally(() => (this.loading = null)));
  }

  async loadAll() {
    while (this.isStale && !this.isClosed) {
      this.isStale = false;
      await this.loadOnce();
    }
  }

  async loadOnce() {
    try {
      const [info, started] = await Promise.all([ask(this.path), ask(`${this.path}/runs`, { limit: 1 })]);
      if (this.isClosed) return;
      if (info.status === "waiting") info.isHeld = (await ask(`${this.path}/approvals`).catch(() => null))?.length === 0;
      const run = started[0]?.status === "running" ? started[0] : null;
      const recording = await ask(`${this.path}/recording`).catch(() => ({ last: 0, runs: [] }));
      this.runs = recording.runs;
      const first = run && this.runs.find((one) => one.run_id === run.run_id)?.first;
      const isLate = run && recording.last && (!first || recording.last <= first);
      await this.page(isLate ? Math.max(0, (first ?? recording.last + 1) - 1) : first ? first + 1 : recording.last, run !== null);
      if (isLate) setTimeout(() => this.isClosed || this.load(), 300); // its input is not stored yet
      else this.pending.value = "";
      this.info.value = info;
      this.follow(run);
      this.draw();
      this.look(recording.last);
    } catch (error) {
      this.failed.value = /** @type {Error} */ (error).message;
    }
  }

  /** @param {any} run */
  follow(run) {
    if (run?.run_id === this.run) return;
    this.stop();
    this.run = run?.run_id ?? "";
    this.live = new Talk(this.took, (id) => this.base.calls.get(id));
    if (!run) return void (this.stop = () => {});
    const take = (/** @type {any} */ event) => {
      if (event.run_id === run.run_id || event.event !== "done") this.event(event);
    };
    this.stop = follow("run", this.id, run.first_event - 1, take, () => (this.failed.value = "the thread was deleted"));
  }

  /** @param {any} event */
  event(event) {
    const isOver = this.live.event(event);
    this.draw();
    if (event.event === "on_tool_end" && !this.isLooking) this.look();
    if (!isOver) return;
    this.stop();
    this.run = "over";
    this.load();
  }

  /** Fetch the last messages of a state, or all of a thread that is not recorded.
   * @param {number} at @param {boolean} runs */
  async page(at, runs) {
    this.at = at;
    if (!at && !this.runs.length) {
      const { messages } = await ask(`${this.path}/state`);
      const asked = messages.findLastIndex((/** @type {any} */ one) => one?.role === "user");
      this.fill(runs ? messages.slice(0, asked + 1) : messages, 0);
      this.total = this.to;
      return;
    }
    this.total = at ? (await this.messages(0, 1)).total : 0;
    const from = Math.max(0, this.total - PAGE);
    const isSame = this.from < from && this.to >= from; // what a reader has opened above stays
    const start = isSame ? Math.max(this.from, this.total - MOST) : from;
    this.fill(this.total ? (await this.messages(start, this.total - start)).value : [], start);
  }

  /** @param {number} offset @param {number} limit */
  messages(offset, limit) {
    return ask(`${this.path}/moments/${this.at}/state`, { path: "messages", offset, limit });
  }

  /** @param {any[]} messages @param {number} from */
  fill(messages, from) {
    const before = [...this.base.calls, ...this.live.calls]; // what was seen of calls stays
    this.base = new Talk(this.took);
    messages.forEach((message, nth) => this.base.message(message, from + nth));
    for (const [id, { inner, state, output, error, began }] of before) {
      const call = this.base.calls.get(id);
      if (call && inner) call.inner = inner;
      if (this.run && this.run !== "over" && call?.state === "called") Object.assign(call, { state, output, error, began });
    }
    this.from = from;
    this.to = from + messages.length;
  }

  /** @param {number} from @returns {Promise<void>} */
  async show(from) {
    await this.loading;
    const start = Math.max(0, Math.min(from, this.total - 1));
    const { value } = await this.messages(start, Math.min(MOST, this.total - start));
    if (this.loading) return this.show(from); // it puts its own page over this one
    this.fill(value, start);
    this.draw();
  }

  /** Look at what stands beside the messages: tasks, files, costs, durations. @param {number} [last] */
  async look(last) {
    this.isLooking = true;
    const at = last ?? (await ask(`${this.path}/recording`).catch(() => ({ last: 0 }))).last;
    const state = at && (await ask(`${this.path}/moments/${at}/state`, { offset: 1 }).catch(() => null)); // without messages
    this.isLooking = false;
    if (state) this.more.value = state.value;
    if (!last || this.isTimed) return;
    this.isTimed = true;
    const rows = await ask(`${this.path}/moments`, { after: Math.max(0, last - 500), limit: 500 }).catch(() => ({ moments: [] }));
    for (const row of rows.moments) {
      if (row.kind === "tool" && row.call_id && row.duration_us !== null && ["exit", "error"].includes(row.phase)) this.took.set(row.call_id, row.duration_us / 1000);
    }
    for (const [id, call] of this.base.calls) (call.took = this.took.get(id)), call.version++;
    this.draw();
  }

  /** Fork before a message, and say something else there. Returns the thread.
   * @param {number} at @param {string} text */
  async edit(at, text) {
    let [low, high] = [0, this.runs.length - 1];
    const starts = this.runs.filter((run) => run.mode === "input");
    high = starts.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      const { total } = await ask(`${this.path}/moments/${starts[middle].first}/state`, { path: "messages", limit: 1 });
      if (total <= at) low = middle;
      else high = middle - 1;
    }
    const { facts } = await ask(`${this.path}/moments/${starts[low].first}`);
    const fork = facts.base ? await send("POST", `${this.path}/fork`, { checkpoint_id: facts.base }) : null;
    return say(this.info.peek()?.agent, text, fork?.thread_id);
  }
}

/** Say something to an agent; returns the thread. @param {string | null} agent @param {string} text @param {string} [thread] */
function say(agent, text, thread) {
  const body = { messages: [{ role: "user", content: text }], ...(thread && { thread_id: thread }) };
  return begin(agent ? `/agents/${encodeURIComponent(agent)}/stream` : "/agents/stream", body, crypto.getRandomValues(new Uint32Array(4)).join("-"));
}

/** @param {string} thread */
const go = (thread) => (location.hash = `#/chat/${encodeURIComponent(thread)}`);

/** A text of which the server has more. @param {{item: import("./talk.js").Item, thread: string, as: any}} props */
function Long({ item, thread, as }) {
  const [more, setMore] = useState("");
  const [error, setError] = useState("");
  const text = item.text + more;
  const shown = item.output ?? text;
  const whole = item.output === undefined ? text : item.output + more;
  const load = () => ask(`${threadPath(thread)}/blobs/${item.cut?.name}`, { offset: whole.length }).then((piece) => setMore(more + piece.text), (failed) => setError(failed.message));
  return html`${as(item.output === undefined ? text : shown + more)}
    ${item.cut && whole.length < item.cut.chars && html`<p class="faint line">${counted(whole.length, "character")} of ${item.cut.chars.toLocaleString("en")} <button onClick=${load}>Show more</button> ${error}</p>`}`;
}

const STATES = /** @type {Record<string, string>} */ ({ written: "… is written", called: "○ called", running: "● running", done: "✓ done", failed: "✕ failed" });

/** @param {{item: import("./talk.js").Item, thread: string}} props */
function Tool({ item, thread }) {
  const [isOpen, setOpen] = useState(false);
  const state = item.state ?? "called";
  const brief = item.draft ?? JSON.stringify(item.args ?? {});
  return html`<details class=${`tool ${state}`} open=${isOpen} onToggle=${(/** @type {any} */ event) => event.target === event.currentTarget && setOpen(event.target.open)}>
    <summary><span class="what"><b>${item.name}</b> <code dir="auto">${brief.slice(0, 200)}</code></span>
      <span class=${`state ${state}`}>${STATES[state]}${item.took !== undefined && ["done", "failed"].includes(state) && ` · ${took(item.took * 1000)}`}</span></summary>
    ${isOpen && html`<div class="inside">
      ${item.draft === undefined ? html`<${Value} thread=${encodeURIComponent(thread)} value=${item.args ?? {}} />` : html`<pre>${item.draft}</pre>`}
      ${item.error !== undefined && item.error !== item.output && html`<p class="bad">${item.error}</p>`}
      ${item.output !== undefined && html`<div class=${state === "failed" ? "before" : "after"}><${Long} item=${item} thread=${thread} as=${(/** @type {string} */ text) => html`<pre dir="auto">${text || "(nothing)"}</pre>`} /></div>`}
    </div>`}
    </details>
    ${item.inner && html`<div class="inner" role="group" aria-label=${`What ${item.name} does`}>${rows(item.inner.items.slice(-MOST), thread)}</div>`}`;
}

/** @param {{item: import("./talk.js").Item, conversation?: Conversation}} props */
function Mine({ item, conversation }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [error, setError] = useState("");
  const may = conversation?.runs.length && item.at !== undefined && !item.cut && can("run");
  const fork = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (text?.trim()) conversation?.edit(item.at ?? 0, text).then((thread) => (setText(null), isAt("chat", conversation.id) && go(thread)), (failed) => setError(failed.message));
  };
  if (text !== null) return html`<form class="mine" onSubmit=${fork}>
    <label for=${`e-${item.key}`}>Say this in a fork; the thread stays as it is</label>
    <textarea id=${`e-${item.key}`} rows="3" value=${text} dir="auto" ref=${(/** @type {any} */ found) => found && !text.length && found.focus()}
      onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    <p class="line"><button class="main">Send in a fork</button> <button type="button" onClick=${() => setText(null)}>Back</button></p>
  </form>`;
  return html`<div class="mine"><${Long} item=${item} thread=${conversation?.id ?? ""} as=${(/** @type {string} */ said) => html`<p class="said-by" dir="auto">${said}</p>`} />
    ${may && html`<button class="quiet" aria-label=${`Edit: ${item.text.slice(0, 60)}`} onClick=${() => setText(item.text)}>Edit</button>`}</div>`;
}

/** @param {{item: import("./talk.js").Item, version: number, thread: string, conversation?: Conversation}} props */
function Row({ item, version, thread, conversation }) {
  return useMemo(() => {
    if (item.kind === "user") return html`<${Mine} item=${item} conversation=${conversation} />`;
    if (item.kind === "tool") return html`<${Tool} item=${item} thread=${thread} v=${version} />`;
    if (item.kind === "note") return html`<p class=${item.isBad ? "note bad" : "note faint"} role=${item.isBad ? "alert" : undefined}>${item.text}</p>`;
    return html`<div class="theirs">
      ${item.reasoning && html`<details class="reasoning"><summary>Reasoning</summary><pre dir="auto">${item.reasoning}</pre></details>`}
      <${Long} item=${item} thread=${thread} as=${(/** @type {string} */ text) => html`<${Markdown} text=${text} />`} />
    </div>`;
  }, [item, version]);
}

/** @param {import("./talk.js").Item[]} items @param {string} thread @param {Conversation} [conversation] */
const rows = (items, thread, conversation) => items.map((item) => html`<${Row} key=${item.key} item=${item} version=${item.version} thread=${thread} conversation=${conversation} />`);

/** @param {{conversation: Conversation}} props */
function Log({ conversation }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const isEnd = useRef(true);
  const height = useRef(0);
  conversation.changed.value;
  const { base, live, from, to, total } = conversation;
  useLayoutEffect(() => {
    const found = box.current;
    if (!found) return;
    if (height.current) found.scrollTop += found.scrollHeight - height.current;
    else if (isEnd.current) found.lastElementChild?.scrollIntoView({ block: "end" });
    height.current = 0;
  });
  useEffect(() => {
    const watch = new IntersectionObserver(([seen]) => (isEnd.current = seen.isIntersecting), { rootMargin: "40px" });
    if (box.current?.lastElementChild) watch.observe(box.current.lastElementChild);
    return () => watch.disconnect();
  }, []);
  const earlier = async () => {
    await conversation.show(from - PAGE);
    height.current = box.current?.scrollHeight ?? 0;
    isEnd.current = false;
  };
  const early = live.items.length - MOST;
  return html`<div class="log" ref=${box} role="log" aria-label="Messages" tabindex="0">
    ${from > 0 && html`<p class="line center"><button onClick=${earlier}>Show earlier messages</button> <span class="faint">${from.toLocaleString("en")} before</span></p>`}
    ${[ // one list: what is open in an item stays open when its run has ended
      ...rows(base.items, conversation.id, conversation),
      to >= total && conversation.pending.value && html`<div class="mine" key="pending"><p class="said-by" dir="auto">${conversation.pending.value}</p></div>`,
      to >= total && early > 0 && html`<p class="faint center" key="early">${counted(early, "earlier step")} of this run</p>`,
      ...(to < total ? [] : rows(early > 0 ? live.items.slice(early) : live.items, conversation.id)),
    ]}
    ${to < total && html`<p class="line center"><button onClick=${() => conversation.show(to)}>Show later messages</button> <button onClick=${() => ((isEnd.current = true), conversation.show(total - PAGE))}>To the end</button></p>`}
    <${End} conversation=${conversation} />
    <div class="end"></div>
  </div>`;
}

/** Why the thread rests: a failure, a limit, a question. @param {{conversation: Conversation}} props */
function End({ conversation }) {
  const [error, setError] = useState("");
  const info = conversation.info.value;
  if (!info || conversation.run) return null;
  const again = () => begin(`/agents/${encodeURIComponent(info.agent)}/resume`, { thread_id: info.thread_id, stream: true }).then(() => conversation.load(), (failed) => setError(failed.message));
  const group = groups.value?.find((one) => one.thread.thread_id === info.thread_id);
  const { stopped_because: why, status, isHeld } = info; // held by a breakpoint, or a debugger that was left
  return html`${info.last_error && status === "failed" && html`<p class="note bad">${info.last_error}</p>`}
    ${!info.last_error && why && why !== "done" && (isHeld || why !== "interrupted") && html`<p class="note faint">The run stopped: ${why.replaceAll("_", " ")}.</p>`}
    ${(status === "failed" || isHeld) && can("run") && html`<p class="line"><button onClick=${again}>Go on</button> <span class="bad">${error}</span></p>`}
    <${Refusal} thread=${info.thread_id} />
    ${status === "waiting" && !isHeld && (group ? html`<${Questions} group=${group} />` : html`<p class="note">This thread waits for an answer.</p>`)}`;
}

/** @param {{name: string, placeholder: string, isRunning: boolean, say: (text: string, how: string) => Promise<void>}} props */
function Composer({ name, placeholder, isRunning, say: speak }) {
  const key = `wick-say ${name}`;
  const [text, setText] = useState(sessionStorage.getItem(key) ?? "");
  const [how, setHow] = useState("queue");
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const put = (/** @type {string} */ next) => (setText(next), sessionStorage.setItem(key, next));
  const enter = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!text.trim() || isBusy) return;
    setBusy(true);
    setError("");
    try {
      await speak(text, isRunning ? how : "reject");
      put("");
    } catch (failed) {
      setError(/** @type {Error} */ (failed).message);
    }
    setBusy(false);
  };
  const keys = (/** @type {any} */ event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && enter(event);
  return html`<form class="composer" onSubmit=${enter}>
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    <label class="sr" for="say">Message</label>
    <textarea id="say" rows=${Math.min(8, Math.max(2, text.split("\n").length))} value=${text} dir="auto" placeholder=${placeholder}
      onInput=${(/** @type {any} */ event) => put(event.target.value)} onKeyDown=${keys} />
    <button class="main" disabled=${!text.trim() || isBusy}>Send</button>
    ${isRunning && html`<div class="line"><label for="how" class="faint">While it runs</label>
        <select id="how" onChange=${(/** @type {any} */ event) => setHow(event.target.value)}>
          <option value="queue">wait for the end</option><option value="cancel_running">stop it first</option>
        </select></div>`}
  </form>`;
}

/** What is to be said once the run has ended, by thread. */
const queued = signal(/** @type {Record<string, string>} */ (JSON.parse(sessionStorage.getItem("wick-queue") ?? "{}")));

/** @param {string} thread @param {string} text */
function queue(thread, text) {
  const { [thread]: _, ...rest } = queued.peek();
  queued.value = text ? { ...rest, [thread]: text } : rest;
  sessionStorage.setItem("wick-queue", JSON.stringify(queued.value));
}

/** @param {{conversation: Conversation}} props */
function Beside({ conversation }) {
  const { todos, files, usage, cost } = conversation.more.value;
  const info = conversation.info.value;
  const mark = /** @type {Record<string, string>} */ ({ done: "✓", in_progress: "●", pending: "○" });
  const money = cost && typeof cost.cost === "number" ? `${cost.cost.toFixed(4)} ${cost.currency ?? "USD"}` : cost && Object.keys(cost).length > 0 ? JSON.stringify(cost) : "";
  return html`<aside class="beside" aria-label="About this thread">
    ${Array.isArray(todos) && todos.length > 0 && html`<h2>Tasks</h2><ul class="todos">
      ${todos.map((todo) => html`<li class=${todo?.status === "done" ? "faint" : ""}><span aria-hidden="true">${mark[todo?.status] ?? "○"}</span> ${`${todo?.title}`}<span class="sr">: ${`${todo?.status}`}</span></li>`)}</ul>`}
    ${files && Object.keys(files).length > 0 && html`<h2>Files</h2>${Object.entries(files).map(([name, value]) => html`<details key=${name}><summary>${name}</summary><${Value} thread=${encodeURIComponent(conversation.id)} value=${value} /></details>`)}`}
    ${info && html`<${Folder} key=${info.agent} agent=${info.agent} at=${conversation.run} />`}
    <h2>Thread</h2>
    <p class="faint">${usage ? `${counted(usage.calls ?? 0, "model call")}, ${counted(usage.input_tokens ?? 0, "token")} in, ${(usage.output_tokens ?? 0).toLocaleString("en")} out` : "no usage is recorded"}</p>
    ${money && html`<p class="faint">${money}</p>`}
    ${info?.parent && html`<p><a href=${`#/chat/${encodeURIComponent(info.parent)}`}>The thread that made this one</a></p>`}
    <p><a href=${`#${threadPath(conversation.id)}`}>Its run, step by step</a></p>
  </aside>`;
}

/** The files of the agent's own folder, if it has one. @param {{agent: string, at: string}} props */
function Folder({ agent, at }) {
  const [entries, setEntries] = useState(/** @type {any[]} */ ([]));
  const [open, setOpen] = useState(/** @type {any} */ (null));
  const path = `/agents/${encodeURIComponent(agent)}`;
  useEffect(() => {
    ask(path).then((found) => found.backend_type && ask(`${path}/files/list`).then((listing) => setEntries(listing.entries)), () => null).catch(() => null);
  }, [path, at]);
  if (!entries.length) return null;
  const read = (/** @type {string} */ file) => ask(`${path}/files/read`, { path: file }).then(setOpen, (error) => setOpen({ path: file, content: error.message }));
  return html`<h2>Folder of ${agent}</h2><ul class="plain">${entries.slice(0, 100).map((entry) => html`<li key=${entry.path}>
    ${entry.type === "file" ? html`<button class="quiet" aria-expanded=${open?.path === entry.path} onClick=${() => (open?.path === entry.path ? setOpen(null) : read(entry.path))}>${entry.name}</button>` : `${entry.name}/`}
    ${open?.path === entry.path && html`<pre>${open.content}</pre>`}</li>`)}</ul>`;
}

/** A chat in a thread. @param {{thread: string}} props */
export function Chat({ thread }) {
  const conversation = useMemo(() => new Conversation(thread), [thread]);
  const info = conversation.info.value;
  conversation.changed.value;
  const isRunning = conversation.run !== "" && conversation.run !== "over";
  const speak = async (/** @type {string} */ text, /** @type {string} */ how) => {
    if (how === "queue") return queue(thread, text);
    if (how === "cancel_running") await stop();
    await say(conversation.info.peek()?.agent ?? null, text, thread);
    conversation.pending.value = text;
    await conversation.load();
  };
  const stop = () => send("POST", `${conversation.path}/cancel`).catch((error) => void (conversation.failed.value = error.message));
  useEffect(() => {
    conversation.load();
    const end = listen(({ event, data }) => {
      if (event === "connected" || event === "gap" || (data?.thread_id === thread && (event !== "run_started" || data.run_id !== conversation.run))) conversation.load();
    });
    const timer = setInterval(() => conversation.run || document.hidden || peek(conversation), SLOW);
    return () => ((conversation.isClosed = true), conversation.stop(), end(), clearInterval(timer));
  }, [conversation]);
  useEffect(() => {
    const text = queued.value[thread];
    if (!text || !info || conversation.run || info.status === "running") return;
    queue(thread, "");
    speak(text, "reject").catch((error) => (queue(thread, text), (conversation.failed.value = error.message)));
  });
  if (conversation.failed.value && !info) return html`<main class="page"><p class="bad" role="alert">${conversation.failed.value}</p><p><a href="#/">All threads</a></p></main>`;
  if (!info) return html`<main class="page" aria-busy="true"><p class="faint">Loading the conversation …</p></main>`;
  return html`<main class="chat">
    <div class="head"><h1>${info.title || thread}</h1>
      <p class="line faint">${info.agent} <span role="status">${isRunning ? "● running" : info.status === "waiting" ? "◆ waits" : info.status === "failed" ? "✕ failed" : "○ idle"}</span>
        ${isRunning && html`<button onClick=${stop}>Stop</button>`}</p>
      ${conversation.failed.value && html`<p class="bad" role="alert">${conversation.failed.value}</p>`}</div>
    <div class="talk">
      <${Log} conversation=${conversation} />
      ${queued.value[thread] && html`<p class="note line">After this run: ${queued.value[thread].slice(0, 200)} <button onClick=${() => queue(thread, "")}>Drop</button></p>`}
      ${can("run") ? html`<${Composer} name=${thread} isRunning=${isRunning} say=${speak} placeholder="Enter sends, Shift+Enter begins a line" />` : html`<p class="note faint">This token only reads.</p>`}
    </div>
    <${Beside} conversation=${conversation} />
  </main>`;
}

/** Look whether another process has begun a run. @param {Conversation} conversation */
async function peek(conversation) {
  const info = await ask(conversation.path).catch(() => null);
  const known = conversation.info.peek();
  if (info && known && (info.status !== known.status || info.steps !== known.steps)) conversation.load();
}

/** A chat that has not begun. @param {{agent: string}} props */
export function NewChat({ agent }) {
  return html`<main class="page new">
    <h1>A chat with ${agent}</h1>
    <${Composer} name=${`new ${agent}`} isRunning=${false} placeholder="What shall it do?"
      say=${(/** @type {string} */ text) => say(agent, text).then((thread) => void (isAt("new", agent) && go(thread)))} />
  </main>`;
}
