// The official SDK's client of version 2 against a gateway with the demo agent: both streams, prompts while busy, a
// permission, an interrupt, pending messages. Says what it saw as one line of JSON.
import { createOpencodeClient } from "@opencode-ai/sdk/v2"

const base = process.argv[2]
const { v2 } = createOpencodeClient({ baseUrl: base, throwOnError: true })
const stop = new AbortController()

const follow = (stream) => {
  const seen = []
  const waiting = []
  const reading = (async () => {
    for await (const event of stream) {
      seen.push(event)
      for (const one of waiting.splice(0)) (one.test(event) ? one.resolve : (_) => waiting.push(one))(event)
    }
  })().catch(() => {})
  const until = (test) =>
    new Promise((resolve) => {
      const found = seen.find(test)
      if (found) resolve(found)
      else waiting.push({ test, resolve })
    })
  return { seen, until, reading }
}

const all = follow((await v2.event.subscribe({ signal: stop.signal })).stream)
await all.until((event) => event.type === "server.connected")
const session = (await v2.session.create({ location: { directory: process.argv[3] } })).data.data
const sessionID = session.id
const durable = follow((await v2.session.events({ sessionID, after: "0" }, { signal: stop.signal })).stream)
const send = async (text, more) => (await v2.session.prompt({ sessionID, prompt: { text }, ...more })).data.data
const wait = () => v2.session.wait({ sessionID })

// a prompt, and the same one again
const first = await send("say hello sdk", { id: "msg_first" })
await wait()
const again = await send("say hello sdk", { id: "msg_first" })
const conflict = (await v2.session.prompt({ sessionID, id: "msg_first", prompt: { text: "no" } }, { throwOnError: false }))
  .error

// a permission
await send("ask Deploy")
const asked = await all.until((event) => event.type === "permission.v2.asked")
const listed = (await v2.session.permission.list({ sessionID })).data.data
await v2.session.permission.reply({ sessionID, requestID: asked.data.id, reply: "once" })
await wait()

// prompts while busy, pending, interrupt
await send("stream 100000 20")
await all.until((event) => event.type === "session.next.text.delta" && event.data.delta.includes("chunk"))
await send("say queued", { delivery: "queue", id: "msg_queued" })
await send("say gone", { delivery: "queue", id: "msg_gone" })
await send("say steered", { id: "msg_steered" })
const pending = async () =>
  (await (await fetch(`${base}/api/session/${sessionID}/pending`)).json()).data.map((one) => one.id)
const waiting = await pending()
const revoked = await (await fetch(`${base}/api/session/${sessionID}/pending/msg_gone`, { method: "DELETE" })).json()
await durable.until((event) => event.type === "session.next.pending.updated" && event.data.change === "revoked")
const active = Object.keys((await v2.session.active()).data.data)
await v2.session.interrupt({ sessionID })
await wait()
const held = await pending()
await send("say last")
await wait()

const messages = (await v2.session.messages({ sessionID, order: "asc" })).data.data
const history = (await v2.session.history({ sessionID, limit: "100" })).data
await durable.until((event) => event.durable.seq === history.data.at(-1).durable.seq)
const missing = (await v2.session.get({ sessionID: "ses_nope" }, { throwOnError: false })).error
console.log(
  JSON.stringify({
    first: [first.delivery, again.id, again.admittedSeq === first.admittedSeq, again.promotedSeq > first.admittedSeq],
    conflict: conflict._tag,
    listed: listed.map((one) => one.id === asked.data.id),
    waiting,
    revoked: revoked.data.result,
    active: active.includes(sessionID),
    held,
    users: messages.filter((one) => one.type === "user").map((one) => one.text),
    texts: messages.filter((one) => one.type === "assistant").map((one) => one.content.map((part) => part.text ?? part.state.status)),
    failed: messages.filter((one) => one.error).map((one) => one.error.message),
    same: JSON.stringify(durable.seen) === JSON.stringify(history.data) && !history.hasMore,
    missing: missing._tag,
    sessions: (await v2.session.list()).data.data.map((one) => one.id === sessionID),
    health: (await v2.health.get()).data.healthy,
  }),
)
stop.abort()
await all.reading
await durable.reading
process.exit(0)
