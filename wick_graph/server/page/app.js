// The page: which view is shown, and the bar above it.
import { effect, html, render, signal } from "./vendor/preact.js";
import { begin, signOut, who } from "./api.js";
import { Run } from "./run.js";
import { SignIn, Threads } from "./threads.js";

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
  return html`<${Threads} />`;
}

function App() {
  if (who.value === undefined) return html`<p class="faint" aria-busy="true">Loading …</p>`;
  if (who.value === null) return html`<${SignIn} />`;
  return html`<header class="bar">
      <a href="#/" class="brand">wick</a>
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
