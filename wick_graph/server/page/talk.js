// A conversation as a list of items: from stored messages, and from the events of a run as they come.

/** @typedef {{kind: "user" | "model" | "tool" | "note", key: string, version: number, text: string,
 *   at?: number, cut?: {name: string, chars: number}, reasoning?: string, isBad?: boolean, id?: string,
 *   name?: string, args?: any, draft?: string, output?: any, error?: string, began?: number,
 *   took?: number, state?: "written" | "called" | "running" | "done" | "failed", inner?: Talk}} Item */

let keys = 0;

/** What a content says as text, what it reasons, and where it was cut. @param {any} content */
function said(content) {
  if (typeof content === "string") return { text: content };
  if (content && typeof content.$text === "string") return { text: content.$text, cut: { name: `${content.$blob}`, chars: Number(content.$chars) } };
  const parts = Array.isArray(content) ? content : [];
  const of = (/** @type {any} */ part) => (typeof part === "string" ? part : part?.text?.$text ?? part?.text);
  const text = parts.map((part) => of(part) ?? (/image/.test(part?.type) ? "`picture`" : "")).filter((one) => typeof one === "string");
  const thought = parts.map((part) => part?.reasoning ?? part?.thinking ?? "").filter((one) => typeof one === "string");
  return { text: text.join("\n\n"), reasoning: thought.join("") };
}

export class Talk {
  /** @param {Map<string, number>} [took] milliseconds by call
   * @param {(id: string) => Item | undefined} [known] a call of the messages before, which a resumed run goes on with */
  constructor(took = new Map(), known = () => undefined) {
    this.known = known;
    /** @type {Item[]} */
    this.items = [];
    /** @type {Map<string, Item>} */
    this.calls = new Map();
    this.took = took;
    /** @type {Item | null} */
    this.reply = null;
    /** The calls that the model is writing, by their index. @type {Map<number, Item>} */
    this.drafts = new Map();
  }

  /** @param {Partial<Item> & {kind: Item["kind"]}} item @returns {Item} */
  add(item) {
    const own = item.at !== undefined ? `${item.kind} ${item.at}` : item.id && !this.calls.has(item.id) ? `call ${item.id}` : `${++keys}`;
    const made = { key: own, version: 0, text: "", ...item }; // drawn again, an item keeps what is open in it
    this.items.push(made);
    if (made.id) this.calls.set(made.id, made);
    return made;
  }

  /** Add a stored message. @param {any} message @param {number} at its place in the thread */
  message(message, at) {
    const found = said(message?.content);
    if (message?.role === "user") this.add({ kind: "user", at, ...found });
    else if (message?.role === "assistant") {
      if (found.text || found.reasoning) this.add({ kind: "model", at, ...found });
      for (const call of Array.isArray(message.tool_calls) ? message.tool_calls : []) {
        const id = `${call?.id}`;
        this.add({ kind: "tool", id, name: `${call?.name}`, args: call?.args, state: "called", took: this.took.get(id) });
      }
    } else if (message?.role === "tool") {
      const call = this.calls.get(`${message.tool_call_id}`) ?? this.add({ kind: "tool", name: `${message.name}` });
      this.end(call, found, found.text.startsWith("Error: "));
    } else this.add({ kind: "note", text: found.text || `${message?.role ?? ""}` });
  }

  /** Give a call that the model is writing its id; what is open in it stays so when it is drawn from the thread.
   * @param {Item} item @param {string} id */
  named(item, id) {
    Object.assign(item, { id, key: `call ${id}` });
    this.calls.set(id, item);
  }

  /** @param {string} id @returns {Item | undefined} */
  call(id) {
    return this.calls.get(id) ?? this.known(id);
  }

  /** @param {Item} call @param {any} found @param {boolean} isBad */
  end(call, found, isBad) {
    Object.assign(call, { output: found.text, cut: found.cut, state: isBad ? "failed" : "done" });
    call.version++;
  }

