// LangChain's client for JavaScript against the server whose address is the first argument.
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: process.argv[2] });
const input = { messages: [{ role: "user", content: "What is 21*2?" }] };
const seen = {};

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
