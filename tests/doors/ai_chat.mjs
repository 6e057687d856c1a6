// The AI SDK's `Chat`: a question, an approval, an answer; with the words "and a break", a stream
// that breaks in the middle is resumed.
import { Chat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";

async function until(what, holds) {
  for (let i = 0; i < 1200; i++) {
    if (await holds()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`it never came to: ${what}`);
}

const [api, id, breaks] = process.argv.slice(2);
const finished = [];
const errors = [];
const chat = new Chat({
  id,
  transport: new DefaultChatTransport({
    api,
    prepareReconnectToStreamRequest: ({ api, id }) => ({ api: `${api}/${id}/stream?ended=${!!breaks}` }),
  }),
  onFinish: ({ finishReason }) => finished.push(finishReason),
  onError: (error) => errors.push(error.message),
  sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
});
const parts = () => chat.lastMessage.parts;
if (breaks) {
  void chat.sendMessage({ text: "What is 21*2?" });
  await until("some words", () => chat.lastMessage?.parts.some((one) => one.text?.includes("word3")));
  console.log("some words"); // the server is killed now, and started again
  await until("a break", () => finished.length);
  await until("an answer", async () => {
    await chat.resumeStream();
    return finished.at(-1) === "stop";
  });
  console.log(JSON.stringify({ messages: chat.messages, finished }));
  process.exit(0);
}
await chat.sendMessage({ text: "What is 21*2?" });
const asked = structuredClone(parts());
const waiting = parts().find((one) => one.state === "approval-requested");
await chat.addToolApprovalResponse({ id: waiting.approval.id, approved: true });
await until("an answer", () => chat.status === "ready" && parts().at(-1)?.state === "done");
await chat.resumeStream(); // nothing runs: it changes nothing
console.log(JSON.stringify({ asked, messages: chat.messages, finished, errors, status: chat.status }));
process.exit(0);