  /** Take an event of a run; returns whether it was the last one. @param {any} event @returns {boolean} */
  event(event) {
    const data = event.data ?? {};
    if (event.event === "on_subagent") this.child(data, `${event.run_id}`);
    else if (event.event === "on_chat_model_start") (this.reply = null), this.drafts.clear();
    else if (event.event === "on_chat_model_stream") this.piece(data);
    else if (event.event === "on_chat_model_retry") this.retry(data);
    else if (event.event === "on_chat_model_end") this.replied(data);
    else if (event.event === "on_tool_start") this.started(event);
    else if (event.event === "on_tool_end") this.ended(event);
    else if (event.event === "error") this.add({ kind: "note", text: `${data.error}`, isBad: true });
    return event.event === "done" || event.event === "error";
  }

  /** @param {any} data @param {string} call */
  child(data, call) {
    const own = this.call(call) ?? this.add({ kind: "tool", id: call, name: "", state: "running" });
    own.inner ??= new Talk(this.took);
    own.version++;
    if (data.cause === call || !data.event) own.inner.event(data.event ?? {});
    else own.inner.under(data, `${data.cause}`);
  }

  /** Pass an event on to the talk below a call, however deep. @param {any} data @param {string} cause */
  under(data, cause) {
    const held = this.items.find((item) => item.id === cause || item.inner?.has(cause));
    if (held && held.id !== cause) held.version++, held.inner?.under(data, cause);
    else this.child({ ...data, cause }, cause);
  }

  /** @param {string} call @returns {boolean} */
  has(call) {
    return this.call(call) !== undefined || this.items.some((item) => item.inner?.has(call));
  }

  /** @param {any} data */
  piece(data) {
    if (data.delta || data.reasoning) {
      this.reply ??= this.add({ kind: "model", reasoning: "" });
      this.reply.text += data.delta ?? "";
      this.reply.reasoning += data.reasoning ?? "";
      this.reply.version++;
    }
    for (const piece of data.calls ?? []) {
      const index = piece.index ?? this.drafts.size;
      let draft = this.drafts.get(index);
      if (!draft) this.drafts.set(index, (draft = this.add({ kind: "tool", name: "", draft: "", state: "written" })));
      if (piece.id) this.named(draft, `${piece.id}`);
      draft.name += piece.name ?? "";
      draft.draft += piece.args ?? "";
      draft.version++;
    }
  }

  /** @param {any} data */
  retry(data) {
    const void_ = new Set([this.reply, ...this.drafts.values()]);
    this.items = this.items.filter((item) => !void_.has(item));
    this.reply = null;
    this.drafts.clear();
    this.add({ kind: "note", text: `${data.error}` });
  }

  /** @param {any} data */
  replied(data) {
    const text = said(data.content).text;
    if (text) this.reply ??= this.add({ kind: "model" });
    if (this.reply) (this.reply.text = text || this.reply.text), this.reply.version++;
    [...(data.tool_calls ?? [])].forEach((call, index) => {
      const item = this.call(`${call.id}`) ?? this.drafts.get(index) ?? this.add({ kind: "tool" });
      Object.assign(item, { name: `${call.name}`, args: call.args, draft: undefined });
      if (item.state === "written" || !item.state) item.state = "called";
      item.version++;
      this.named(item, `${call.id}`);
    });
    this.reply = null;
    this.drafts.clear();
  }

  /** @param {any} event */
  started(event) {
    const id = `${event.run_id}`;
    const item = this.call(id) ?? this.add({ kind: "tool", id });
    Object.assign(item, { name: `${event.name}`, args: event.data?.args, state: "running", began: performance.now(), version: item.version + 1 });
  }

  /** @param {any} event */
  ended(event) {
    const id = `${event.run_id}`;
    const item = this.call(id) ?? this.add({ kind: "tool", id, name: `${event.name}` });
    if (item.began) this.took.set(id, performance.now() - item.began);
    item.took = this.took.get(id);
    item.error = event.data?.error;
    this.end(item, said(event.data?.output), item.error !== undefined);
  }
}
