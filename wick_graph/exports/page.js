"use strict";
// Everything from the recording is shown as text: no value is ever read as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const moments = data.moments.map((row) => {
    const made = { ...row[data.columns.length] };
    data.columns.forEach((name, i) => {
      if (row[i] !== null) made[name] = row[i];
    });
    made.kind = data.values[made.kind];
    made.phase = data.values[made.phase];
    if (made.facts) made.state = data.values[made.facts[data.facts.indexOf("checkpoint")]];
    return made;
  });
  const rows = [];
  const TABS = ["Moment", "Request", "Changes", "State"];
  let here = 0;
  let tab = "Moment";

  const make = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const link = (text, to) => {
    const made = make("a", text);
    made.href = to;
    return made;
  };
  const valueAt = (place) => data.values[place];

  // --- values ---------------------------------------------------------------------------------

  const isMessage = (v) => v !== null && typeof v === "object" && typeof v.role === "string"
    && "content" in v;

  const message = (value, by) => {
    const made = make("div", null, "message");
    made.append(make("b", value.role + (value.name ? " " + value.name : "")));
    if (by) made.append(by);
    made.append(make("pre", value.content));
    for (const call of value.tool_calls || []) {
      made.append(make("pre", "→ " + call.name + "(" + JSON.stringify(call.args) + ")  " + call.id));
    }
    return made;
  };

  const isShort = (v) => v === null || typeof v !== "object"
    || (JSON.stringify(v).length < 80 && !isMessage(v));

  const shown = (value, depth = 0) => {
    if (isMessage(value)) return message(value);
    if (typeof value === "string") return make("pre", value === "" ? '""' : value);
    if (isShort(value) && (depth || value === null || typeof value !== "object")) {
      return make("pre", JSON.stringify(value));
    }
    const table = make("table");
    for (const [key, item] of Object.entries(value)) {
      const row = table.insertRow();
      row.append(make("th", key));
      row.insertCell().append(shown(item, depth + 1));
    }
    if (depth < 2) return table;
    const folded = make("details", null, "value");
    const size = Object.keys(value).length;
    folded.append(make("summary", Array.isArray(value) ? size + " items" : size + " fields"), table);
    return folded;
  };

  const listed = (places) => {
    if (!Array.isArray(places)) return shown(valueAt(places));
    const made = make("div");
    if (!places.length) made.append(make("pre", "[]"));
    for (const place of places) made.append(shown(valueAt(place), 1));
    return made;
  };

  // States are differences, each from the one before it.
  const STATES = {};
  const stateAt = (name) => {
    const chain = [];
    for (let at = name; at && !STATES[at] && data.states[at]; at = data.states[at].base) chain.push(at);
    while (chain.length) {
      const at = chain.pop();
      const told = data.states[at];
      const made = { ...(STATES[told.base] || {}) };
      for (const [channel, now] of Object.entries(told.set)) {
        const grows = now !== null && typeof now === "object" && !Array.isArray(now);
        made[channel] = grows ? made[channel].slice(0, now.keep).concat(now.add) : now;
      }
      for (const channel of told.gone || []) delete made[channel];
      STATES[at] = made;
    }
    return STATES[name];
  };

  const missing = (value) => make("p", value.missing, "bad");

  const factsOf = (m) => {
    const made = { moment: m.seq, what: m.kind + "." + m.phase };
    data.facts.forEach((name, i) => {
      const value = valueAt(m.facts[i]);
      if (value !== null) made[name.replace("_", " ")] = value;
    });
    const run = data.runs.find((one) => one.number === m.run);
    if (run) made.time = new Date(Date.parse(run.started) + m.at / 1000).toISOString();
    return made;
  };

  // --- the panels -----------------------------------------------------------------------------

  const before = (test) => {
    for (let i = here; i >= 0 && moments[i].run === moments[here].run; i--) {
      if (test(moments[i])) return moments[i];
    }
    return null;
  };
  const requestNow = () => before((m) => m.request);
  const leaving = () => {
    const task = (m) => m.facts !== undefined && factsOf(m).task;
    const mine = task(moments[here]);
    return mine ? moments.find((m) => m.writes && task(m) === mine) || null : null;
  };

  const source = (part) => {
    const made = make("span", null, "tag");
    const verb = { kept: "from", added: "added by", dropped: "dropped by" }[part.op];
    made.append(make("span", verb + " " + part.by + " ", part.op));
    if (part.seq) {
      const go = make("button", "moment " + part.seq);
      go.type = "button";
      go.addEventListener("click", () => moveTo(part.seq));
      made.append(go);
    }
    return made;
  };

  const part = (one) => {
    const value = valueAt(one.value);
    if (isMessage(value)) return message(value, source(one));
    const made = make("div", null, "message");
    const title = one.part === "setting" ? one.name : one.part;
    made.append(make("b", title), source(one));
    made.append(make("pre", typeof value === "string" ? value : JSON.stringify(value)));
    return made;
  };

  const PANELS = {
    Moment(panel, m) {
      panel.append(make("h2", m.text));
      if (m.facts !== undefined) panel.append(shown(factsOf(m)));
      const told = m.told === undefined ? {} : valueAt(m.told);
      if (Object.keys(told).length) panel.append(make("h2", "What is written down"), shown(told));
    },
    Request(panel) {
      const m = requestNow();
      if (!m) return panel.append(make("p", "No model was asked by this moment of the run."));
      if (m.request.missing) return panel.append(missing(m.request));
      const r = m.request;
      panel.append(make("h2", "Request of moment " + m.seq + " to " + r.model));
      panel.append(make("p", r.exact ? "Exactly what was sent; its key proves it." : r.note));
      for (const kind of ["system", "message", "tool", "setting"]) {
        const parts = r.parts.filter((one) => one.part === kind);
        const sent = kind === "message" && r.kept ? stateAt(m.state).messages.slice(0, r.kept) : [];
        parts.unshift(...sent.map((value) => ({ part: kind, op: "kept", by: "thread", value })));
        if (!parts.length) continue;
        panel.append(make("h2", { system: "System prompt", message: "Messages", tool: "Tools",
          setting: "Settings" }[kind]));
        parts.forEach((one) => panel.append(part(one)));
      }
      if (r.tools.length) {
        const folded = make("details", null, "value");
        folded.append(make("summary", "Schemas of the tools"));
        r.tools.forEach((place) => folded.append(make("pre", JSON.stringify(valueAt(place), null, 1))));
        panel.append(folded);
      }
    },
    Changes(panel) {
      const m = leaving();
      if (!m) return panel.append(make("p", "This moment belongs to no finished visit of a node."));
      if (m.writes.missing) return panel.append(missing(m.writes));
      panel.append(make("p", "What this visit of the node wrote; it joins the state after it."));
      if (!m.writes.length) panel.append(make("p", "Nothing is stored of it."));
      for (const write of m.writes) {
        panel.append(make("h2", "+ " + write.channel), listed(write.value));
      }
    },
    State(panel, m) {
      const state = stateAt(m.state);
      if (!state) return panel.append(make("p", "No state is kept at this moment."));
      panel.append(make("p", "The thread's state when this step began."));
      for (const channel of Object.keys(state).sort()) {
        panel.append(make("h2", channel), listed(state[channel]));
      }
    },
  };

  const showPanel = () => {
    const panel = at("panel");
    panel.replaceChildren();
    if (moments[here].below) panel.append(link("Open the sub-agent's recording", moments[here].below));
    PANELS[tab](panel, moments[here]);
    for (const button of at("tabs").children) {
      const chosen = button.textContent === tab;
      button.setAttribute("aria-selected", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    }
    panel.setAttribute("aria-labelledby", "tab-" + tab);
    const address = "#" + moments[here].seq + (tab === TABS[0] ? "" : "," + tab);
    try { history.replaceState(null, "", address); } catch { /* some viewers forbid it */ }
  };

  // --- moving ---------------------------------------------------------------------------------

  const isVisible = (i) => !rows[i].parentElement.hidden;

  const move = (to, focus) => {
    if (to === null || to < 0 || to >= moments.length) return;
    rows[here].removeAttribute("aria-current");
    rows[here].tabIndex = -1;
    here = to;
    rows[here].setAttribute("aria-current", "true");
    rows[here].tabIndex = 0;
    rows[here].scrollIntoView({ block: "nearest" });
    if (focus) rows[here].focus({ preventScroll: true });
    at("said").textContent = "moment " + moments[here].seq + ", " + moments[here].text;
    showPanel();
  };
  const moveTo = (seq) => move(moments.findIndex((m) => m.seq === seq), true);

  const seek = (way, test) => {
    for (let i = here + way; i >= 0 && i < moments.length; i += way) {
      if (isVisible(i) && test(moments[i])) return i;
    }
    return null;
  };
  const VERBS = {
    s: () => true,
    n: (m) => m.depth <= moments[here].depth,
    m: (m) => m.kind === "node" && m.phase === "enter",
    t: (m) => m.kind === "model" && m.phase === "request",
    e: (m) => Boolean(m.status),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target instanceof HTMLInputElement && event.target.type === "search";
    if (field) {
      if (event.key === "Escape") rows[here].focus();
      return;
    }
    const inList = event.target.closest && event.target.closest("#moments");
    const arrows = inList ? { ArrowDown: "s", ArrowUp: "S" } : {};
    const key = arrows[event.key] || event.key;
    const verb = VERBS[key.toLowerCase()];
    if (verb && key.length === 1) {
      move(seek(key === key.toLowerCase() ? 1 : -1, verb), true);
    } else if (key === "/") {
      at("search").focus();
    } else if (inList && (key === "Home" || key === "End")) {
      const places = moments.map((_, i) => i).filter(isVisible);
      move(key === "Home" ? places[0] : places[places.length - 1], true);
    } else {
      return;
    }
    event.preventDefault();
  });

  // --- the page -------------------------------------------------------------------------------

  const time = (us) => (us >= 1e6 ? (us / 1e6).toFixed(2) + " s" : (us / 1e3).toFixed(1) + " ms");
  const mark = (m) => {
    if (m.status) return "✕ ";
    return { enter: "→ ", call: "→ ", request: "→ ", exit: "← ", return: "← ", response: "← " }[m.phase]
      || "· ";
  };

  const filter = () => {
    const wanted = at("search").value.trim().toLowerCase();
    const hooks = at("hooks").checked;
    let count = 0;
    moments.forEach((m, i) => {
      const fits = (hooks || m.kind !== "hook") && (!wanted || m.text.toLowerCase().includes(wanted));
      rows[i].parentElement.hidden = !fits;
      count += fits;
    });
    at("count").textContent = count + " of " + moments.length + " moments";
  };

  const row = (m, i) => {
    const item = make("li");
    const made = make("button", null, "row " + m.kind + " " + (m.status || "ok"));
    made.type = "button";
    made.tabIndex = -1;
    made.title = m.text;
    const what = make("span", "\u2003".repeat(Math.min(m.depth, 12)) + mark(m) + m.text, "what");
    const spent = m.took === undefined ? "" : time(m.took);
    made.append(make("span", m.seq, "dim"), make("span", m.step ? "@" + m.step : "", "dim"), what,
      make("span", spent, "dim"));
    made.addEventListener("click", () => move(i));
    item.append(made);
    rows.push(made);
    return item;
  };

  const start = () => {
    const about = data.runs.map((r) => "run " + r.number + " of " + r.agent + " with " + r.model + ": "
      + (r.stopped_because || r.status) + (r.seconds === undefined ? "" : " in " + r.seconds + " s")
      + ", " + r.started.slice(0, 19).replace("T", " "));
    if (data.hidden) about.push("secrets are hidden in " + data.hidden + " values");
    at("about").textContent = about.join(" · ") || "nothing is recorded in this thread";
    if (data.above) at("about").append(" · ", link("Open the caller's recording", data.above));
    for (const name of TABS) {
      const button = make("button", name);
      button.type = "button";
      button.id = "tab-" + name;
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", "panel");
      button.addEventListener("click", () => { tab = name; showPanel(); });
      at("tabs").append(button);
    }
    at("tabs").addEventListener("keydown", (event) => {
      const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!way) return;
      tab = TABS[(TABS.indexOf(tab) + way + TABS.length) % TABS.length];
      showPanel();
      at("tab-" + tab).focus();
    });
    if (!moments.length) return;
    at("moments").append(...moments.map(row));
    at("search").addEventListener("input", filter);
    at("hooks").addEventListener("change", filter);
    at("error").addEventListener("click", () => move(seek(1, VERBS.e)));
    at("error").disabled = moments.every((m) => !m.status);
    filter();
    const [seq, named] = location.hash.slice(1).split(",");
    if (TABS.includes(named)) tab = named;
    const wanted = moments.findIndex((m) => m.seq === Number(seq));
    const failed = moments.findIndex((m) => m.status);
    move(wanted >= 0 ? wanted : Math.max(failed, 0));
  };
  start();
})();
