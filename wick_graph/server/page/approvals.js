// All that waits for a person, over all threads: a form for each call, and one answer for each thread.
import { html, signal, useEffect, useRef } from "./vendor/preact.js";
import { ask, begin, can, current, threadPath } from "./api.js";
import { listen } from "./stream.js";
import { counted, plain, Value } from "./values.js";

/** @typedef {{id: string, thread_id: string, interrupt_id: string, kind: string, prompt: any, options: any[], value: any}} Question */
/** @typedef {{thread: any, questions: Question[]}} Group */
/** What a person has written so far: `is` is the decision once it is made. @typedef {{is?: string, opens?: string, args?: Record<string, string>, message?: string}} Draft */

/** @type {import("./vendor/preact.js").Signal<Group[] | null>} */
export const groups = signal(/** @type {Group[] | null} */ (null));
const failed = signal("");
/** What the server says of an answer, by thread. @type {import("./vendor/preact.js").Signal<Record<string, string>>} */
const refused = signal(/** @type {Record<string, string>} */ ({}));
const KEY = "wick-drafts";
/** @type {import("./vendor/preact.js").Signal<Record<string, Draft>>} */
const drafts = signal(JSON.parse(sessionStorage.getItem(KEY) ?? "{}"));

/** The agents below that ask; data of a graph may have anything here. @param {Question} question @returns {string[]} */
const agentsOf = (question) => (Array.isArray(question.value?.agents) ? question.value.agents.map(String) : []);

/** @param {Question} question */
const isCall = (question) => question.kind === "approval" && typeof question.value?.tool === "string" && Object(question.value.args) === question.value.args;

/** @param {Question} question */
const keyOf = (question) => `${question.id} ${question.value?.hash ?? ""}`;

/** @param {Question} question @param {Draft | null} draft what changes, or null for nothing left */
function write(question, draft) {
  const { [keyOf(question)]: known, ...rest } = drafts.value;
  drafts.value = draft ? { ...rest, [keyOf(question)]: { ...known, ...draft } } : rest;
  sessionStorage.setItem(KEY, JSON.stringify(drafts.value));
}

async function waiting() {
  const threads = await ask("/threads", { status: "waiting", limit: 100 });
  return Promise.all(
    threads.map(async (/** @type {any} */ thread) => ({
      thread,
      questions: await ask(`${threadPath(thread.thread_id)}/approvals`).catch(() => []),
    })),
  );
}

let due = 0;
let begun = 0; // looks
let shown = 0; // the last look that was shown; one that it overtook shows nothing

/** Look at what waits now. */
export async function look() {
  const own = ++begun;
  const overtaken = () => own < shown || !(shown = own); // else it is shown
  try {
    const found = await current(waiting);
    if (overtaken()) return;
    const asked = found.flatMap(({ thread, questions }) => questions.map((/** @type {Question} */ one) => `${thread.thread_id} ${agentsOf(one).at(-1)} ${one.value?.tool}`));
    groups.value = found.filter(({ thread, questions }) => {
      const tool = questions[0]?.value?.tool; // a child's question is its parent's too
      return questions.length && !(thread.parent && asked.includes(`${thread.parent} ${thread.agent} ${tool}`));
    });
    failed.value = "";
  } catch (error) {
    if (!overtaken()) failed.value = /** @type {Error} */ (error).message;
  }
}

let isWatched = false;

/** Keep the list of what waits up to date. */
export function watch() {
  if (isWatched) return;
  isWatched = true;
  look();
  listen(() => (due ||= setTimeout(() => ((due = 0), look()), 300)));
}

/** @param {any} schema */
const kindOf = (schema) => (Array.isArray(schema?.enum) ? "enum" : ["string", "boolean"].includes(schema?.type) ? schema.type : "json");

/** @param {any} value @param {any} schema */
const written = (value, schema) => (kindOf(schema) === "string" && typeof value === "string" ? value : JSON.stringify(value));

/** The arguments as a person has changed them, or why they cannot be read.
 * @param {Question} question @param {any} schema @returns {{args: any, changed: string[], error: string}} */
