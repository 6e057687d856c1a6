// LangChain's client for JavaScript against the server whose address is the first argument; with a
// second one, the server is killed in the middle of a stream, which goes on by itself.
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: process.argv[2] });
const input = { messages: [{ role: "user", content: "What is 21*2?" }] };
const seen = {};

if (process.argv[3]) {
  const parts = [];
  for await (const part of client.runs.stream(null, "slow", { input, streamMode: ["messages-tuple", "updates", "values"] })) {
    parts.push(part);
    if (parts.length === 20) console.log("some words"); // the server is killed now, and started again
  }
  const of = (name) => parts.filter((one) => one.event === name).map((one) => one.data);
  const told = of("messages").map(([one]) => one.content).join("");
  const messages = of("values").at(-1).messages.map((one) => one.content);
  const updates = of("updates").flatMap(Object.keys);
  console.log(JSON.stringify({ told, messages, updates, last: parts.at(-1).event }));
  process.exit(0);
}

seen.assistants = (await client.assistants.search()).map((one) => one.graph_id);
const { thread_id } = await client.threads.create();
seen.events = [];
const streamMode = ["values", "messages-tuple", "updates"];
for await (const part of client.runs.stream(thread_id, "default", { input, streamMode })) {
  seen.events.push(part.event);
}
seen.answer = (await client.threads.getState(thread_id)).values.messages.at(-1).content;
const [run] = await client.runs.list(thread_id);
seen.joined = [];
for await (const part of client.runs.joinStream(thread_id, run.run_id, { lastEventId: "-1" })) {
  seen.joined.push(part.event);
}

const thread = client.threads.stream({ assistantId: "careful" });
await thread.run.start({ input });
for await (const _ of thread.values) {
  // until the run waits
}
seen.asked = thread.interrupts.map((one) => one.payload.action_requests[0].name);
await thread.close();
console.log(JSON.stringify(seen));
process.exit(0);
