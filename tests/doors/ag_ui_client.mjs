// AG-UI's client: a question, an approval, an answer; with a second argument, the server is killed
// in the middle of a run, and the client asks for the same run again.
import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({ url: process.argv[2], threadId: "ag-ui-client" });
const kinds = [];
const onEvent = ({ event }) => void kinds.push(event.type);
agent.messages = [{ id: "1", role: "user", content: "What is 21*2?" }];
if (process.argv[3]) {
  const again = async () => {
    for (;;) {
      const went = await agent.runAgent({ runId: "one" }, { onEvent }).catch(() => null);
      if (went && kinds.at(-1) === "RUN_FINISHED") return;
      await new Promise((done) => setTimeout(done, 300));
    }
  };
  const told = setInterval(() => {
    if (!agent.messages.at(-1)?.content?.includes("word3")) return;
    clearInterval(told);
    console.log("some words");
  }, 10);
  await again();
  console.log(JSON.stringify({ messages: agent.messages.map((one) => [one.role, one.content]) }));
  process.exit(0);
}
let asked;
const onRunFinishedEvent = ({ event }) => void (asked = event.outcome);
await agent.runAgent({ runId: "one" }, { onEvent, onRunFinishedEvent });
const [question] = asked.interrupts;
const resume = [{ interruptId: question.id, status: "resolved", payload: { approved: true } }];
await agent.runAgent({ runId: "two", resume }, { onEvent, onRunFinishedEvent });
const messages = agent.messages.map((one) => [one.role, one.content]);
console.log(JSON.stringify({ kinds, question, outcome: asked.type, messages }));
