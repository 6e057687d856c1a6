// What is recorded of one moment: what changed, the state, the request with its sources, and why.
import { html, useEffect, useState } from "./vendor/preact.js";
import { ask, isFile, lacks, tabOf, threadPath } from "./api.js";
import { Graph } from "./graph.js";
import { Lanes } from "./lanes.js";
import { counted, Value } from "./values.js";

const REST = 120; // milliseconds on a moment before it is asked for

/** Ask for something of a moment, once the cursor rests on it.
 * @param {string} thread @param {number} seq @param {string} what
 * @param {Record<string, string | number>} [query] */
function useAnswer(thread, seq, what, query) {
  const key = `${thread} ${seq} ${what} ${JSON.stringify(query)}`;
  const [held, setHeld] = useState(/** @type {{key: string, answer?: any, error?: string}} */ ({ key: "" }));
  useEffect(() => {
    const stop = new AbortController();
    const later = setTimeout(() => {
      ask(`/threads/${thread}/moments/${seq}${what}`, query, stop.signal).then(
        (answer) => setHeld({ key, answer }),
        (error) => stop.signal.aborted || setHeld({ key, error: error.message }),
      );
    }, held.key ? REST : 0);
    return () => (clearTimeout(later), stop.abort());
  }, [key]);
  return { ...held, isOld: held.key !== key };
}

/** Show an answer, the reason why there is none, or that it is awaited.
 * @param {ReturnType<typeof useAnswer>} found @param {(answer: any) => any} show */
function shown(found, show) {
  if (found.isOld && !found.answer) return html`<p class="faint" aria-busy="true">Loading …</p>`;
  if (found.error) return html`<p class="bad" role="alert">${found.error}</p>`;
  return html`<div aria-busy=${found.isOld}>${show(found.answer)}</div>`;
}

/** @typedef {{thread: string, seq: number, go: (seq: number) => void, node: string | null, row?: any, moments?: any, does?: any}} Props */

/** @param {Props & {path: string}} props */
function Why({ thread, seq, go, path }) {
  const found = useAnswer(thread, seq, "/why", { path });
  return shown(found, (answer) => html`<ol class="why" aria-label=${`Why ${path}`}>
    ${answer.causes.map(
      (/** @type {any} */ cause) => html`<li>
        ${cause.text} ${cause.thread_id
          ? html`<a href=${`#${threadPath(cause.thread_id)}/${cause.seq}`}>Go to ${cause.thread_id}</a>`
          : html`<button onClick=${() => go(cause.seq)}>Go to ${cause.seq}</button>`}
      </li>`,
    )}
  </ol>`);
}

/** @param {Props & {change: any, at: number}} props */
function Change({ thread, at, go, node, change }) {
  const [asks, setAsks] = useState(false);
  return html`<li class=${`change ${change.op}`}>
    <p class="line">
      <b>${{ add: "+ added", remove: "− removed", change: "~ changed" }[/** @type {"add"} */ (change.op)]}</b>
      <code>${change.path}</code>
      ${change.op !== "remove" && !isFile && html`<button aria-expanded=${asks} onClick=${() => setAsks(!asks)}>Why?</button>`}
    </p>
    ${change.op !== "add" && html`<div class="before"><${Value} thread=${thread} value=${change.before} /></div>`}
    ${change.op !== "remove" && html`<div class="after"><${Value} thread=${thread} value=${change.after} /></div>`}
    ${asks && html`<${Why} thread=${thread} seq=${at} go=${go} node=${node} path=${change.path} />`}
  </li>`;
}

/** @param {Props} props */
function Changes(props) {
  const [to, setTo] = useState(0);
  const changes = useAnswer(props.thread, props.seq, "/diff", to ? { to } : undefined);
  const writes = useAnswer(props.thread, props.seq, "/writes");
  return html`<form class="row-form" onSubmit=${(/** @type {any} */ event) => (event.preventDefault(), setTo(Number(event.target.elements.to.value)))}>
      <label for="to">Up to moment</label><input id="to" name="to" type="number" min="1" placeholder="the end of this step" /><button>Show</button>
    </form>
    ${shown(changes, (answer) =>
      answer.changes.length
        ? html`<ul class="changes">
            ${answer.changes.map((/** @type {any} */ change) => html`<${Change} key=${`${props.seq} ${change.path}`} ...${props} change=${change} at=${answer.at} />`)}
          </ul>`
        : html`<p>${to ? "Nothing is different there." : "This step changed nothing."}</p>`)}
    ${!writes.error && writes.answer?.writes.length > 0 &&
      html`<h2>Written in this step, not yet in the state</h2>
        ${writes.answer.writes.map(
          (/** @type {any} */ write) => html`<p><code>${write.channel}</code> by ${write.node}</p>
            <${Value} thread=${props.thread} value=${write.value} />`,
        )}`}`;
}

