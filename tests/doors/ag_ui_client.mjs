// AG-UI's client: a question, an approval, an answer.
import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({ url: process.argv[2], threadId: "ag-ui-client" });
const kinds = [];
const onEvent = ({ event }) => void kinds.push(event.type);
agent.messages = [{ id: "1", role: "user", content: "What is 21*2?" }];
let asked;
const onRunFinishedEvent = ({ event }) => void (asked = event.outcome);
await agent.runAgent({ runId: "one" }, { onEvent, onRunFinishedEvent });
const [question] = asked.interrupts;
const resume = [{ interruptId: question.id, status: "resolved", payload: { approved: true } }];
await agent.runAgent({ runId: "two", resume }, { onEvent, onRunFinishedEvent });
const messages = agent.messages.map((one) => [one.role, one.content]);
console.log(JSON.stringify({ kinds, question, outcome: asked.type, messages }));
