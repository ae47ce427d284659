// The example page in a headless Chromium: streams, tools, approval, queue, steer, stop, reload.
//
//   node browser.mjs <url of the page> <folder for the profile>
import assert from "node:assert/strict"
import { chromium } from "playwright-core"

const [url, profile] = process.argv.slice(2)
const context = await chromium.launchPersistentContext(profile, {
  executablePath: "/usr/bin/chromium",
  headless: true,
  args: (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run " +
    "--disable-background-networking --disable-component-update --disable-sync"
  ).split(" "),
})
const page = await context.newPage()
const errors = []
page.on("pageerror", (error) => errors.push(String(error)))
page.on("console", (message) => ["error", "warning"].includes(message.type()) && errors.push(`${message.text()} ${message.location().url}`))
const say = async (text, how = "#send") => {
  await page.fill("#text", text)
  await page.click(how)
}
const shown = (text) => page.getByText(text).first().waitFor({ timeout: 30_000 })
const idle = () => page.waitForFunction(() => document.getElementById("stop").disabled, null, { timeout: 30_000 })
const all = () => page.innerText("#messages")

let failed = 0
try {
  await page.goto(url)
  await idle()
  await say("think hm\nsay hello there\ntool list")
  await shown("hello there")
  await shown("⚙ list: completed")
  await shown("list: done")
  await idle()

  await say("ask remove\nsay approved")
  await page.getByRole("button", { name: "Approve" }).click()
  await shown("⚙ remove: completed")
  await idle()
  assert.match(await all(), /approved$/)

  await say("ask again\nsay went on")
  await page.getByRole("button", { name: "Reject" }).click()
  await shown("The user rejected this tool call.")
  await idle()

  await say("stream 60 25\nsay end of stream")
  await shown("chunk 3")
  await say("say steered in", "#steer")
  await say("say queued up")
  await shown("queue: say queued up")
  await shown("steered in")
  await idle()
  assert.ok((await all()).includes("end of stream"))

  await say("stream 400 25")
  await shown("chunk 2")
  await page.click("#stop")
  await idle()
  assert.ok(!(await all()).includes("chunk 399"))

  const before = await all()
  await page.reload()
  await idle()
  await page.waitForFunction(() => document.body.innerText.includes("queued up"), null, { timeout: 30_000 })
  const after = await all()
  for (const line of before.split("\n")) assert.ok(after.includes(line.trim()), `lost: ${line}`)
  assert.deepEqual(errors, [])
  console.log(JSON.stringify({ ok: true }))
} catch (error) {
  failed = 1
  console.log(JSON.stringify({ ok: false, error: String(error?.stack ?? error), errors, text: await all().catch(() => "") }))
}
await context.close()
process.exit(failed)