/** @param {Props} props */
function State(props) {
  const [path, setPath] = useState("");
  const [typed, setTyped] = useState("");
  const [offset, setOffset] = useState(0);
  const found = useAnswer(props.thread, props.seq, "/state", { path, offset });
  const look = (/** @type {Event} */ event) => (event.preventDefault(), setOffset(0), setPath(typed.trim()));
  return html`<form class="row-form" onSubmit=${look}>
      <label for="path">Path</label>
      <input id="path" value=${typed} placeholder="messages[-1].content" autocomplete="off"
        onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} />
      <button>Show</button>
    </form>
    ${shown(found, (answer) => html`
      ${answer.total !== null && answer.total > 100 &&
        html`<p class="line faint">
          ${answer.offset + 1} to ${Math.min(answer.offset + 100, answer.total)} of ${counted(answer.total, "item")}
          <button disabled=${!offset} onClick=${() => setOffset(Math.max(0, offset - 100))}>Earlier</button>
          <button disabled=${offset + 100 >= answer.total} onClick=${() => setOffset(offset + 100)}>Later</button>
        </p>`}
      <${Value} thread=${props.thread} value=${answer.value} />
      ${answer.path && !isFile && html`<h2>Why</h2><${Why} ...${props} path=${answer.path} />`}`)}`;
}

/** @param {Props & {part: any}} props */
function Part({ thread, go, part }) {
  const verb = { kept: "from", added: "added by", dropped: "dropped by" }[/** @type {"kept"} */ (part.op)];
  return html`<li class=${part.op}>
    <p class="line">
      <b>${part.part === "setting" ? part.name : part.part}</b>
      <span class="source">${verb ?? part.op} ${part.by}</span>
      ${part.seq !== null && html`<button onClick=${() => go(part.seq)}>Go to ${part.seq}</button>`}
    </p>
    <${Value} thread=${thread} value=${part.value} />
  </li>`;
}

const PARTS = 50;

/** @param {Props} props */
function Request(props) {
  const [offset, setOffset] = useState(-1);
  const head = useAnswer(props.thread, props.seq, "/request");
  const query = offset < 0 ? { limit: PARTS } : { limit: PARTS, offset };
  const blame = useAnswer(props.thread, props.seq, "/blame", /** @type {any} */ (query));
  const said = { at: "of this moment", before: "the last before this moment", after: "the next after this moment" };
  if (head.error) return html`<p class="bad" role="alert">${head.error}</p>`;
  return html`${shown(head, (answer) => html`<h2>Request ${said[/** @type {"at"} */ (answer.when)]}</h2>
      <p>
        ${answer.model} · ${answer.purpose} · ${counted(answer.messages, "message")} · moment ${answer.seq} ·
        ${" "}${answer.exact ? "exactly what was sent" : answer.note}
      </p>`)}
    ${shown(blame, (answer) => html`<p class="line faint">
        Parts ${answer.offset + 1} to ${answer.offset + answer.parts.length} of ${answer.total}
        <button disabled=${!answer.offset} onClick=${() => setOffset(Math.max(0, answer.offset - PARTS))}>Earlier</button>
        <button disabled=${answer.offset + answer.parts.length >= answer.total}
          onClick=${() => setOffset(answer.offset + PARTS)}>Later</button>
      </p>
      <ol class="parts">
        ${answer.parts.map((/** @type {any} */ part) => html`<${Part} ...${props} part=${part} />`)}
      </ol>`)}`;
}

