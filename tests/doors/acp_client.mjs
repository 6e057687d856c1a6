// ACP's client for TypeScript: a prompt with an approval; a killed process; the session in a new one.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";

const [, , cwd, python] = process.argv;

// Start the agent, and work with it as an editor; the process is killed at the end.
async function editing(agent, decide, work) {
  const made = spawn(python, ["-m", "wick_graph", "acp", agent], { cwd, stdio: ["pipe", "pipe", "inherit"] });
  const shown = [];
  const stream = ndJsonStream(Writable.toWeb(made.stdin), Readable.toWeb(made.stdout));
  const app = client({ name: "editor" })
    .onRequest(methods.client.session.requestPermission, ({ params }) => decide(params, made))
    .onNotification(methods.client.session.update, ({ params }) => void shown.push(params.update));
  try {
    return await app.connectWith(stream, async (ctx) => {
      const known = await ctx.request(methods.agent.initialize, { protocolVersion: PROTOCOL_VERSION });
      if (!known.agentCapabilities.loadSession) throw new Error("no session can be loaded");
      return await work(ctx, shown);
    });
  } finally {
    made.kill("SIGKILL");
  }
}

const prompt = [{ type: "text", text: "What is 21*2?" }];
const allow = ({ options }) => ({ outcome: { outcome: "selected", optionId: options[0].optionId } });
const brief = (one) => [one.sessionUpdate, one.status ?? one.content?.text ?? null];
const seen = {};

seen.prompt = await editing("careful", allow, async (ctx, shown) => {
  const { sessionId } = await ctx.request(methods.agent.session.new, { cwd, mcpServers: [] });
  const { stopReason } = await ctx.request(methods.agent.session.prompt, { sessionId, prompt });
  return { stopReason, shown: shown.map(brief) };
});

let sessionId;
let asked = 0;
const die = (_, made) => {
  asked += 1;
  made.kill("SIGKILL");
  return new Promise(() => {});
};
await editing("careful", die, async (ctx) => {
  ({ sessionId } = await ctx.request(methods.agent.session.new, { cwd, mcpServers: [] }));
  await ctx.request(methods.agent.session.prompt, { sessionId, prompt });
}).catch(() => {});
seen.asked = asked;

seen.loaded = await editing("careful", allow, async (ctx, shown) => {
  await ctx.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
  for (let i = 0; i < 1200 && !shown.some((one) => one.content?.text === "It is 42."); i++) {
    await new Promise((done) => setTimeout(done, 50));
  }
  return shown.map(brief);
});
console.log(JSON.stringify(seen));
process.exit(0);
