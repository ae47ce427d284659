// A chat with one thread: streams text and thoughts, shows tools, asks for approvals, steers and stops.
// What AG-UI has no word for goes in forwardedProps.trunkline or through a side route of the gateway.
import { HttpAgent } from "@ag-ui/client"

const { gateway, agent: name } = await (await fetch("/config.json")).json()

class Agent extends HttpAgent {
  connect(input) {
    return Object.assign(Object.create(this), { url: `${gateway}/agui/${name}/connect` }).run(input)
  }
}

const threadId = location.hash.slice(1) || crypto.randomUUID()
location.hash = threadId // a reload comes back to the same conversation
const agent = new Agent({ url: `${gateway}/agui/${name}`, threadId })
const at = (id) => document.getElementById(id)
let asks = []
let error = ""

const side = (path, body) =>
  fetch(`${gateway}/agui/${name}/threads/${encodeURIComponent(threadId)}/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body ?? {}),
  })

function line(kind, text) {
  const made = document.createElement("div")
  made.className = `message ${kind}`
  made.textContent = text
  return made
}

function button(text, onclick) {
  return Object.assign(document.createElement("button"), { textContent: text, onclick })
}

function draw() {
  const shown = []
  for (const message of agent.messages) {
    if (message.role === "activity" && message.activityType === "acp.tool_call")
      shown.push(line("tool", `⚙ ${message.content.title}: ${message.content.status}`))
    else if (message.role === "activity" && message.activityType === "PLAN")
      shown.push(line("tool", message.content.entries.map((e) => `☐ ${e.content}`).join("\n")))
    else if (message.role === "tool") shown.push(line("tool", message.content))
    else if (typeof message.content === "string" && message.content) shown.push(line(message.role, message.content))
  }
  at("messages").replaceChildren(...shown)
  at("asks").replaceChildren(
    ...asks.map((ask) => {
      const box = line("ask", `${ask.message}? `)
      box.append(button("Approve", () => answer(true)), button("Reject", () => answer(false)))
      return box
    }),
  )
  const waiting = agent.isRunning ? Object.values(agent.state.pending ?? {}) : []
  at("pending").replaceChildren(...waiting.map((m) => line("pending", `${m.delivery}: ${m.text} (${m.state})`)))
  at("status").className = error ? "error" : ""
  at("status").textContent = error || (agent.isRunning ? "working …" : asks.length ? "waiting for you" : "")
  at("steer").disabled = at("stop").disabled = !agent.isRunning
}

agent.subscribe({
  onMessagesChanged: draw,
  onStateChanged: draw,
  onRunErrorEvent: ({ event }) => void (event.code === "abort" || (error = `${event.code}: ${event.message}`)),
  onRunFinishedEvent: ({ event }) => void (asks = event.outcome?.type === "interrupt" ? event.outcome.interrupts : []),
})

async function run(what) {
  error = ""
  try {
    const going = what()
    draw()
    await going
    while (!error && !asks.length && Object.values(agent.state.pending ?? {}).some((m) => m.state !== "held"))
      await agent.connectAgent() // what was queued from beside the run is shown too
  } catch (failure) {
    error = String(failure.message ?? failure)
  }
  draw()
}

function answer(approved) {
  const resume = asks.map((ask) => ({ interruptId: ask.id, status: "resolved", payload: { approved } }))
  asks = []
  void run(() => agent.runAgent({ resume }))
}

function taken() {
  const text = at("text").value.trim()
  at("text").value = ""
  return text
}

at("form").onsubmit = (event) => {
  event.preventDefault()
  const text = taken()
  if (!text) return
  if (agent.isRunning) return void side("messages", { messages: [{ content: text }], delivery: "queue" })
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text })
  void run(() => agent.runAgent())
}
at("steer").onclick = () => {
  const text = taken()
  if (text) void side("messages", { messages: [{ content: text }], delivery: "steer" })
}
at("stop").onclick = () => void side("stop")

await run(() => agent.connectAgent())