/** @param {Props} props */
function Moment(props) {
  const found = useAnswer(props.thread, props.seq, "");
  const child = props.row?.kind === "agent" && found.answer?.facts.thread;
  const below = isFile ? found.answer?.below : typeof child === "string" && `#${threadPath(child)}`;
  return shown(found, (answer) => html`
    <p><code>${answer.position}</code></p>
    <pre>${answer.line.trim()}</pre>
    ${below && html`<p><a href=${below}>The sub-agent's run</a></p>`}
    ${answer.call && html`<h2>Call</h2><${Value} thread=${props.thread} value=${answer.call} />`}
    <h2>Stack</h2>
    <ol class="stack">
      ${answer.stack.map(
        (/** @type {any} */ frame) => html`<li>
          ${frame.text}
          ${frame.seq !== props.seq && html` <button onClick=${() => props.go(frame.seq)}>Go to ${frame.seq}</button>`}
        </li>`,
      )}
    </ol>
    ${Object.keys(answer.facts).length > 0 &&
      html`<h2>Recorded</h2><${Value} thread=${props.thread} value=${answer.facts} />`}`);
}

/** @param {Props} props */
function Preview(props) {
  const found = useAnswer(props.thread, props.seq, "/preview");
  return html`<p>A fork from here would run this again. Nothing is run by looking.</p>
    ${shown(found, (answer) => html`<ol class="plan">
      ${answer.will_execute.map(
        (/** @type {any} */ one) => html`<li class=${one.side_effects && one.policy === "live" ? "bad" : ""}>
          ${one.text}
        </li>`,
      )}
    </ol>
    ${answer.total > answer.will_execute.length && html`<p class="faint">and ${answer.total - answer.will_execute.length} more</p>`}`)}`;
}

/** @param {Props} props */
function Tokens(props) {
  const found = useAnswer(props.thread, props.seq, "/tokens");
  return shown(found, (answer) => answer.rows.length
    ? html`<table class="tokens"><thead><tr><th scope="col">Where</th><th scope="col">Model</th><th scope="col">In</th><th scope="col">Out</th><th scope="col">Total</th></tr></thead>
        <tbody>${answer.rows.slice(-200).map((/** @type {any} */ row) => html`<tr><td>${row.position.split("/").at(-1)}</td><td>${row.model}</td>
          ${[row.input, row.output, row.total].map((count) => html`<td class="number">${count.toLocaleString("en")}</td>`)}</tr>`)}</tbody></table>`
    : html`<p>No model has answered yet.</p>`);
}

/** @param {Props} props */
function Route(props) {
  const found = useAnswer(props.thread, props.seq, "/route");
  return shown(found, (answer) => html`<p><b>${answer.chosen}</b>: ${answer.reason}
      ${answer.seq !== props.seq && html` <button onClick=${() => props.go(answer.seq)}>Go to ${answer.seq}</button>`}</p>
    <table><thead><tr><th scope="col">Edge</th><th scope="col">if</th><th scope="col">Reads</th><th scope="col">Holds</th></tr></thead>
      <tbody>${answer.candidates.map((/** @type {any} */ one) => html`<tr class=${one.result ? "chosen" : ""}>
        <td>${one.label}</td><td>${one.predicate}</td><td><code>${one.reads}</code></td><td>${one.result === null ? "not asked" : one.result ? "yes" : "no"}</td></tr>`)}</tbody></table>`);
}

const TABS = /** @type {Record<string, (props: any) => any>} */ ({
  Changes, Request, State, Moment, Graph, Lanes, Route, Tokens, Preview,
});

const names = Object.keys(TABS).filter((name) => !lacks.includes(name));

/** @param {Props} props */
export function Inspector(props) {
  const [tab, setTab] = useState(names.includes(tabOf()) ? tabOf() : "Changes");
  const turn = (/** @type {KeyboardEvent} */ event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.stopPropagation();
    const next = names[(names.indexOf(tab) + by + names.length) % names.length];
    setTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return html`<section class="inspector" aria-label="The chosen moment">
    <div role="tablist" aria-label="About the moment" onKeyDown=${turn}>
      ${names.map(
        (name) => html`<button role="tab" id=${`tab-${name}`} aria-selected=${name === tab}
          aria-controls="panel" tabindex=${name === tab ? 0 : -1} onClick=${() => setTab(name)}>${name}</button>`,
      )}
    </div>
    <div role="tabpanel" id="panel" tabindex="0" aria-labelledby=${`tab-${tab}`}>
      <${TABS[tab]} key=${tab} ...${props} />
    </div>
  </section>`;
}