function edited(question, schema) {
  const args = { ...question.value?.args };
  const given = drafts.value[keyOf(question)]?.args ?? {};
  let error = "";
  for (const [name, text] of Object.entries(given)) {
    const isText = kindOf(schema?.properties?.[name]) === "string" && (typeof args[name] === "string" || !(name in args));
    try {
      if (text === "" && !isText) delete args[name];
      else args[name] = isText ? text : JSON.parse(text);
    } catch {
      error = `${name}: write JSON, such as 5, "text" or [1, 2]`;
    }
  }
  const changed = [...new Set([...Object.keys(args), ...Object.keys(question.value?.args ?? {})])].filter(
    (name) => JSON.stringify(args[name]) !== JSON.stringify(question.value?.args?.[name]),
  );
  return { args, changed, error };
}

/** @param {{question: Question, name: string, schema: any, isDone: boolean}} props */
function Field({ question, name, schema, isDone }) {
  const id = `${question.id} ${name}`.replace(/\s/g, "-");
  const value = question.value?.args?.[name];
  const text = drafts.value[keyOf(question)]?.args?.[name] ?? (value === undefined ? "" : written(value, schema));
  const put = (/** @type {string} */ next) => write(question, { args: { ...drafts.value[keyOf(question)]?.args, [name]: next } });
  const input = (/** @type {any} */ event) => put(event.target.value);
  const kind = value !== undefined && schema?.type === "string" && typeof value !== "string" ? "json" : kindOf(schema);
  const options = kind === "boolean" ? [true, false] : schema?.enum;
  return html`<label for=${id}>${name}</label>
    ${options && kind !== "string" && kind !== "json"
      ? html`<select id=${id} disabled=${isDone} onChange=${input}>
          ${[...new Set([text, ...options.map((/** @type {any} */ one) => JSON.stringify(one))])].map((one) => html`<option value=${one} selected=${one === text}>${one}</option>`)}
        </select>`
      : html`<textarea id=${id} disabled=${isDone} rows=${Math.min(8, text.split("\n").length)} spellcheck="false"
          value=${text} onInput=${input} title=${typeof schema?.description === "string" ? schema.description : name} />`}
    ${plain(text) !== text && html`<b class="bad">Exact</b><${Value} thread="" value=${text} />`}`;
}

/** @type {import("./vendor/preact.js").Signal<Record<string, any>>} */
const schemas = signal(/** @type {Record<string, any>} */ ({}));

/** Ask once for the schemas of an agent's tools. @param {string} agent */
function needed(agent) {
  if (!agent || agent in schemas.peek()) return;
  schemas.value = { ...schemas.peek(), [agent]: {} };
  ask(`/agents/${encodeURIComponent(agent)}/flow`).then((flow) => (schemas.value = { ...schemas.peek(), [agent]: flow.schemas }), () => null);
}

