// The official TypeScript SDK as a client of the gateway: a whole visit on one transport and version. Prints what it saw
// as one line of JSON.
//   node sdk.mjs <1|2> <http|ws|stdio> <url, or the command as JSON> <cwd>
import { spawn } from "node:child_process"
import { createRequire } from "node:module"
import path from "node:path"
import { Readable, Writable } from "node:stream"
import { pathToFileURL } from "node:url"

// The packages are in tests/clients; this file is not.
const require = createRequire(path.join(process.env.CLIENTS, "package.json"))
const load = (name) => import(pathToFileURL(path.join(process.env.CLIENTS, "node_modules", name)).href)
const SDK = "@agentclientprotocol/sdk/dist/"
const WebSocket = require("ws")

const [version, transport, where, cwd] = process.argv.slice(2)
const v2 = version === "2"
const acp = await load(SDK + (v2 ? "v2/unstable/acp.js" : "v1/unstable/acp.js"))
const { createHttpStream } = await load(SDK + "transports/http-stream.js")
const { createWebSocketStream } = await load(SDK + "transports/ws-stream.js")

let child
function open() {
  if (transport === "http") return createHttpStream(where)
  if (transport === "ws") return createWebSocketStream(where, { WebSocket })
  const [command, ...args] = JSON.parse(where)
  child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] })
  return acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout))
}

const updates = [] // { sessionId, update }
const asked = []
const waiting = []
function until(test) {
  const found = updates.find(test)
  if (found) return Promise.resolve(found)
  return new Promise((resolve) => waiting.push({ test, resolve }))
}
function app(choose) {
  return acp
    .client({ name: "tests" })
    .onRequest("session/request_permission", ({ params }) => choose(params))
    .onRequest("elicitation/create", ({ params }) => {
      asked.push(params)
      return { action: "accept", content: { answer: "fine" } }
    })
    .onNotification("session/update", ({ params }) => {
      updates.push(params)
      for (const one of waiting.splice(0)) (one.test(params) ? one.resolve(params) : waiting.push(one))
    })
}

const hello = v2
  ? { protocolVersion: 2, info: { name: "tests", version: "1" }, capabilities: { elicitation: { form: {} } } }
  : {
      protocolVersion: 1,
      clientInfo: { name: "tests", version: "1" },
      clientCapabilities: { subagents: {}, session: { notices: {} }, elicitation: { form: {} } },
    }
const prompt = (sessionId, text) => ({ sessionId, prompt: [{ type: "text", text }] })
const text = (kind, from = 0, sessionId) =>
  updates
    .slice(from)
    .filter((u) => u.update.sessionUpdate === kind && (!sessionId || u.sessionId === sessionId))
    .map((u) => u.update.content.text ?? "")
    .join("")
const told = {}
// Of the session itself: children have states of their own.
const isIdle = (from) => (u) =>
  u.sessionId === told.sessionId && updates.indexOf(u) >= from && u.update.state === "idle"

let release
const held = new Promise((resolve) => (release = resolve))
let mode = "once"
const choose = async (params) => {
  asked.push(params)
  if (mode === "hold") await held
  return { outcome: { outcome: "selected", optionId: mode === "hold" ? "reject" : mode } }
}

