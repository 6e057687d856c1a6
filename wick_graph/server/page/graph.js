// Draws an agent's graph, with the thread laid over it; an outline says the same as a list.
import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { ask } from "./api.js";
import { session } from "./session.js";

const LINE = 16;
const LETTER = 6; // pixels of a letter, at most
/** Boxes and arrows above which only the outline is shown. */
const MOST = 400;
const ARROWS = 2000;
const AGAIN = 1000; // milliseconds between two looks at a run that goes on

/** @typedef {{node: string | null, layer: string, live: string | null, only: string,
 *   filter: ((name: string) => void) | null, dot: ((name: string) => void) | null, dots: Set<string>}} Over */

/** A button in a drawing: by a click, Enter or the space bar. @param {() => void} work */
const pressed = (work) => ({
  onClick: (/** @type {Event} */ event) => (event.stopPropagation(), work()),
  onKeyDown: (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    work();
  },
});

/** @param {any} box */
const errors = (box) => box.lines.some((/** @type {string} */ line) => /\d errors?\b/.test(line));
/** @param {any} box */
const isNode = (box) => box.kind !== "start" && box.kind !== "end";

/** @param {{box: any, rect: number[], over: Over}} props */
function Box({ box, rect, over }) {
  const [x, y, width, height] = rect;
  const most = Math.floor((width - 8) / LETTER);
  const lines = [box.name, ...box.lines];
  const first = y + height / 2 - ((lines.length - 1) * LINE) / 2;
  const marks = [box.kind, box.id === over.node && "here", box.id === over.live && "live", errors(box) && "errors",
    box.id === over.only && "only"].filter((mark) => mark).join(" ");
  const about = over.filter && isNode(box)
    ? { role: "button", tabindex: 0, "aria-pressed": box.id === over.only, ...pressed(() => over.filter?.(box.id)) }
    : {};
  const isStop = over.dots.has(box.id);
  return html`<g class=${`box ${marks}`} ...${about}>
      <rect x=${x} y=${y} width=${width} height=${height} rx="6" />
      ${lines.map((line, at) => html`<text x=${x + width / 2} y=${first + at * LINE}
        class=${[at === 0 && "name", box.id === over.node && over.layer && line.includes(over.layer) && "layer"].filter((mark) => mark).join(" ")}>
        ${`${line.length > most ? `${line.slice(0, most - 1)}…` : line} `}</text>`)}
    </g>
    ${over.dot && isNode(box) && html`<circle class=${isStop ? "dot set" : "dot"} cx=${x} cy=${y + 14} r="8" role="button" tabindex="0"
      aria-pressed=${isStop} aria-label=${`Breakpoint at ${box.name}`} ...${pressed(() => over.dot?.(box.id))} />`}`;
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

/** @param {{made: any, over: Over}} props */
function Outline({ made, over }) {
  const names = Object.fromEntries(made.nodes.map((/** @type {any} */ node) => [node.id, node.name]));
  const [most, setMost] = useState(200);
  return html`<ul class="outline">
    ${made.nodes.slice(0, most).map((/** @type {any} */ box) => html`<li key=${box.id} class=${[box.id === over.node && "here", errors(box) && "errors"].filter((mark) => mark).join(" ")}>
        ${over.filter && isNode(box)
          ? html`<button aria-pressed=${box.id === over.only} onClick=${() => over.filter?.(box.id)}>${box.name}</button>
            ${over.dot && html`<button class="faint" aria-pressed=${over.dots.has(box.id)} aria-label=${`Breakpoint at ${box.name}`}
              onClick=${() => over.dot?.(box.id)}>${over.dots.has(box.id) ? "●" : "○"}</button>`}`
          : html`<b>${box.name}</b>`}
        <span class="faint">${box.id === over.node ? "here · " : ""}${box.lines.join(" · ")}</span>
        <ul>${made.edges.filter((/** @type {any} */ edge) => edge.source === box.id)
          .map((/** @type {any} */ edge) => html`<li>→ ${names[edge.target]} <span class="faint">${edge.text}</span></li>`)}</ul>
      </li>`)}
    ${made.nodes.length > most && html`<li><button onClick=${() => setMost(most + 500)}>Show ${made.nodes.length - most} more</button></li>`}
  </ul>`;
}

/** The drawing in a frame that pans by dragging and zooms by the wheel and by buttons.
 * @param {{made: any, over: Over}} props */
function Drawing({ made, over }) {
  const { width, height, boxes, edges } = made.layout;
  const [view, setView] = useState({ x: -12, y: -4, zoom: 1 });
  const svg = useRef(/** @type {SVGSVGElement | null} */ (null));
  const touched = useRef(false); // else it fits whatever the size
  const drag = useRef(/** @type {{x: number, y: number} | null} */ (null));
  const [size, setSize] = useState({ width: 400, height: 400 });
  const fit = () => {
    const found = svg.current;
    if (!found) return;
    const zoom = Math.min(1, found.clientWidth / (width + 24), found.clientHeight / (height + 16));
    setView({ x: -(found.clientWidth / zoom - width) / 2, y: -8, zoom });
  };
  useEffect(() => {
    const found = /** @type {SVGSVGElement} */ (svg.current);
    const look = () => (setSize({ width: found.clientWidth, height: found.clientHeight }), touched.current || fit());
    const watch = new ResizeObserver(look);
    watch.observe(found);
    look();
    const wheel = (/** @type {WheelEvent} */ event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      scale(event.deltaY < 0 ? 1.15 : 1 / 1.15);
    };
    found.addEventListener("wheel", wheel, { passive: false });
    return () => (watch.disconnect(), found.removeEventListener("wheel", wheel));
  }, [width, height]);
  const scale = (/** @type {number} */ by) => setView((now) => {
    touched.current = true;
    const zoom = Math.min(4, Math.max(0.05, now.zoom * by));
    const half = { x: (svg.current?.clientWidth ?? 0) / 2, y: (svg.current?.clientHeight ?? 0) / 2 };
    return { x: now.x + half.x / now.zoom - half.x / zoom, y: now.y + half.y / now.zoom - half.y / zoom, zoom };
  });
  const move = (/** @type {PointerEvent} */ event) => {
    const from = drag.current;
    if (!from || !event.buttons) return;
    touched.current = true;
    drag.current = { x: event.clientX, y: event.clientY };
    setView((now) => ({ ...now, x: now.x - (event.clientX - from.x) / now.zoom, y: now.y - (event.clientY - from.y) / now.zoom }));
  };
  return html`<figure>
    <div class="line tools"><button aria-label="Zoom in" onClick=${() => scale(1.3)}>+</button>
      <button aria-label="Zoom out" onClick=${() => scale(1 / 1.3)}>−</button><button onClick=${() => ((touched.current = false), fit())}>Fit</button>
      <span class="faint">drag to pan, Ctrl and the wheel to zoom</span></div>
    <svg ref=${svg} role="group" aria-label="Graph" class="graph"
      viewBox=${`${view.x} ${view.y} ${size.width / view.zoom} ${size.height / view.zoom}`}
      onPointerDown=${(/** @type {PointerEvent} */ event) => (drag.current = { x: event.clientX, y: event.clientY })} onPointerMove=${move}>
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" /></marker></defs>
      ${made.edges.map((/** @type {any} */ edge, /** @type {number} */ at) => html`<${Edge} edge=${edge} route=${edges[at]} />`)}
      ${made.nodes.map((/** @type {any} */ box) => html`<${Box} key=${box.id} box=${box} rect=${boxes[box.id]} over=${over} />`)}
    </svg>
  </figure>`;
}

/** `of` is the path of what has a graph; without `moments` nothing is laid over it. @param {any} props */
export function Graph({ thread, of = `/threads/${thread}`, row, node, moments, does }) {
  const [made, setMade] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  const last = moments?.last.value;
  useEffect(() => {
    const stop = new AbortController();
    const later = setTimeout(() => ask(`${of}/graph`, undefined, stop.signal).then((found) => (setMade(found), setError("")), (failed) => {
      if (!stop.signal.aborted) setError(failed.message);
    }), made ? AGAIN : 0);
    return () => (clearTimeout(later), stop.abort());
  }, [of, last]);
  if (error) return html`<p class="bad" role="alert">${error}</p>`;
  if (!made) return html`<p class="faint" aria-busy="true">Loading the graph …</p>`;
  const points = session.value?.breakpoints ?? [];
  const numbers = new Map(points.map((one) => [one.spec.replace(/^break (node:)?/, ""), one.number]));
  const spec = (/** @type {string} */ name) => (made.nodes.some((/** @type {any} */ box) => box.id === "before_agent") ? name : `node:${name}`);
  const over = {
    node, layer: row?.kind === "hook" ? row.name : "", only: moments?.only.value, dots: new Set(numbers.keys()),
    live: made.run?.status === "running" ? moments?.rows.get(last)?.node ?? null : null,
    filter: moments && ((/** @type {string} */ name) => moments.filter(moments.only.peek() === name ? "" : name)),
    dot: does && ((/** @type {string} */ name) => does(numbers.has(name) ? `delete ${numbers.get(name)}` : `break ${spec(name)}`)),
  };
  const isLarge = made.nodes.length > MOST || made.edges.length > ARROWS;
  return html`${isLarge
      ? html`<p>The graph has ${made.nodes.length} nodes and ${made.edges.length} edges, too many for a drawing.</p>`
      : html`<${Drawing} made=${made} over=${over} />`}
    <details open=${isLarge}><summary>The graph as a list</summary><${Outline} made=${made} over=${over} /></details>`;
}