/** @param {{question: Question, agent: string, title: string, decide: (question: Question) => void}} props */
function Call({ question, agent, title, decide }) {
  const of = agentsOf(question).at(-1) ?? agent;
  useEffect(() => needed(of), [of]);
  const draft = drafts.value[keyOf(question)] ?? {};
  const schema = schemas.value[of]?.[question.value?.tool];
  const { changed, args, error } = edited(question, schema);
  const names = [...new Set([...Object.keys(question.value?.args ?? {}), ...Object.keys(schema?.properties ?? {})])];
  const isDone = draft.is !== undefined;
  const may = can("approve");
  const end = (/** @type {string} */ is) => (write(question, { is }), decide(question));
  const keys = (/** @type {any} */ event) => {
    if (event.target.matches("textarea, select, input") || event.ctrlKey || event.metaKey || event.altKey || isDone || !may) return;
    if (event.key === "a" && !error) end(changed.length ? "edit" : "approve");
    else if (event.key === "r") write(question, { opens: "reject" });
    else return;
    event.preventDefault();
  };
  const texts = { reject: "Reason, which the model reads", respond: "Result, which the model reads" };
  const opens = /** @type {"reject" | "respond" | undefined} */ (draft.opens);
  return html`<article class=${`question${isDone ? " decided" : ""}`} aria-label=${title} onKeyDown=${keys}>
    <p class="line"><b>${question.value?.tool}</b> <span class="faint">${question.value?.why}${agentsOf(question).length > 0 && ` · asked by ${agentsOf(question).join(" › ")}`}</span></p>
    <div class="fields">
      ${names.map((name) => html`<${Field} key=${name} question=${question} name=${name} schema=${schema?.properties?.[name]} isDone=${isDone || !may} />`)}
    </div>
    ${changed.length > 0 && html`<ul class="changes" aria-label="What you changed">
      ${changed.map((name) => html`<li class="change">
        <code>${name}</code>
        <div class="before"><span class="sr">before: </span><${Value} thread=${question.thread_id} value=${question.value?.args?.[name] ?? null} /></div>
        <div class="after"><span class="sr">after: </span><${Value} thread=${question.thread_id} value=${args[name] ?? null} /></div>
      </li>`)}
    </ul>`}
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    ${opens && !isDone && html`<div class="fields"><label for=${`m-${question.id}`}>${texts[opens]}</label>
      <textarea id=${`m-${question.id}`} rows="2" value=${draft.message ?? ""} onInput=${(/** @type {any} */ event) => write(question, { message: event.target.value })} /></div>`}
    <p class="line">
      ${isDone
        ? html`<span class="good">✓ ${{ approve: "Approved", edit: "Approved with changes", reject: "Rejected", respond: "Answered" }[/** @type {"edit"} */ (draft.is)]}</span>
            <button data-undo onClick=${() => write(question, { is: undefined, opens: undefined })}>Undo</button>`
        : opens
          ? html`<button class="main" onClick=${() => end(opens)}>${opens === "reject" ? "Reject" : "Answer"}</button>
              <button onClick=${() => write(question, { opens: undefined })}>Back</button>`
          : html`<button class="main" data-first disabled=${!may || error !== ""} onClick=${() => end(changed.length ? "edit" : "approve")}>
                ${changed.length ? "Approve with changes" : "Approve"}</button>
              <button disabled=${!may} onClick=${() => write(question, { opens: "reject" })}>Reject …</button>
              <button disabled=${!may} onClick=${() => write(question, { opens: "respond" })}>Answer for it …</button>
              ${changed.length > 0 && html`<button onClick=${() => write(question, { args: {} })}>Undo changes</button>`}`}
    </p>
  </article>`;
}

/** A question that is no call: of a tool, or of a graph. @param {{question: Question, title: string, decide: (question: Question) => void}} props */
function Asked({ question, title, decide }) {
  const draft = drafts.value[keyOf(question)] ?? {};
  const may = can("run");
  const name = (/** @type {any} */ option) => (typeof option === "string" ? option : option?.label ?? JSON.stringify(option));
  const end = (/** @type {string} */ message) => (write(question, { is: "answer", message }), decide(question));
  return html`<article class="question" aria-label=${title}>
    <${Value} thread=${question.thread_id} value=${question.prompt ?? question.value} />
    <p class="line">${question.options.map((option) => html`<button disabled=${!may} onClick=${() => end(name(option))}>${name(option)}</button>`)}</p>
    <div class="fields"><label for=${`m-${question.id}`}>Answer</label>
      <textarea id=${`m-${question.id}`} rows="2" disabled=${!may} value=${draft.message ?? ""} onInput=${(/** @type {any} */ event) => write(question, { message: event.target.value })} /></div>
    <p class="line"><button class="main" data-first disabled=${!may || !draft.message} onClick=${() => end(draft.message ?? "")}>Send</button></p>
  </article>`;
}

/** @param {Question} question */
function answerOf(question) {
  const draft = drafts.peek()[keyOf(question)] ?? {};
  if (draft.is === "answer") return draft.message ?? "";
  const made = { decision: draft.is, hash: question.value?.hash };
  if (draft.is === "edit") {
    const agent = agentsOf(question).at(-1) ?? groups.peek()?.find((group) => group.questions.includes(question))?.thread.agent;
    return { ...made, args: edited(question, schemas.peek()[agent]?.[question.value.tool]).args };
  }
  return draft.is === "approve" ? made : { ...made, message: draft.message ?? "" };
}

