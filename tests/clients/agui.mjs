// The official AG-UI client against a running gateway, with its own verification on.
//
//   node agui.mjs <url of the gateway> <client package> [folder for recorded streams] [names…]
//
// Prints one JSON line a scenario: {name, ok, error?}. A warning of the client is a failure: it found something to strip.
import assert from "node:assert/strict"
import { mkdirSync, writeFileSync } from "node:fs"
import { randomUUID } from "node:crypto"

const [base, client, folder, ...only] = process.argv.slice(2)
const { HttpAgent } = await import(client)
const modern = client === "@ag-ui/client"
if (folder) mkdirSync(folder, { recursive: true })

const warnings = []
console.warn = (...words) => warnings.push(words.map(String).join(" "))
let current = "", streams = 0

async function recording(url, init) {
  const response = await fetch(url, init)
  if (!folder || !response.body || !response.ok) return response
  const [one, two] = response.body.tee()
  const name = `${folder}/${current}-${++streams}`
  new Response(two).text().then((text) => writeFileSync(`${name}.sse`, text), () => {})
  return new Response(one, { status: response.status, headers: response.headers })
}

class Agent extends HttpAgent {
  constructor(agent, options = {}) {
    super({ url: `${base}/agui/${agent}`, threadId: randomUUID(), fetch: recording, ...options })
    this.base = this.url
  }
  connect(input) {
    return Object.assign(Object.create(this), { url: `${this.base}/connect` }).run(input)
  }
  say(text, id = randomUUID()) {
    this.addMessage({ id, role: "user", content: text })
    return id
  }
  go(options = {}, log = []) {
    const { trunkline, ...rest } = options
    const forwardedProps = trunkline ? { trunkline } : {}
    return this.runAgent({ forwardedProps, ...rest }, { onEvent: ({ event }) => void log.push(event) })
  }
  other(options = {}) {
    return new Agent(this.base.split("/agui/")[1], { threadId: this.threadId, ...options })
  }
  side(path, method = "GET", body) {
    const init = { method, headers: { "content-type": "application/json" }, body: body && JSON.stringify(body) }
    return fetch(`${this.base}/threads/${encodeURIComponent(this.threadId)}/${path}`, init)
  }
}

const texts = (agent, role = "assistant") => agent.messages.filter((m) => m.role === role && m.content).map((m) => m.content)
const types = (log) => log.map((e) => e.type)
const find = (log, type) => log.find((e) => e.type === type)
const last = (log) => log[log.length - 1]
const until = async (check, what) => {
  for (const end = Date.now() + 30_000; Date.now() < end; await new Promise((r) => setTimeout(r, 5))) {
    const found = await check()
    if (found) return found
  }
  throw new Error(`never: ${what}`)
}
const seen = (log, type, part = {}) =>
  until(() => log.find((e) => e.type === type && Object.entries(part).every(([k, v]) => e[k] === v)), type)
const approve = (interrupts, payload = { approved: true }) =>
  interrupts.map((i) => ({ interruptId: i.id, status: "resolved", payload }))
const outcome = (log) => last(log).outcome?.type
const interrupts = (log) => last(log).outcome.interrupts
const cancelled = (log) => {
  assert.equal(last(log).type, "RUN_FINISHED")
  assert.equal(outcome(log), modern ? "cancelled" : undefined)
}