await app(choose).connectWith(open(), async (ctx) => {
  told.initialize = await ctx.request("initialize", hello)
  const created = await ctx.request("session/new", { cwd, mcpServers: [] })
  told.created = created
  const sessionId = (told.sessionId = created.sessionId)

  // A prompt, and on v2 its end, which is told by a state.
  const turn = async (words) => {
    const from = updates.length
    const answer = await ctx.request("session/prompt", prompt(sessionId, words))
    if (!v2) return answer
    const over = await until(isIdle(from))
    return { ...answer, stopReason: over.update.stopReason }
  }

  told.text = { answer: await turn("say hello\nsay  there"), said: text("agent_message_chunk") }
  const toolFrom = updates.length
  told.tool = { answer: await turn("ask list files\nsay listed"), asked: asked.length }
  told.tool.status = updates
    .slice(toolFrom)
    .filter((u) => u.update.sessionUpdate.startsWith("tool_call"))
    .at(-1).update.status
  const formFrom = updates.length
  told.form = { answer: await turn("form How are you"), said: text("agent_message_chunk", formFrom) }
  told.child = { answer: await turn("child bob") }
  told.child.update = updates.find((u) => u.update.sessionUpdate === "subagent_update")
  const childId = told.child.update.update.sessionId
  told.child.said = text("agent_message_chunk", 0, childId)
  told.child.messages = updates.filter((u) => u.update.sessionUpdate === "session_message").length

  // Cancel: the turn ends as cancelled, also when it waits for a permission.
  const cancelFrom = updates.length
  const long = ctx.request("session/prompt", prompt(sessionId, "say going\nsleep 60000"))
  await until((u) => updates.indexOf(u) >= cancelFrom && u.update.content?.text === "going")
  await ctx.notify("session/cancel", { sessionId })
  const cancelled = await long
  told.cancel = v2 ? (await until(isIdle(cancelFrom))).update.stopReason : cancelled.stopReason

  // A second prompt while the first runs: both answered, in order.
  const order = []
  const busyFrom = updates.length
  const first = ctx.request("session/prompt", prompt(sessionId, "say one\nsleep 200\nsay one again"))
  await until((u) => updates.indexOf(u) >= busyFrom && u.update.content?.text === "one")
  const second = ctx.request("session/prompt", prompt(sessionId, "say two"))
  await Promise.all([first.then(() => order.push(1)), second.then(() => order.push(2))])
  if (v2) await until((u) => isIdle(busyFrom)(u) && updates.slice(busyFrom, updates.indexOf(u)).some((w) => w.update.content?.text === "two"))
  told.busy = { order, said: text("agent_message_chunk", busyFrom) }

  // Errors come as errors.
  told.unknown = await ctx.request("session/prompt", prompt("ses_nobody", "hi")).catch((e) => e.code)
  told.listed = (await ctx.request("session/list", {})).sessions.map((s) => s.sessionId)
  if (!v2) {
    await ctx.request("session/set_mode", { sessionId, modeId: "ask" })
    await ctx.request("session/set_mode", { sessionId, modeId: "code" })
  }
  const option = { sessionId, configId: "model", value: "careful", ...(v2 ? { type: "id" } : {}) }
  told.option = (await ctx.request("session/set_config_option", option)).configOptions
    .filter((o) => (o.configId ?? o.id) === "model")
    .map((o) => o.currentValue)
  child?.stdin.end()
})

// Another connection: the session is loaded, with all that was said.
const live = updates.splice(0)
await app(choose).connectWith(open(), async (ctx) => {
  await ctx.request("initialize", hello)
  const sessionId = told.sessionId
  const load = v2
    ? ctx.request("session/resume", { sessionId, cwd, replayFrom: { type: "start" } })
    : ctx.request("session/load", { sessionId, cwd, mcpServers: [] })
  told.loaded = await load
  // The SDK runs a handler some steps after it has read the message: its answer may be known before the last update.
  if (v2) await until((u) => u.sessionId === sessionId && u.update.sessionUpdate === "state_update")
  else await until((u) => u.sessionId === sessionId && u.update.sessionUpdate === "session_info_update")
  const ids = (kinds) => [...new Set(updates.filter((u) => kinds.includes(u.update.sessionUpdate) && u.sessionId === sessionId).map((u) => u.update.messageId))]
  told.replay = {
    users: ids(["user_message", "user_message_chunk"]).length,
    agents: ids(["agent_message_chunk"]),
    live: [...new Set(live.filter((u) => u.update.sessionUpdate === "agent_message_chunk" && u.sessionId === sessionId).map((u) => u.update.messageId))],
    said: text("agent_message_chunk", 0, sessionId),
    state: updates.filter((u) => u.update.sessionUpdate === "state_update" && u.sessionId === sessionId).map((u) => u.update.state),
  }
  const from = updates.length
  const answer = await ctx.request("session/prompt", prompt(sessionId, "say after the load"))
  told.after = v2 ? (await until(isIdle(from))).update.stopReason : answer.stopReason
  told.closed = await ctx.request("session/close", { sessionId })
  child?.stdin.end()
})
release()
console.log(JSON.stringify(told))
process.exit(0)
