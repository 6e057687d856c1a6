// The page: which view is shown, and the bar above it.
import { effect, html, render, signal } from "./vendor/preact.js";
import { begin, signOut, who } from "./api.js";
import { Compare } from "./compare.js";
import { Run } from "./run.js";
import { NewRun } from "./session.js";
import { SignIn, Threads } from "./threads.js";
import { Gateway, Trace, Traces } from "./traces.js";

/** The parts of the address after the sign `#`. */
const place = signal(/** @type {string[]} */ ([]));
const read = () => {
  place.value = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
};

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function View() {
  const [view, thread, seq] = place.value;
  if (view === "threads" && thread) {
    return html`<${Run} key=${thread} thread=${thread} seq=${Number(seq) || 0} />`;
  }
  if (view === "compare") return html`<${Compare} parts=${place.value.slice(1)} />`;
  if (view === "traces") return thread ? html`<${Trace} key=${thread} id=${thread} />` : html`<${Traces} />`;
  if (view === "gateway") return html`<${Gateway} />`;
  if (view === "new") return html`<${NewRun} />`;
  return html`<${Threads} />`;
}

/** The views of the bar, by their addresses; the gateway's is for those who run it. */
const VIEWS = [["", "Threads"], ["traces", "Traces"], ["compare", "Compare"], ["new", "New run"], ["gateway", "Gateway"]];
const NEEDS = /** @type {Record<string, string>} */ ({ gateway: "admin", new: "debug" });

function App() {
  if (who.value === undefined) return html`<p class="faint" aria-busy="true">Loading …</p>`;
  if (who.value === null) return html`<${SignIn} />`;
  return html`<header class="bar">
      <a href="#/" class="brand">wick</a>
      <nav aria-label="Views">${VIEWS.filter(([name]) => !NEEDS[name] || who.value?.scopes.includes(NEEDS[name]))
        .map(([name, word]) => html`<a href=${`#/${name}`} aria-current=${(place.value[0] ?? "") === name ? "page" : undefined}>${word}</a>`)}</nav>
      <span class="faint">${who.value.tenant} · ${who.value.scopes.join(", ")}</span>
      <button onClick=${signOut}>Sign out</button>
    </header>
    <${View} />`;
}

addEventListener("hashchange", read);
await begin();
read();
const root = /** @type {HTMLElement} */ (document.getElementById("app"));
effect(() => void (document.title = place.value[1] ? `${place.value[1]} · wick` : "wick"));
render(html`<${App} />`, root);
