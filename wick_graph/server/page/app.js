// The page: which view is shown, and the bar above it.
import { effect, html, render, signal, useEffect } from "./vendor/preact.js";
import { address, can, identify, signOut, who } from "./api.js";
import { Agent, Agents } from "./agents.js";
import { Approvals, groups, watch } from "./approvals.js";
import { Chat, NewChat } from "./chat.js";
import { Compare } from "./compare.js";
import { Run } from "./run.js";
import { NewRun } from "./session.js";
import { connect, isOnline } from "./stream.js";
import { SignIn, Threads } from "./threads.js";
import { Gateway, Trace, Traces } from "./traces.js";

/** The parts of the address after the sign `#`. */
const place = signal(/** @type {string[]} */ ([]));
const read = () => {
  place.value = address();
};

function View() {
  const [view, name, seq] = place.value;
  if (view === "threads" && name) return html`<${Run} key=${name} thread=${name} seq=${Number(seq) || 0} />`;
  if (view === "chat" && name) return html`<${Chat} key=${name} thread=${name} />`;
  if (view === "new") return name ? html`<${NewChat} key=${name} agent=${name} />` : html`<${NewRun} />`;
  if (view === "agents") return name ? html`<${Agent} key=${name} agent=${name} />` : html`<${Agents} />`;
  if (view === "approvals") return html`<${Approvals} />`;
  if (view === "traces") return name ? html`<${Trace} key=${name} id=${name} />` : html`<${Traces} />`;
  if (view === "compare") return html`<${Compare} parts=${place.value.slice(1)} />`;
  if (view === "gateway") return html`<${Gateway} />`;
  return html`<${Threads} />`;
}

/** The views of the bar: the address, the name, and the scope that one needs. */
const VIEWS = [["", "Threads"], ["agents", "Agents"], ["approvals", "Approvals"], ["traces", "Traces"], ["compare", "Compare"],
  ["new", "New run", "debug"], ["gateway", "Gateway", "admin"]];

/** The address of the view in the bar that the place belongs to. */
function under() {
  const [view, name] = place.value;
  if (view === "threads" || view === "chat") return "";
  return view === "new" && name ? "agents" : view ?? "";
}

function Nav() {
  const waits = (groups.value ?? []).reduce((sum, group) => sum + group.questions.length, 0);
  return html`<nav aria-label="Views">
    ${VIEWS.filter(([, , scope]) => !scope || can(scope)).map(([path, name]) => html`<a href=${`#/${path}`} aria-current=${path === under() ? "page" : undefined}>
      ${name}${path === "approvals" && waits > 0 && html` <span class="count">${waits}<span class="sr"> waiting</span></span>`}</a>`)}
  </nav>`;
}

function App() {
  const [view, name] = place.value;
  useEffect(() => { // the next Tab goes on in the new view, not in the bar again
    const main = document.querySelector("main");
    if (!who.value || !main || main.contains(document.activeElement)) return;
    main.tabIndex = -1;
    main.focus({ preventScroll: true });
  }, [view, name, who.value]);
  if (who.value === undefined) return html`<p class="faint" aria-busy="true">Loading …</p>`;
  if (who.value === null) return html`<${SignIn} />`;
  return html`<header class="bar">
      <a href="#/" class="brand">wick</a>
      <${Nav} />
      <span role="status" class="bad">${!isOnline.value && "The server is not reached; trying again."}</span>
      <span class="faint who">${who.value.tenant} · ${who.value.scopes.join(", ")}</span>
      <button onClick=${signOut}>Sign out</button>
    </header>
    <${View} />`;
}

addEventListener("hashchange", read);
await identify();
read();
const root = /** @type {HTMLElement} */ (document.getElementById("app"));
effect(() => void (who.value && (connect(), watch())));
effect(() => void (document.title = place.value[1] ? `${place.value[1]} · wick` : "wick"));
render(html`<${App} />`, root);
