// Markdown as elements: never as markup, without pictures of others and with links that lead to the web only.
import { html, useMemo } from "./vendor/preact.js";

const WEB = /^(?:https?:\/\/|mailto:)/i;
const INLINE = new RegExp(
  [
    "(`+)(?<code>[^`](?:.*?[^`])?)\\1(?!`)",
    "\\\\(?<plain>[\\\\`*_{}\\[\\]()#+\\-.!~|>])",
    "!\\[(?<alt>[^\\]]*)\\]\\((?<src>[^\\s)]*)[^)]*\\)",
    "\\[(?<label>(?:[^\\[\\]]|\\[[^\\]]*\\])*)\\]\\((?<href>[^\\s)]*)[^)]*\\)",
    "\\*\\*(?<strong>[^\\s*](?:.*?\\S)??)\\*\\*(?!\\*)",
    "__(?<strong2>[^\\s_](?:.*?\\S)??)__(?!\\w)",
    "\\*(?<em>[^\\s*](?:.*?\\S)??)\\*",
    "(?<![\\w_])_(?<em2>[^\\s_](?:.*?\\S)??)_(?!\\w)",
    "~~(?<gone>\\S(?:.*?\\S)??)~~",
    "(?<web>https?:\\/\\/[^\\s<>\"'`\\])]*[^\\s<>\"'`\\]).,;:!?])",
  ].join("|"),
  "gsu",
);
const DEEP = 8; // levels of marks and lists; what is deeper stays text
const LONG = 4_000; // characters of a line above which its marks stay text

/** @param {string} text @param {number} [depth] @returns {any} */
function inline(text, depth = 0) {
  if (depth > DEEP || text.length > LONG) return text;
  const made = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    const part = /** @type {Record<string, string | undefined>} */ (found.groups);
    made.push(text.slice(at, found.index));
    made.push(marked(part, found[0], depth + 1));
    at = found.index + found[0].length;
  }
  made.push(text.slice(at));
  return made;
}

/** @param {Record<string, string | undefined>} part @param {string} whole @param {number} depth */
function marked(part, whole, depth) {
  if (part.code !== undefined) return html`<code>${part.code}</code>`;
  if (part.plain) return part.plain;
  if (part.alt !== undefined) return html`<span class="chip">picture: ${part.alt || part.src}</span>`;
  if (part.label !== undefined) {
    const label = inline(part.label, depth);
    return WEB.test(part.href ?? "") ? linked(/** @type {string} */ (part.href), label) : whole;
  }
  const strong = part.strong ?? part.strong2;
  if (strong !== undefined) return html`<strong>${inline(strong, depth)}</strong>`;
  const em = part.em ?? part.em2;
  if (em !== undefined) return html`<em>${inline(em, depth)}</em>`;
  if (part.gone !== undefined) return html`<del>${inline(part.gone, depth)}</del>`;
  return part.web ? linked(part.web, part.web) : whole;
}

/** @param {string} href @param {any} label */
const linked = (href, label) => html`<a href=${href} target="_blank" rel="noopener noreferrer">${label}</a>`;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*(\S*)/;
const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const HEAD = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const ROW = /^\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?$/;

/** Split a text into blocks: their lines, so that one that stays the same is drawn once.
 * @param {string} text */
export function blocks(text) {
  /** @type {string[]} */
  const made = [];
  /** @type {string[]} */
  let held = [];
  let fence = "";
  const end = () => (held.length && made.push(held.join("\n")), (held = []));
  for (const line of text.split("\n")) {
    const found = FENCE.exec(line)?.[1];
    if (fence) {
      held.push(line);
      if (found?.startsWith(fence) && line.trim() === found) (fence = ""), end();
    } else if (found) end(), held.push(line), (fence = found);
    else if (!line.trim()) end();
    else if (HEAD.test(line) || RULE.test(line)) end(), held.push(line), end();
    else held.push(line);
  }
  end();
  return made;
}

/** @param {{text: string}} props */
function Block({ text }) {
  return useMemo(() => block(text.split("\n"), 0), [text]);
}

/** @param {string[]} lines @param {number} depth @returns {any} */
function block(lines, depth) {
  const fence = FENCE.exec(lines[0]);
  if (fence) {
    const last = lines.length > 1 && lines[lines.length - 1].trim().startsWith(fence[1]) ? -1 : undefined;
    return html`<pre class="code" tabindex="0" aria-label=${fence[2] || "code"}>${lines.slice(1, last).join("\n")}</pre>`;
  }
  const head = HEAD.exec(lines[0]);
  if (head) return html`<p role="heading" aria-level="2" class=${`h${head[1].length}`}>${inline(head[2].replace(/\s#+\s*$/, ""))}</p>`;
  if (RULE.test(lines[0])) return html`<hr />`;
  if (/^\s*>/.test(lines[0]) && depth < DEEP) {
    return html`<blockquote>${many(lines.map((line) => line.replace(/^\s*>\s?/, "")).join("\n"), depth + 1)}</blockquote>`;
  }
  if (lines.length > 1 && ROW.test(lines[1].trim()) && lines[0].includes("|")) return table(lines);
  const at = lines.findIndex((line) => ITEM.test(line));
  if (at === 0 && depth < DEEP) return list(lines, depth);
  if (at > 0) return [block(lines.slice(0, at), depth), block(lines.slice(at), depth)];
  return html`<p>${lines.map((line, nth) => [nth > 0 && html`<br />`, inline(line)])}</p>`;
}

/** @param {string[]} lines @param {number} depth */
function list(lines, depth) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[0]));
  /** @type {string[][]} */
  const items = [];
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && found[1].length <= first[1].length + 1) items.push([found[3]]);
    else items[items.length - 1].push(line.replace(/^ {1,4}|^\t/, ""));
  }
  const made = items.map(([head, ...rest]) => html`<li>${inline(head)}${rest.length > 0 && block(rest, depth + 1)}</li>`);
  return first[2] === undefined ? html`<ul>${made}</ul>` : html`<ol start=${first[2]}>${made}</ol>`;
}

/** @param {string[]} lines */
function table([head, , ...rows]) {
  const cells = (/** @type {string} */ row) => row.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => inline(cell.trim()));
  return html`<div class="scroll" tabindex="0" role="group" aria-label="table"><table>
    <thead><tr>${cells(head).map((cell) => html`<th scope="col">${cell}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${cells(row).map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** @param {string} text @param {number} depth */
const many = (text, depth) => blocks(text).map((part) => block(part.split("\n"), depth));

/** A text in Markdown. @param {{text: string}} props */
export function Markdown({ text }) {
  return html`<div class="markdown" dir="auto">${blocks(text).map((part, at) => html`<${Block} key=${at} text=${part} />`)}</div>`;
}