const sending = signal(/** @type {string[]} */ ([]));

/** Send what is decided of a thread: its run goes on. @param {Group} group */
async function sendAll({ thread, questions }) {
  const id = thread.thread_id;
  const made = questions.filter((question) => drafts.peek()[keyOf(question)]?.is);
  if (!made.length || sending.peek().includes(id)) return;
  sending.value = [...sending.peek(), id];
  refused.value = { ...refused.peek(), [id]: "" };
  try {
    const answer = Object.fromEntries(made.map((question) => [question.interrupt_id, answerOf(question)]));
    await begin(thread.agent ? `/agents/${encodeURIComponent(thread.agent)}/resume` : "/agents/resume", { thread_id: id, answer, stream: true });
    const answered = made.map(keyOf);
    made.forEach((question) => write(question, null));
    groups.value = (groups.peek() ?? []).map((one) => ({ ...one, questions: one.questions.filter((question) => !answered.includes(keyOf(question))) })).filter((one) => one.questions.length);
  } catch (error) {
    made.forEach((question) => write(question, { is: undefined }));
    refused.value = { ...refused.peek(), [id]: /** @type {Error} */ (error).message };
    await look();
  }
  sending.value = sending.peek().filter((one) => one !== id);
}

/** The questions of one thread. @param {{group: Group}} props */
export function Questions({ group }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const { thread, questions } = group;
  const decided = questions.filter((question) => drafts.value[keyOf(question)]?.is).length;
  const decide = () => {
    if (questions.every((question) => drafts.peek()[keyOf(question)]?.is)) sendAll(group);
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const next = box.current?.querySelector("[data-first]") ?? document.querySelector(".question [data-first]");
      /** @type {HTMLElement | null} */ (next ?? document.querySelector("main h1"))?.focus();
    }));
  };
  return html`<div ref=${box}>
    ${questions.map((question, at) => {
      const title = `${isCall(question) ? question.value.tool : "Question"}, ${at + 1} of ${questions.length} in ${thread.title || thread.thread_id}`;
      return isCall(question)
        ? html`<${Call} key=${question.id} question=${question} agent=${thread.agent ?? ""} title=${title} decide=${decide} />`
        : html`<${Asked} key=${question.id} question=${question} title=${title} decide=${decide} />`;
    })}
    ${decided > 0 && decided < questions.length && html`<p class="line">
      ${decided} of ${questions.length} are decided; all go together. <button onClick=${() => sendAll(group)}>Send ${counted(decided, "decision")} now</button></p>`}
  </div>`;
}

/** What the server said of a thread's answer. @param {{thread: string}} props */
export function Refusal({ thread }) {
  return html`<p class="bad" role="alert">${refused.value[thread]}</p>`;
}

export function Approvals() {
  const found = groups.value;
  const gone = Object.entries(refused.value).filter(([id, text]) => text && !found?.some((one) => one.thread.thread_id === id));
  return html`<main class="page">
    <h1 tabindex="-1">Approvals</h1>
    ${failed.value && html`<p class="bad" role="alert">${failed.value}</p>`}
    ${gone.map(([id, text]) => html`<p class="bad" role="alert">${text} <a href=${`#/chat/${encodeURIComponent(id)}`}>Look at the thread</a></p>`)}
    ${!found ? html`<p class="faint" aria-busy="true">Loading …</p>` : !found.length && html`<p>Nothing waits for you.</p>`}
    ${found && found.length > 0 && html`<p class="faint">In a question, <kbd>a</kbd> approves and <kbd>r</kbd> rejects. What you write stays in this tab until you send it.</p>`}
    ${(found ?? []).map((group) => html`<section key=${group.thread.thread_id} class="card">
      <h2><a href=${`#/chat/${encodeURIComponent(group.thread.thread_id)}`}>${group.thread.title || group.thread.thread_id}</a> <span class="faint">${group.thread.agent}</span></h2>
      <${Refusal} thread=${group.thread.thread_id} />
      <${Questions} group=${group} />
    </section>`)}
  </main>`;
}
