// The official SDK against a gateway: create, prompt, messages, events, abort. Says what it saw as one line of JSON.
import { createOpencodeClient } from "@opencode-ai/sdk"

const client = createOpencodeClient({ baseUrl: process.argv[2], throwOnError: true })
const stop = new AbortController()
const { stream } = await client.event.subscribe({ signal: stop.signal })
const seen = []
const waiting = []
const until = (test) =>
  new Promise((resolve) => {
    const found = seen.find(test)
    if (found) resolve(found)
    else waiting.push({ test, resolve })
  })
const reading = (async () => {
  for await (const event of stream) {
    seen.push(event)
    for (const one of waiting.splice(0)) {
      if (one.test(event)) one.resolve(event)
      else waiting.push(one)
    }
  }
})().catch(() => {})
await until((event) => event.type === "server.connected")

const session = (await client.session.create({ body: { title: "from the sdk" } })).data
const path = { id: session.id }
const text = (words) => ({ path, body: { parts: [{ type: "text", text: words }] } })
const answer = (await client.session.prompt(text("say hello sdk"))).data
const messages = (await client.session.messages({ path })).data

const cut = client.session.prompt(text("stream 100000 20"))
await until((event) => event.type === "message.part.delta" && event.properties.delta.includes("chunk"))
const aborted = (await client.session.abort({ path })).data
const broken = (await cut).data
await until((event) => event.type === "session.error")

const missing = (await client.session.get({ path: { id: "ses_nope" }, throwOnError: false })).error
const sessions = (await client.session.list()).data
console.log(
  JSON.stringify({
    title: session.title,
    answer: answer.parts.filter((part) => part.type === "text").map((part) => part.text),
    roles: messages.map((message) => message.info.role),
    events: [...new Set(seen.map((event) => event.type))],
    deltas: seen.filter((event) => event.type === "message.part.delta").length,
    aborted,
    broken: broken.info.error?.name,
    missing,
    listed: sessions.some((one) => one.id === session.id),
  }),
)
stop.abort()
await reading
process.exit(0)
