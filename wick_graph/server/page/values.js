// Shows data of a recording: always as text, never as markup.
import { html, useState } from "./vendor/preact.js";
import { ask } from "./api.js";

/** @param {number} count @param {string} word */
export const counted = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

/** A text with its hidden signs as codes: they could make it look like another one. @param {string} text */
export const plain = (text) => text.replace(/[^\P{C}\n\r\t\u200d]/gu, (sign) => `\\u{${sign.codePointAt(0)?.toString(16)}}`);

/** @param {number | null} us */
export function took(us) {
  if (us === null) return "";
  return us >= 1e6 ? `${(us / 1e6).toFixed(2)} s` : `${(us / 1e3).toFixed(1)} ms`;
}

/** A text of which the server has more. @param {{thread: string, cut: any}} props */
function CutText({ thread, cut }) {
  const [text, setText] = useState(/** @type {string} */ (cut.$text));
  const [error, setError] = useState("");
  const more = () =>
    ask(`/threads/${thread}/blobs/${cut.$blob}`, { offset: text.length }).then(
      (piece) => setText(text + piece.text),
      (failed) => setError(failed.message),
    );
  return html`<div>
    <pre>${plain(text)}</pre>
    <p class="faint">
      ${text.length.toLocaleString("en")} of ${counted(cut.$chars, "character")}
      ${text.length < cut.$chars && html` <button onClick=${more}>Show more</button>`} ${error}
    </p>
  </div>`;
}

/** @param {any} value */
const isMessage = (value) => typeof value?.role === "string" && "content" in value &&
  (value.tool_calls === undefined || (Array.isArray(value.tool_calls) && value.tool_calls.every((/** @type {any} */ call) => call && typeof call === "object")));

/** A name in data: a foreign one may be anything. @param {any} name */
const named = (name) => (typeof name === "string" ? name : "");

/** Whether the server cut a text; data may have such keys too. @param {any} value */
const isCut = (value) => /^[0-9a-f]{64}$/.test(value.$blob) && typeof value.$text === "string" && typeof value.$chars === "number";

/** @param {{thread: string, value: any}} props */
function Message({ thread, value }) {
  return html`<div class="message">
    <b>${value.role}</b> ${named(value.name)}
    <${Value} thread=${thread} value=${value.content} />
    ${(value.tool_calls ?? []).map(
      (/** @type {any} */ call) => html`<div class="call">
        → <b>${named(call.name) || "and"}</b> <${Value} thread=${thread} value=${call.args ?? call} />
      </div>`,
    )}
  </div>`;
}

/** A value as text, a table or a folded table. @param {{thread: string, value: any, depth?: number}} props */
export function Value({ thread, value, depth = 0 }) {
  if (typeof value === "string") return html`<pre>${plain(value) || '""'}</pre>`;
  if (value === null || typeof value !== "object") return html`<pre>${JSON.stringify(value)}</pre>`;
  if (isCut(value)) return html`<${CutText} thread=${thread} cut=${value} />`;
  if (isMessage(value)) return html`<${Message} thread=${thread} value=${value} />`;
  const entries = Object.entries(value);
  if (!entries.length) return html`<pre>${Array.isArray(value) ? "[]" : "{}"}</pre>`;
  if (typeof value.$more === "number" && entries.length === 1) {
    return html`<p class="faint">and ${value.$more.toLocaleString("en")} more</p>`;
  }
  if (typeof value.$size === "number" && entries.length === 1) {
    return html`<p class="faint">${counted(value.$size, "item")}; name its path to see them</p>`;
  }
  const table = html`<table>
    <tbody>
      ${entries.map(
        ([key, item]) => html`<tr key=${key}>
          <th scope="row">${plain(key)}</th>
          <td><${Value} thread=${thread} value=${item} depth=${depth + 1} /></td>
        </tr>`,
      )}
    </tbody>
  </table>`;
  if (depth < 2) return table;
  return html`<details><summary>${counted(entries.length, Array.isArray(value) ? "item" : "field")}</summary>${table}</details>`;
}
