// React's `useStream` in a page of jsdom: a question, an approval, an answer; with a second argument,
// an answer in whose middle the server is killed, and started again.
import { JSDOM } from "jsdom";

const { window } = new JSDOM("<!doctype html><div id=root></div>", { url: "http://localhost/" });
Object.assign(globalThis, { window, document: window.document });
globalThis.navigator ??= window.navigator;
const { createElement } = await import("react");
const { createRoot } = await import("react-dom/client");
const { useStream } = await import("@langchain/react");

const [apiUrl, breaks] = process.argv.slice(2);
let chat;
function Chat() {
  chat = useStream({ assistantId: breaks ? "slow" : "careful", apiUrl });
  const shown = chat.messages.map((one, i) => createElement("p", { key: one.id ?? i }, one.text));
  return createElement("div", null, shown);
}

async function until(what, holds) {
  for (let i = 0; i < 600; i++) {
    if (holds()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`it never came to: ${what}`);
}

const shown = () => [...document.querySelectorAll("p")].map((one) => one.textContent);
createRoot(document.getElementById("root")).render(createElement(Chat));
await until("a chat", () => chat);
void chat.submit({ messages: [{ type: "human", content: "What is 21*2?" }] });
if (breaks) {
  await until("some words", () => shown().at(-1)?.includes("word3"));
  console.log("some words");
  await until("an answer", () => shown().at(-1)?.endsWith("word119") && !chat.isLoading);
  console.log(JSON.stringify({ shown: shown() }));
  process.exit(0);
}
await until("a question", () => chat.interrupts.length && !chat.isLoading && shown().length === 2);
const asked = chat.interrupts[0].value.action_requests[0].args;
const before = shown();
await chat.respond({ decisions: [{ type: "approve" }] });
await until("an answer", () => shown().at(-1) === "It is 42." && !chat.isLoading);
console.log(JSON.stringify({ asked, before, after: shown(), left: chat.interrupts.length }));
process.exit(0);