const scenarios = {
  async text() {
    const agent = new Agent("demo"), log = []
    agent.say("think hm\nsay hello\nsay again")
    await agent.go({}, log)
    assert.equal(log[0].protocolVersion, modern ? "1.0" : undefined)
    assert.deepEqual(log[0].input.messages.map((m) => m.content), ["think hm\nsay hello\nsay again"])
    assert.deepEqual(texts(agent), ["helloagain"])
    assert.deepEqual(texts(agent, "reasoning"), ["hm"])
    assert.equal(new Set(agent.messages.map((m) => m.id)).size, agent.messages.length)
    assert.equal(last(log).usage[0].totalTokens, last(log).usage[0].inputTokens + last(log).usage[0].outputTokens)
    assert.equal(agent.state.session.agent, "demo")
    assert.equal(agent.state.session.mode, "code")
    assert.deepEqual(agent.state.pending, {})
    assert.equal(agent.state.session.title, "think hm")
    assert.ok(agent.state.session.commands.length && agent.state.session.modes.length && agent.state.usage.used)
    const before = structuredClone(agent.messages)
    agent.say("say more")
    await agent.go({}, (log.length = 0, log))
    assert.ok(!types(log).includes("MESSAGES_SNAPSHOT"), "a client that has everything needs no snapshot")
    assert.deepEqual(agent.messages.slice(0, before.length), before)
  },
  async tool() {
    const agent = new Agent("demo"), log = []
    agent.say("say one\ntool list files 30\nsay two\ntool more")
    await agent.go({}, log)
    const calls = agent.messages.flatMap((m) => m.toolCalls ?? [])
    assert.deepEqual(calls.map((c) => JSON.parse(c.function.arguments)), [{ command: "list files" }, { command: "more" }])
    assert.equal(calls[0].function.name, "execute")
    const results = agent.messages.filter((m) => m.role === "tool")
    assert.deepEqual(results.map((m) => m.content), ["list files: done", "more: done"])
    const activities = agent.messages.filter((m) => m.activityType === "acp.tool_call")
    assert.deepEqual(activities.map((m) => m.content.status), ["completed", "completed"])
    assert.ok(types(log).includes("ACTIVITY_DELTA"))
    assert.deepEqual(texts(agent), ["one", "two"])
  },
  async plan() {
    const agent = new Agent("demo")
    agent.say("plan read|write\nplan read|write|test")
    await agent.go()
    const plans = agent.messages.filter((m) => m.activityType === "PLAN")
    assert.equal(plans.length, 1)
    assert.deepEqual(plans[0].content.entries.map((e) => e.content), ["read", "write", "test"])
  },
  async child() {
    const agent = new Agent("demo"), log = []
    agent.say("child kid\nsay after")
    await agent.go({}, log)
    assert.equal(types(log).includes("SUBAGENT_STARTED"), modern)
    assert.equal(types(log).includes("SUBAGENT_FINISHED"), modern)
    const work = agent.messages.find((m) => m.content === "kid at work")
    assert.equal(Boolean(work.subagentRunId), modern)
    assert.ok(texts(agent).includes("after"))
  },
  async late() {
    const agent = new Agent("demo")
    agent.say("late by the way\nsay now")
    await agent.go()
    await until(async () => {
      const fresh = agent.other()
      await fresh.connectAgent()
      return texts(fresh).some((t) => t.includes("by the way"))
    }, "the late text")
    agent.say("say next")
    await agent.go()
    assert.ok(texts(agent).some((t) => t.includes("by the way")) && texts(agent).includes("next"))
  },
  async refusal() {
    const agent = new Agent("demo"), log = []
    agent.say("refuse")
    await agent.go({}, log)
    assert.equal(last(log).metadata.acp.stopReason, "refusal")
    assert.equal(outcome(log), "success")
  },
  async error() {
    const agent = new Agent("demo"), log = []
    agent.say("say half\ncrash")
    await agent.go({}, log)
    assert.equal(last(log).type, "RUN_ERROR")
    assert.equal(last(log).code, "agent_exit")
    agent.say("say alive")
    await agent.go({}, (log.length = 0, log))
    assert.equal(last(log).type, "RUN_FINISHED")
    assert.ok(texts(agent).includes("alive"))
  },
  async permission() {
    const agent = new Agent("demo"), log = []
    agent.say("say first\nask rm\nsay after")
    await agent.go({}, log)
    const [asked] = interrupts(log)
    const call = agent.messages.flatMap((m) => m.toolCalls ?? [])[0]
    assert.equal(asked.toolCallId, call.id)
    assert.equal(asked.reason, "tool_call")
    assert.deepEqual(asked.responseSchema.required, ["approved"])
    assert.equal(agent.messages.filter((m) => m.role === "tool").length, 0)
    await agent.go({ resume: approve([asked]) }, (log.length = 0, log))
    assert.equal(outcome(log), "success")
    assert.ok(!types(log).includes("TOOL_CALL_START"))
    assert.deepEqual(agent.messages.filter((m) => m.role === "tool").map((m) => m.content), ["rm: done"])
    assert.deepEqual(texts(agent), ["first", "after"])
  },
  async refused() {
    for (const resume of [
      (i) => ({ interruptId: i.id, status: "resolved", payload: { approved: false } }),
      (i) => ({ interruptId: i.id, status: "resolved", payload: { optionId: "reject" } }),
      (i) => ({ interruptId: i.id, status: "cancelled" }),
    ]) {
      const agent = new Agent("demo"), log = []
      agent.say("ask rm\nsay on")
      await agent.go({}, log)
      await agent.go({ resume: interrupts(log).map(resume) }, (log.length = 0, log))
      assert.match(agent.messages.find((m) => m.role === "tool").content, /rejected/)
      assert.deepEqual(texts(agent), ["on"])
    }
  },
  async always() {
    const agent = new Agent("demo"), log = []
    agent.say("ask rm\nask rm\nask mv")
    await agent.go({}, log)
    await agent.go({ resume: approve(interrupts(log), { optionId: "always" }) }, (log.length = 0, log))
    assert.equal(interrupts(log)[0].message, "mv")
    await agent.go({ resume: approve(interrupts(log)) }, (log.length = 0, log))
    assert.equal(outcome(log), "success")
    assert.equal(agent.messages.filter((m) => m.role === "tool").length, 3)
  },
  async steered_away() {
    const agent = new Agent("demo"), log = []
    agent.say("ask rm\nsay never")
    await agent.go({}, log)
    const resume = interrupts(log).map((i) => ({ interruptId: i.id, status: "cancelled" }))
    agent.say("say instead")
    await agent.go({ resume }, (log.length = 0, log))
    assert.equal(outcome(log), "success")
    assert.ok(texts(agent).includes("instead") && !texts(agent).includes("never"))
  },
  async resumed_twice() {
    const agent = new Agent("demo"), log = []
    agent.say("ask rm\nstream 20 20\nsay end")
    await agent.go({}, log)
    const resume = approve(interrupts(log))
    const twin = agent.other({ initialMessages: agent.messages }), more = []
    const first = agent.go({ resume }, (log.length = 0, log))
    await seen(log, "TEXT_MESSAGE_CONTENT")
    await twin.go({ resume }, more)
    await first
    assert.deepEqual([outcome(log), outcome(more)], ["success", "success"])
    assert.deepEqual(twin.messages.filter((m) => m.role !== "activity"), agent.messages.filter((m) => m.role !== "activity"))
    await twin.go({ resume: approve([{ id: resume[0].interruptId }], { approved: false }) }, (more.length = 0, more))
    assert.equal(last(more).code, "interrupt_not_open")
    await twin.go({ resume: approve([{ id: "nothing" }]) }, (more.length = 0, more))
    assert.equal(last(more).code, "interrupt_not_open")
  },
  async answered_elsewhere() {
    const agent = new Agent("demo"), log = []
    agent.say("ask rm\nsay done")
    await agent.go({}, log)
    const [asked] = interrupts(log)
    const other = agent.other()
    await other.connectAgent()
    await other.go({ resume: approve([asked]) })
    await agent.go({ resume: approve([asked], { approved: false }) }, (log.length = 0, log))
    assert.equal(last(log).code, "interrupt_not_open")
    if (modern) assert.equal(agent.pendingInterrupts.length, 1) // it lets no other run begin: giving up is the way out
    await agent.go({ resume: [{ interruptId: asked.id, status: "cancelled" }] }, (log.length = 0, log))
    assert.equal(outcome(log), "success")
    assert.deepEqual(texts(agent), ["done"])
    agent.say("say more")
    await agent.go()
    const fresh = agent.other()
    await fresh.connectAgent()
    assert.deepEqual(texts(fresh), ["done", "more"])
  },
  async without_resume() {
    const agent = new Agent("demo"), log = []
    agent.say("ask rm\nsay done")
    await agent.go({}, log)
    const raw = agent.other({ initialMessages: agent.messages }), more = []
    raw.say("say other")
    await raw.go({}, more)
    assert.equal(last(more).code, "interrupt_open")
    await agent.go({ resume: approve(interrupts(log)) }, (log.length = 0, log))
    assert.deepEqual(texts(agent), ["done"])
  },
  async form() {
    const agent = new Agent("demo"), log = []
    agent.say("form name?\nsay done")
    await agent.go({}, log)
    const [asked] = interrupts(log)
    assert.equal(asked.reason, "input_required")
    assert.deepEqual(asked.responseSchema.required, ["answer"])
    await agent.go({ resume: approve([asked], { answer: "me" }) }, (log.length = 0, log))
    assert.match(texts(agent).join(), /Form: accept me/)
  },
  async abort() {
    const agent = new Agent("demo"), log = []
    agent.say("stream 400 20")
    const running = agent.go({}, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    agent.abortRun()
    agent.say("say next") // assistant-ui's supersede: at once
    const next = [], second = agent.go({}, next)
    await running
    await second
    assert.equal(outcome(next), "success")
    assert.ok(texts(agent).includes("next"))
    assert.ok(!texts(agent).some((t) => t.includes("chunk 399")))
  },
  async aborted_stays() {
    const agent = new Agent("demo"), log = []
    agent.say("stream 400 20")
    const running = agent.go({}, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    agent.abortRun()
    await running
    const fresh = agent.other(), more = []
    await until(async () => {
      await fresh.connectAgent({}, { onEvent: ({ event }) => void more.push(event) })
      return last(more).type === "RUN_FINISHED"
    }, "the end")
    cancelled(more)
    assert.match(texts(fresh)[0], /^chunk 0 /)
  },
  async goes_on() {
    const agent = new Agent("demo"), log = []
    agent.say("stream 20 20\nsay end")
    const running = agent.go({ trunkline: { onDisconnect: "continue" } }, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    agent.abortRun()
    await running
    const fresh = agent.other()
    await fresh.connectAgent()
    assert.match(texts(fresh).join(""), /chunk 19 end/)
  },
  async stop() {
    const agent = new Agent("demo"), log = []
    agent.say("stream 400 20")
    const running = agent.go({}, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    const stopped = await (await agent.side("stop", "POST")).json()
    assert.equal(stopped.stopped, true)
    await running
    cancelled(log)
    assert.equal((await (await agent.side("stop", "POST")).json()).stopped, false)
  },
  async queue() {
    const agent = new Agent("demo"), log = [], more = []
    agent.say("stream 10 20")
    const running = agent.go({}, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    const other = agent.other()
    other.say("say second")
    await other.go({}, more)
    await running
    assert.equal(find(more, "CUSTOM").name, "acp.message_queued")
    assert.equal(outcome(more), "success")
    assert.equal(texts(other).at(-1), "second")
    assert.match(texts(other)[0], /chunk 9/) // a snapshot: it had not seen the first turn
    assert.ok(!texts(agent).includes("second"))
  },
  async unqueue() {
    const agent = new Agent("demo"), log = [], more = []
    agent.say("stream 30 20\nsay end")
    const running = agent.go({}, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    const other = agent.other(), id = other.say("say second")
    const waiting = other.go({}, more)
    await until(() => types(more).includes("STATE_DELTA"), "admitted")
    other.abortRun()
    await waiting
    await until(async () => (await (await agent.side("pending")).json()).pending.length === 0, "revoked")
    await running
    assert.equal(outcome(log), "success")
    assert.match(texts(agent).join(""), /end$/)
    other.messages = agent.messages
    other.addMessage({ id, role: "user", content: "say second" })
    await other.go({}, (more.length = 0, more)) // a revoked one stays known: nothing runs
    assert.equal(outcome(more), "success")
    assert.ok(!texts(other).includes("second"))
  },
  async steer() {
    const agent = new Agent("steer"), log = [], more = []
    agent.say("stream 60 20\nsay end")
    const running = agent.go({}, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    const other = agent.other(), id = other.say("say steered")
    await other.go({ trunkline: { delivery: "steer" } }, more)
    assert.deepEqual(last(more).result.messageIds, [id])
    assert.equal(last(more).result.activeRunId, log[0].runId)
    await running
    const shown = log.findIndex((e) => e.type === "TEXT_MESSAGE_START" && e.messageId === id)
    assert.equal(log[shown].role, "user")
    assert.ok(agent.messages.some((m) => m.id === id && m.role === "user" && m.content === "say steered"))
    assert.match(texts(agent).join(""), /steered/)
    const told = agent.messages.map((m) => m.id)
    assert.equal(new Set(told).size, told.length)
    const fresh = agent.other()
    await fresh.connectAgent()
    const plain = (list) => list.filter((m) => m.role !== "activity").map(({ id, role, content }) => ({ id, role, content }))
    assert.deepEqual(plain(fresh.messages), plain(agent.messages))
  },
  async steer_later() {
    const agent = new Agent("demo"), log = [] // cannot be steered: the message is first in the next turn
    agent.say("stream 15 20")
    const running = agent.go({}, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    const answer = await agent.side("messages", "POST", { messages: [{ id: "s1", content: "say later" }], delivery: "steer" })
    assert.deepEqual((await answer.json()).messages, [{ id: "s1", state: "pending", duplicate: false }])
    await running
    assert.equal(types(log).filter((t) => t === "RUN_STARTED").length, 2)
    assert.equal(texts(agent).at(-1), "later")
    assert.ok(agent.messages.some((m) => m.id === "s1"))
  },
  async reject() {
    const agent = new Agent("demo"), log = []
    agent.say("stream 20 20")
    const running = agent.go({}, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    const other = agent.other()
    other.say("say no")
    await assert.rejects(other.go({ trunkline: { delivery: "reject" } }), /HTTP 409/)
    await running
    assert.equal(outcome(log), "success")
  },
  async pending() {
    const agent = new Agent("steer"), log = []
    agent.say("stream 40 25\nsay end")
    const running = agent.go({}, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    for (const id of ["a", "b", "c"]) await agent.side("messages", "POST", { messages: [{ id, content: `say ${id}` }] })
    let list = (await (await agent.side("pending")).json()).pending
    assert.deepEqual(list.map((m) => [m.id, m.delivery, m.state]), [["a", "queue", "pending"], ["b", "queue", "pending"], ["c", "queue", "pending"]])
    assert.equal((await (await agent.side("pending/b", "DELETE")).json()).result, "revoked")
    assert.equal((await (await agent.side("pending/b", "DELETE")).json()).result, "revoked")
    assert.equal((await (await agent.side("pending/a", "PATCH", { content: "say changed" })).json()).result, "replaced")
    assert.equal((await (await agent.side("pending/c/steer", "POST")).json()).result, "promoted")
    assert.equal((await agent.side("pending/nobody", "DELETE")).status, 404)
    await running
    assert.match(texts(agent).join(""), /c/)
    const fresh = agent.other()
    await until(async () => (await fresh.connectAgent(), texts(fresh).includes("changed")), "the replaced one")
    assert.ok(!texts(fresh).includes("b"))
    assert.equal((await agent.side("pending/a", "DELETE")).status, 409)
  },
  async connect_running() {
    const agent = new Agent("demo"), log = []
    agent.say("think hm\ntool ls\nstream 30 20\nsay end")
    const running = agent.go({}, log)
    await seen(log, "TEXT_MESSAGE_CONTENT")
    const fresh = agent.other(), more = [], stale = agent.other({ initialMessages: structuredClone(agent.messages) })
    const stop = agent.other(), stopping = stop.connectAgent()
    await Promise.all([
      fresh.connectAgent({}, { onEvent: ({ event }) => void more.push(event) }),
      stale.connectAgent(),
      new Promise((r) => setTimeout(r, 100)).then(() => (stop.abortRun(), stopping)), // a follower leaves
    ])
    await running
    assert.equal(outcome(log), "success")
    assert.equal(more[0].runId, log[0].runId)
    assert.deepEqual(fresh.messages, stale.messages)
    const plain = (list) => list.filter((m) => m.role !== "activity").map((m) => ({ ...m, metadata: undefined }))
    assert.deepEqual(plain(fresh.messages), plain(agent.messages))
    assert.match(texts(fresh).join(""), /chunk 29 end$/)
  },
  async connect_others() {
    const agent = new Agent("demo"), log = []
    const unknown = new Agent("demo")
    await unknown.connectAgent()
    assert.deepEqual(unknown.messages, [])
    agent.say("ask rm\nsay done")
    await agent.go({}, log)
    const back = agent.other(), more = []
    await back.connectAgent({}, { onEvent: ({ event }) => void more.push(event) })
    assert.equal(interrupts(more)[0].id, interrupts(log)[0].id)
    await back.go({ resume: approve(interrupts(more)) }, (more.length = 0, more))
    assert.equal(outcome(more), "success")
    const idle = agent.other()
    await idle.connectAgent({}, { onEvent: ({ event }) => void more.push(event) })
    assert.deepEqual(texts(idle), ["done"])
    const named = new Agent("demo", { threadId: idle.state.session.id }) // a session by its own id
    named.setMessages(idle.messages)
    named.say("say by id")
    await named.go()
    assert.equal(texts(named).at(-1), "by id")
  },
  async history() {
    const agent = new Agent("demo"), log = []
    agent.say("say one", "m1")
    agent.say("say two", "m2")
    await agent.go({}, log)
    assert.equal(texts(agent).join(""), "onetwo")
    await agent.go({}, (log.length = 0, log)) // nothing new: nothing runs
    assert.deepEqual(types(log), ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"])
    const before = structuredClone(agent.messages)
    agent.setMessages([before[0]]) // edited: the truth comes back
    agent.say("say three", "m3")
    await agent.go({}, (log.length = 0, log))
    assert.ok(types(log).includes("MESSAGES_SNAPSHOT"))
    assert.deepEqual(new Set(agent.messages.map((m) => m.id)).size, agent.messages.length)
    assert.equal(texts(agent).join(" "), `${texts({ messages: before }).join(" ")} three`)
    agent.addMessage({ id: "foreign", role: "assistant", content: "never said" })
    agent.say("say four", "m4")
    await agent.go()
    assert.ok(!texts(agent).includes("never said") && texts(agent).includes("four"))
  },
  async multimodal() {
    const agent = new Agent("demo")
    const image = modern
      ? { type: "image", source: { type: "data", value: "aGk=", mimeType: "image/png" } }
      : { type: "binary", mimeType: "image/png", data: "aGk=" }
    agent.addMessage({ id: randomUUID(), role: "user", content: [{ type: "text", text: "say seen" }, image] })
    await agent.go({ tools: [{ name: "frontend", description: "ignored", parameters: {} }] })
    assert.match(texts(agent).join(), /seen.*\[image\]/s)
    assert.equal(agent.messages[0].content.length, 2)
    const fresh = agent.other()
    await fresh.connectAgent()
    assert.equal(fresh.messages[0].content[1].source.value, "aGk=")
  },
  async options() {
    const agent = new Agent("demo")
    agent.say("say hi")
    await agent.go({ trunkline: { mode: "ask", title: "named" } })
    agent.say("tool rm")
    const log = []
    await agent.go({ trunkline: { mode: "ask" } }, log)
    assert.equal(agent.state.session.mode, "ask")
    assert.equal(outcome(log), "interrupt")
    await agent.go({ resume: approve(interrupts(log)) })
    assert.equal(agent.state.session.title, "named")
  },
}

let failed = 0
for (const [name, scenario] of Object.entries(scenarios)) {
  if (only.length && !only.includes(name)) continue
  current = name
  warnings.length = 0
  try {
    await Promise.race([
      scenario(),
      new Promise((_, no) => setTimeout(() => no(new Error("it takes too long")), 60_000).unref()),
    ])
    if (warnings.length) throw new Error(`warned: ${warnings.join("; ")}`)
    console.log(JSON.stringify({ name, ok: true }))
  } catch (error) {
    failed++
    console.log(JSON.stringify({ name, ok: false, error: String(error?.stack ?? error).slice(0, 3000) }))
  }
}
process.exit(failed ? 1 : 0)
