// The view of signing in, and the list of threads.
import { html, signal, useEffect, useState } from "./vendor/preact.js";
import { ask, signIn } from "./api.js";
import { counted } from "./values.js";

export function SignIn() {
  const [token, setToken] = useState("");
  const [said, setSaid] = useState("");
  const enter = (/** @type {Event} */ event) => {
    event.preventDefault();
    signIn(token.trim()).catch((error) => setSaid(error.message));
  };
  return html`<main class="sign-in">
    <form onSubmit=${enter}>
      <h1>Sign in</h1>
      <label for="token">Access token</label>
      <input id="token" type="password" autocomplete="off" required value=${token}
        aria-describedby="said"
        onInput=${(/** @type {any} */ event) => setToken(event.target.value)} />
      <button class="main">Sign in</button>
      <p id="said" class="bad" role="alert">${said}</p>
      <p class="faint">
        <code>wick token create</code> makes a token; <code>wick ui</code> opens this page without one.
      </p>
    </form>
  </main>`;
}

/** @type {import("./vendor/preact.js").Signal<any[] | null>} */
const threads = signal(/** @type {any[] | null} */ (null));
const failed = signal("");
const isWhole = signal(true);
const PAGE = 50;

async function load(/** @type {any[]} */ known = []) {
  const last = known.at(-1);
  try {
    const found = await ask("/threads", { limit: PAGE, ...(last && { before: last.last_access }) });
    threads.value = [...known, ...found];
    isWhole.value = found.length < PAGE;
    failed.value = "";
  } catch (error) {
    failed.value = /** @type {Error} */ (error).message;
  }
}

const MARKS = /** @type {Record<string, string>} */ ({
  idle: "○ idle", running: "● running", waiting: "◆ waiting", failed: "✕ failed",
});

/** @param {string | null} text */
const when = (text) => (text ? new Date(text).toLocaleString() : "never");

export function Threads() {
  useEffect(() => void load(), []);
  const found = threads.value;
  if (failed.value) return html`<main><p class="bad" role="alert">${failed.value}</p></main>`;
  if (found === null) return html`<main aria-busy="true"><p class="faint">Loading the threads …</p></main>`;
  return html`<main class="threads">
    <h1>Threads</h1>
    ${!found.length && html`<p>There are no threads yet. <code>wick run</code> makes one.</p>`}
    <ul>
      ${found.map(
        (one) => html`<li key=${one.thread_id}>
          <a href=${`#/threads/${encodeURIComponent(one.thread_id)}`}>
            <b>${one.title || one.thread_id}</b>
            <span class=${`status ${one.status}`}>${MARKS[one.status] ?? one.status}</span>
            <span class="faint">
              ${[one.agent, counted(one.steps, "checkpoint"), `used ${when(one.last_access)}`,
                one.pinned ? "pinned" : `expires ${when(one.expires_at)}`,
                one.parent && `fork of ${one.parent}`].filter((part) => part).join(" · ")}
            </span>
            ${one.last_error && html`<span class="bad">${one.last_error}</span>`}
          </a>
        </li>`,
      )}
    </ul>
    ${!isWhole.value && html`<button onClick=${() => load(found)}>Show older threads</button>`}
  </main>`;
}
