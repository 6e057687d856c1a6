// The agents: what each is made of, its graph, and the beginning of a chat with it.
import { html, signal, useEffect, useState } from "./vendor/preact.js";
import { ask, can } from "./api.js";
import { Graph } from "./graph.js";
import { counted, Value } from "./values.js";

/** @type {import("./vendor/preact.js").Signal<any[] | null>} */
export const agents = signal(/** @type {any[] | null} */ (null));
const failed = signal("");

export const loadAgents = () => ask("/agents").then((found) => ((agents.value = found), (failed.value = "")), (error) => (failed.value = error.message));

/** Links that begin a chat. @param {{all: any[]}} props */
export const Beginnings = ({ all }) => html`<ul class="plain">${all.map((one) => html`<li key=${one.agent_id}><a class="button" href=${`#/new/${encodeURIComponent(one.agent_id)}`}>Chat with ${one.agent_id}</a></li>`)}</ul>`;

export function Agents() {
  useEffect(() => void loadAgents(), []);
  const found = agents.value;
  return html`<main class="page">
    <h1>Agents</h1>
    ${failed.value && html`<p class="bad" role="alert">${failed.value}</p>`}
    ${!found && !failed.value && html`<p class="faint" aria-busy="true">Loading the agents …</p>`}
    ${found?.length === 0 && html`<p>No agent is served. <code>wick init</code> writes one, <code>wick ui module:name</code> serves one from Python.</p>`}
    <ul class="cards">${(found ?? []).map((one) => html`<li key=${one.agent_id} class="card">
      <h2><a href=${`#/agents/${encodeURIComponent(one.agent_id)}`}>${one.agent_id}</a></h2>
      <p>${one.error || one.model}</p>
      <p class="faint">${[counted(one.tools.length, "tool"), counted(one.hooks.length, "hook"), one.subagents.length > 0 && counted(one.subagents.length, "sub-agent"), one.has_interrupt_on && "asks for approval"].filter((part) => part).join(" · ")}</p>
      ${one.system_prompt && html`<p class="faint prompt">${one.system_prompt}</p>`}
      ${can("run") && html`<p><a class="button" href=${`#/new/${encodeURIComponent(one.agent_id)}`}>Start a chat<span class="sr"> with ${one.agent_id}</span></a></p>`}
    </li>`)}</ul>
  </main>`;
}

/** @param {{agent: string}} props */
export function Agent({ agent }) {
  const [about, setAbout] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  const path = `/agents/${encodeURIComponent(agent)}`;
  useEffect(() => {
    Promise.all([ask(path), ask(`${path}/flow`)]).then(([info, flow]) => setAbout({ info, flow }), (failure) => setError(failure.message));
  }, [path]);
  if (error) return html`<main class="page"><p class="bad" role="alert">${error}</p><p><a href="#/agents">All agents</a></p></main>`;
  if (!about) return html`<main class="page" aria-busy="true"><p class="faint">Loading the agent …</p></main>`;
  const { info, flow } = about;
  const limits = Object.fromEntries(flow.graph.nodes.flatMap((/** @type {any} */ node) => Object.entries(node.facts)).filter((/** @type {any} */ [, value]) => typeof value === "number"));
  return html`<main class="page wide-page">
    <h1>${agent}</h1>
    <p class="line"><span>${info.model}</span> ${can("run") && html`<a class="button" href=${`#/new/${encodeURIComponent(agent)}`}>Start a chat</a>`}</p>
    ${info.system_prompt && html`<p class="faint prompt">${info.system_prompt}</p>`}
    <h2>Limits</h2><${Value} thread="" value=${limits} />
    <h2>Tools</h2>
    ${!flow.tools.length && html`<p class="faint">It has none.</p>`}
    ${flow.tools.map((/** @type {string} */ name) => html`<details key=${name}><summary><code>${name}</code> <span class="faint">${flow.schemas[name]?.properties ? Object.keys(flow.schemas[name].properties).join(", ") : ""}</span></summary>
      <${Value} thread="" value=${flow.schemas[name] ?? {}} /></details>`)}
    <h2>Hooks, the outermost first</h2>
    ${flow.hooks.length ? html`<ol>${flow.hooks.map((/** @type {any} */ hook) => html`<li key=${hook.name}><code>${hook.name}</code> <span class="faint">${hook.phases.join(", ")}</span></li>`)}</ol>` : html`<p class="faint">It has none.</p>`}
    ${info.subagents.length > 0 && html`<h2>Sub-agents</h2><ul>${info.subagents.map((/** @type {string} */ name) => html`<li><a href=${`#/agents/${encodeURIComponent(name)}`}>${name}</a></li>`)}</ul>`}
    <h2>Graph</h2>
    <${Graph} of=${path} node=${null} />
  </main>`;
}
