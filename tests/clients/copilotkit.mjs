// CopilotKit's runtime in front of a gateway: run, stop, interrupt and resume, and its own replay.
//
//   node copilotkit.mjs <url of the gateway>
import assert from "node:assert/strict"
import { randomUUID } from "node:crypto"
import { createServer } from "node:http"

process.env.COPILOTKIT_TELEMETRY_DISABLED = "true"
process.env.DO_NOT_TRACK = "1"
// Its own HttpAgent throws once more, beside the rejection, when a connection is cut (protocols/agui.md, trap 2).
process.on("unhandledRejection", (error) => console.error("unhandled", error?.message))
const { HttpAgent } = await import("ag-ui-client-0")
const { CopilotRuntime, InMemoryAgentRunner } = await import("@copilotkit/runtime/v2")
const { createCopilotNodeListener } = await import("@copilotkit/runtime/v2/node")

const [base] = process.argv.slice(2)
const runtime = new CopilotRuntime({
  agents: { demo: new HttpAgent({ url: `${base}/agui/demo` }) },
  runner: new InMemoryAgentRunner(),
})
const server = createServer(createCopilotNodeListener({ runtime, basePath: "/api" }))
await new Promise((ready) => server.listen(0, "127.0.0.1", ready))
const front = `http://127.0.0.1:${server.address().port}/api/agent/demo`

class Agent extends HttpAgent {
  constructor(options) {
    super({ url: `${front}/run`, threadId: randomUUID(), ...options })
  }
  connect(input) {
    return Object.assign(Object.create(this), { url: `${front}/connect` }).run(input)
  }
  go(parameters = {}, log = []) {
    return this.runAgent(parameters, { onEvent: ({ event }) => void log.push(event) })
  }
  say(content) {
    this.addMessage({ id: randomUUID(), role: "user", content })
  }
}
const until = async (check, what) => {
  for (const end = Date.now() + 30_000; Date.now() < end; await new Promise((r) => setTimeout(r, 10))) if (check()) return
  throw new Error(`never: ${what}`)
}
const texts = (agent) => agent.messages.filter((m) => m.role === "assistant" && m.content).map((m) => m.content)

const scenarios = {
  async run() {
    const agent = new Agent()
    agent.say("think hm\nsay hello\ntool ls\nsay bye")
    await agent.go()
    assert.deepEqual(texts(agent), ["hello", "bye"])
    assert.equal(agent.messages.find((m) => m.role === "tool").content, "ls: done")
    agent.say("say more")
    await agent.go()
    assert.equal(texts(agent).at(-1), "more")
  },
  async stop() {
    const agent = new Agent(), log = []
    agent.say("stream 400 20")
    const running = agent.go({}, log)
    await until(() => log.some((e) => e.type === "TEXT_MESSAGE_CONTENT"), "text")
    const stopped = await fetch(`${front}/stop/${agent.threadId}`, { method: "POST" })
    assert.equal(stopped.status, 200)
    await running
    const shown = await fetch(`${base}/agui/demo/connect`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ threadId: agent.threadId, runId: "c", protocolVersion: "1.0", messages: [] }),
    })
    const events = (await shown.text()).split("\n").filter((l) => l.startsWith("data:")).map((l) => JSON.parse(l.slice(5)))
    assert.equal(events.at(-1).outcome.type, "cancelled") // the runtime dropped our connection: the turn is over
    agent.say("say alive")
    await agent.go()
    assert.equal(texts(agent).at(-1), "alive")
  },
  async interrupt() {
    const agent = new Agent(), log = []
    agent.say("ask rm\nsay done")
    await agent.go({}, log)
    const [asked] = log.at(-1).outcome.interrupts
    // What useInterrupt does: a tool message of its own, and the same run id again.
    agent.addMessage({ id: randomUUID(), role: "tool", toolCallId: asked.toolCallId, content: "approved" })
    const resume = [{ interruptId: asked.id, status: "resolved", payload: { approved: true } }]
    await agent.go({ runId: log[0].runId, resume }, (log.length = 0, log))
    assert.equal(log.at(-1).type, "RUN_FINISHED")
    assert.deepEqual(texts(agent), ["done"])
    assert.deepEqual(agent.messages.filter((m) => m.role === "tool").map((m) => m.content), ["rm: done"])
    const replayed = new Agent({ threadId: agent.threadId })
    await replayed.connectAgent()
    assert.deepEqual(texts(replayed), ["done"])
  },
}

let failed = 0
for (const [name, scenario] of Object.entries(scenarios)) {
  try {
    await Promise.race([scenario(), new Promise((_, no) => setTimeout(() => no(new Error("too long")), 60_000).unref())])
    console.log(JSON.stringify({ name, ok: true }))
  } catch (error) {
    failed++
    console.log(JSON.stringify({ name, ok: false, error: String(error?.stack ?? error).slice(0, 3000) }))
  }
}
process.exit(failed ? 1 : 0)
