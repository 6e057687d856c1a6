// Draws an agent's graph, with the thread laid over it; an outline says the same as a list.
import { html, useEffect, useState } from "./vendor/preact.js";
import { ask } from "./api.js";

const LINE = 16;
const LETTER = 6; // pixels of a letter, at most
/** Boxes above which only the outline is shown. */
const MOST = 400;

/** @param {{box: any, rect: number[], here: boolean}} props */
function Box({ box, rect, here }) {
  const [x, y, width, height] = rect;
  const most = Math.floor((width - 8) / LETTER);
  const lines = [box.name, ...box.lines].map((line) => (line.length > most ? `${line.slice(0, most - 1)}…` : line));
  const first = y + height / 2 - ((lines.length - 1) * LINE) / 2;
  const errors = box.lines.some((/** @type {string} */ line) => /\d errors?\b/.test(line));
  return html`<g class=${`box ${box.kind}${here ? " here" : ""}${errors ? " errors" : ""}`}>
    <rect x=${x} y=${y} width=${width} height=${height} rx="6" />
    ${lines.map(
      (line, at) => html`<text x=${x + width / 2} y=${first + at * LINE} class=${at ? "" : "name"}>${line}</text>`,
    )}
  </g>`;
}

/** @param {{edge: any, route: any}} props */
function Edge({ edge, route }) {
  const points = route.points.map((/** @type {number[]} */ point) => point.join(",")).join(" ");
  const label = route.label;
  return html`<g class=${edge.conditional ? "edge conditional" : "edge"}>
    <polyline points=${points} marker-end="url(#arrow)" />
    ${label && html`<text x=${label[0] + label[2] / 2} y=${label[1] + label[3] / 2}>${edge.text}</text>`}
  </g>`;
}

/** @param {{made: any}} props */
function Outline({ made }) {
  const names = Object.fromEntries(made.nodes.map((/** @type {any} */ node) => [node.id, node.name]));
  return html`<ul class="outline">
    ${made.nodes.map(
      (/** @type {any} */ node) => html`<li>
        <b>${node.name}</b> <span class="faint">${node.lines.join(" · ")}</span>
        <ul>
          ${made.edges
            .filter((/** @type {any} */ edge) => edge.source === node.id)
            .map((/** @type {any} */ edge) => html`<li>→ ${names[edge.target]} <span class="faint">${edge.text}</span></li>`)}
        </ul>
      </li>`,
    )}
  </ul>`;
}

/** @param {{thread?: string, of?: string, node: string | null}} props of: the path of what has a graph */
export function Graph({ thread, of = `/threads/${thread}`, node }) {
  const [made, setMade] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    ask(`${of}/graph`, undefined, stop.signal).then(setMade, (failed) => {
      if (!stop.signal.aborted) setError(failed.message);
    });
    return () => stop.abort();
  }, [of]);
  if (error) return html`<p class="bad" role="alert">${error}</p>`;
  if (!made) return html`<p class="faint" aria-busy="true">Loading the graph …</p>`;
  const { width, height, boxes, edges } = made.layout;
  const isLarge = made.nodes.length > MOST;
  return html`${isLarge
      ? html`<p>The graph has ${made.nodes.length} nodes, too many for a drawing.</p>`
      : html`<figure tabindex="0" aria-label="The graph">
          <svg aria-hidden="true" viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height}>
            <defs>
              <marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"
                orient="auto"><path d="M0 0 8 4 0 8z" /></marker>
            </defs>
            ${made.edges.map((/** @type {any} */ edge, /** @type {number} */ at) => html`<${Edge} edge=${edge} route=${edges[at]} />`)}
            ${made.nodes.map((/** @type {any} */ box) => html`<${Box} box=${box} rect=${boxes[box.id]} here=${box.id === node} />`)}
          </svg>
        </figure>`}
    <details open=${isLarge}><summary>The graph as a list</summary><${Outline} made=${made} /></details>`;
}
