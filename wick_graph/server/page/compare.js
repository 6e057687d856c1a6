// Two runs side by side, visit by visit; the first difference is marked.
import { html, useEffect, useState } from "./vendor/preact.js";
import { ask, threadPath } from "./api.js";
import { counted } from "./values.js";

/** @param {{parts: string[]}} props */
export function Compare({ parts: [thread, run, other, theirs] }) {
  const [made, setMade] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  const [all, setAll] = useState(false);
  useEffect(() => {
    const stop = new AbortController();
    setMade(null);
    const query = { run, theirs, ...(other === thread ? {} : { other }) };
    ask(`${threadPath(thread)}/compare`, query, stop.signal).then(setMade, (failed) => stop.signal.aborted || setError(failed.message));
    return () => stop.abort();
  }, [thread, run, other, theirs]);
  const go = (/** @type {any} */ event) => {
    event.preventDefault();
    const [first, second] = ["a", "b"].map((name) => event.target.elements[name].value.trim().split("/").map(encodeURIComponent));
    location.hash = `#/compare/${first[0]}/${first[1] || 1}/${second[0]}/${second[1] || 1}`;
  };
  const head = html`<h1>Compare</h1>
    <form class="row-form" onSubmit=${go}>
      <label for="a">Thread and run</label><input id="a" required value=${thread ? `${thread}/${run}` : ""} placeholder="th_…/1" />
      <label for="b">with</label><input id="b" required value=${other ? `${other}/${theirs}` : ""} placeholder="th_…-fork1/2" /><button>Compare</button>
    </form>`;
  if (!thread) return html`<main class="wide">${head}</main>`;
  if (error) return html`<main class="wide">${head}<p class="bad" role="alert">${error}</p></main>`;
  if (!made) return html`<main class="wide" aria-busy="true">${head}<p class="faint">Loading …</p></main>`;
  const first = made.rows.findIndex((/** @type {any} */ row) => !row.same);
  const shown = made.rows.map((/** @type {any} */ row, /** @type {number} */ at) => ({ row, at }))
    .filter((/** @type {any} */ one) => all || first < 0 || !one.row.same || Math.abs(one.at - first) < 3);
  const change = (/** @type {number} */ a, /** @type {number} */ b) => `${b >= a ? "+" : "−"}${Math.abs(b - a).toLocaleString("en", { maximumFractionDigits: 3 })}`;
  return html`<main class="wide">${head}
    <p class=${made.first ? "note bad" : "note"}>${made.first ? `First difference: ${made.first}` : "Both did the same."}</p>
    <p>Tokens ${made.tokens[0].toLocaleString("en")} and ${made.tokens[1].toLocaleString("en")} (${change(made.tokens[0], made.tokens[1])}),
      seconds ${made.seconds[0].toFixed(3)} and ${made.seconds[1].toFixed(3)} (${change(made.seconds[0], made.seconds[1])}).
      <label class="line"><input type="checkbox" checked=${all} onChange=${() => setAll(!all)} /> also what is the same</label></p>
    <div class="scroll" tabindex="0" role="region" aria-label="Visits"><table class="compared">
      <thead><tr><th scope="col">Visit</th><th scope="col"><a href=${`#${threadPath(thread)}`}>${thread}, run ${run}</a></th>
        <th scope="col"><a href=${`#${threadPath(other)}`}>${other}, run ${theirs}</a></th></tr></thead>
      <tbody>${shown.map((/** @type {{row: any, at: number}} */ { row, at }) => html`<tr key=${at} class=${row.same ? "" : at === first ? "first differs" : "differs"}>
        <th scope="row">${row.same ? "" : "≠ "}${row.node} ${row.visit}${row.part && row.part !== "text" ? ` (${row.part})` : ""}</th>
        <td><pre>${row.a ?? "—"}</pre></td><td><pre>${row.b ?? "—"}</pre></td></tr>`)}</tbody></table></div>
    ${made.total > made.rows.length && html`<p class="faint">${counted(made.total - made.rows.length, "more visit")}</p>`}
  </main>`;
}
