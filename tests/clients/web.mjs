// The web app of the real OpenCode server in a headless Chromium, with our gateway behind it.
//
//   node web.mjs <scenario> <our url> <url of the real server> <workspace> <folder for screenshots> [token]
//
// The page's files come from the real server, everything that the page then asks is answered by ours. Every other host
// is refused. Prints {ok, asked, refused} or {ok: false, error, …}.
import assert from "node:assert/strict"
import { mkdirSync } from "node:fs"
import { chromium } from "playwright-core"

const [scenario, ours, real, workspace, shots, token] = process.argv.slice(2)
const TIMEOUT = 60_000 // a loaded machine is slow, not wrong
const FILES = ["document", "script", "stylesheet", "image", "font", "manifest", "other"]
const asked = []
const refused = []
const errors = []

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  headless: true,
  args: (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run " +
    "--disable-background-networking --disable-component-update --disable-sync"
  ).split(" "),
})

// --- the page --------------------------------------------------------------------------------------------------------

/** Files of the page come from the real server, under our origin: as behind a proxy that serves both. */
async function oneOrigin(route) {
  const request = route.request()
  const url = new URL(request.url())
  if (url.origin !== ours) return refuse(route)
  if (!FILES.includes(request.resourceType())) return pass(route)
  const answer = await fetch(real + url.pathname + url.search)
  const headers = Object.fromEntries(answer.headers)
  delete headers["content-length"]
  delete headers["content-encoding"]
  return route.fulfill({ status: answer.status, headers, body: Buffer.from(await answer.arrayBuffer()) })
}

/** The page is the real server's own; ours is another origin. */
function twoOrigins(route) {
  const { origin } = new URL(route.request().url())
  if (origin === real) return route.continue()
  return origin === ours ? pass(route) : refuse(route)
}

function pass(route) {
  const url = new URL(route.request().url())
  asked.push(`${route.request().method()} ${url.pathname}`)
  return route.continue()
}

function refuse(route) {
  refused.push(route.request().url())
  return route.abort()
}

async function open(routes) {
  const viewport = { width: 1200, height: 1800 } // all of a conversation is on the page: what is not seen is not there
  const context = await browser.newContext({ viewport, serviceWorkers: "block", reducedMotion: "reduce" })
  context.setDefaultTimeout(TIMEOUT)
  await context.route("**/*", routes)
  return context
}

async function tab(context, url) {
  const page = await context.newPage()
  page.on("pageerror", (error) => errors.push(String(error.stack ?? error)))
  await page.goto(url)
  return page
}

const base64 = (text) => Buffer.from(text).toString("base64url")
const newSession = () => `${ours}/${base64(workspace)}/session`
const at = (session) => `${ours}/server/${base64(ours)}/session/${session}`
const idOf = (page) => page.url().match(/ses_\w+/)?.[0]

/** When the composer is there and knows a model: before that Enter sends nothing. */
async function ready(page) {
  await page.locator("[contenteditable=true]").waitFor()
  await page.getByText(/^(Default|Demo Quick)$/).first().waitFor()
}

async function say(page, ...lines) {
  const composer = page.locator("[contenteditable=true]")
  await composer.click()
  for (const [index, line] of lines.entries()) {
    if (index) await page.keyboard.press("Shift+Enter")
    await page.keyboard.insertText(line)
  }
  await composer.filter({ hasText: lines.at(-1) }).waitFor()
  await page.keyboard.press("Enter")
  await composer.filter({ hasText: lines.at(-1) }).waitFor({ state: "detached" })
}

/** The conversation as lines: `UserMessage: …`, `AssistantPart: …`, `TurnDivider: …`. */
const rows = (page) =>
  page.evaluate(() =>
    [...document.querySelectorAll("[data-timeline-row]")]
      .map((row) => [row.dataset.timelineRow, row])
      .filter(([kind]) => ["UserMessage", "AssistantPart", "TurnDivider"].includes(kind))
      .map(([kind, row]) => {
        const told = row.querySelector("[data-slot=user-message-text], [data-slot=text-part-body]") ?? row
        return `${kind}: ${told.innerText.replace(/\s+/g, " ").trim()}`
      }),
  )

/** Waits until the conversation is what is wanted; says what it is if it never is. */
async function until(page, wanted, what) {
  const end = Date.now() + TIMEOUT
  let seen = []
  while (Date.now() < end) {
    seen = await rows(page)
    if (wanted(seen)) return seen
    await page.waitForTimeout(50)
  }
  throw new Error(`never: ${what}; the page shows\n${seen.join("\n")}`)
}

const shows = (page, ...parts) =>
  until(page, (seen) => parts.every((part) => seen.some((row) => row.includes(part))), parts.join(" and "))

const idle = (page) => page.locator("button[aria-label=Send]").waitFor()

let number = 0
async function shot(page, name) {
  mkdirSync(shots, { recursive: true })
  await page.screenshot({ path: `${shots}/${scenario}-${String(++number).padStart(2, "0")}-${name}.png` })
}

const chunks = (from, to) => Array.from({ length: to - from }, (_, index) => `chunk ${from + index}`).join(" ")
const tool = (title) => (row) => row.startsWith("AssistantPart: Shell") && row.endsWith(title)
const count = (seen, row) => seen.filter((one) => one === row).length

// --- what is tried ---------------------------------------------------------------------------------------------------

const scenarios = {
  /** A new session, streaming, a tool, a permission, a question, abort, and what waits. */
  async turn() {
    const page = await tab(await open(oneOrigin), newSession())
    await ready(page)
    await say(page, "say hello page")
    await shows(page, "UserMessage: say hello page", "AssistantPart: hello page")

    await say(page, "stream 60 25", "tool list files", "say over")
    await shows(page, "chunk 3")
    assert.ok(!(await rows(page)).some((row) => row.includes("chunk 59")), "it comes while it is written")
    await shot(page, "streaming")
    await until(page, (now) => now.at(-1) === "AssistantPart: over" && now.some(tool("list files")), "the tool and over")
    const seen = await rows(page)
    assert.equal(count(seen, `AssistantPart: ${chunks(0, 60)}`), 1)
    assert.equal(seen.filter(tool("list files")).length, 1, seen.join("\n"))
    await shot(page, "tool")

    await say(page, "ask Deploy", "say deployed")
    await page.getByText("Permission required").waitFor()
    await shot(page, "permission")
    await page.getByRole("button", { name: "Allow once" }).click()
    await shows(page, "AssistantPart: deployed")
    await page.getByText("Permission required").waitFor({ state: "hidden" })

    await say(page, "ask Remove", "say went on")
    await page.getByRole("button", { name: "Deny" }).click()
    await shows(page, "AssistantPart: went on")

    await say(page, "form Which name?")
    await page.getByText("Type your own answer").click()
    const answer = page.locator("textarea:focus, input:focus") // the field comes, and is focused, a little after the click
    await answer.waitFor()
    await page.keyboard.insertText("Ada")
    assert.equal(await answer.inputValue(), "Ada")
    await page.getByRole("button", { name: "Submit" }).click()
    await shows(page, "AssistantPart: Form: accept Ada")

    await say(page, "stream 60 25")
    await until(page, (now) => /chunk 3/.test(now.at(-1)), "a stream again")
    await say(page, "say the second")
    const queued = await shows(page, "UserMessage: say the second")
    assert.equal(queued.at(-1), "UserMessage: say the second", "what waits is last")
    await shot(page, "queued")
    await until(page, (now) => now.at(-1) === "AssistantPart: the second", "the second answered")
    const after = await rows(page)
    assert.deepEqual(after.slice(-4), [
      "UserMessage: stream 60 25",
      `AssistantPart: ${chunks(0, 60)}`,
      "UserMessage: say the second",
      "AssistantPart: the second",
    ])
    assert.equal(count(after, "UserMessage: say the second"), 1)

    await say(page, "stream 100000 25")
    await until(page, (now) => /chunk 3/.test(now.at(-1)), "a long stream")
    await say(page, "say held")
    await shows(page, "UserMessage: say held")
    await page.keyboard.press("Escape")
    await shows(page, "TurnDivider: Interrupted")
    await idle(page)
    await shot(page, "aborted")
    assert.equal((await rows(page)).at(-1), "UserMessage: say held", "it waits for the next prompt")
    await say(page, "say next")
    await until(page, (now) => now.at(-1) === "AssistantPart: held", "both answered")
    assert.deepEqual((await rows(page)).slice(-4), [
      "UserMessage: say next",
      "AssistantPart: next",
      "UserMessage: say held",
      "AssistantPart: held",
    ])
    await shot(page, "end")
  },

  /** Reload in the middle of a turn; two tabs of one session; the list of sessions. */
  async tabs() {
    const context = await open(oneOrigin)
    const one = await tab(context, newSession())
    await ready(one)
    await say(one, "say the beginning")
    await shows(one, "AssistantPart: the beginning")
    const two = await tab(context, at(idOf(one)))
    await ready(two)
    await shows(two, "UserMessage: say the beginning", "AssistantPart: the beginning")

    await say(one, "stream 250 25", "ask Deploy", "say over")
    await shows(two, "chunk 3")
    await say(two, "say from the other tab")
    await shows(one, "UserMessage: say from the other tab")
    await one.reload()
    await shows(one, "chunk 60")
    await shot(one, "reloaded")
    await Promise.all([one, two].map((page) => page.getByText("Permission required").waitFor()))
    await shot(two, "permission")
    await one.getByRole("button", { name: "Allow once" }).click()
    await two.getByText("Permission required").waitFor({ state: "hidden" })
    const end = ["AssistantPart: over", "UserMessage: say from the other tab", "AssistantPart: from the other tab"]
    const ended = (seen) => tool("Deploy")(seen.at(-4)) && end.every((row, index) => row === seen.at(index - 3))
    const [left, right] = await Promise.all([one, two].map((page) => until(page, ended, "the end of both turns")))
    assert.deepEqual(left, right)
    assert.equal(count(left, `AssistantPart: ${chunks(0, 250)}`), 1, left.join("\n"))

    // the list of sessions is of the folders that were opened in the page
    const home = await tab(context, ours + "/")
    await home.getByText("Add project").first().waitFor()
    await home.evaluate((worktree) => {
      const projects = { local: [{ worktree, expanded: true }] }
      const kept = { list: [], projects, lastProject: {}, recentlyClosed: {} }
      localStorage.setItem("opencode.global.dat:server", JSON.stringify(kept))
    }, workspace)
    await home.reload()
    await home.locator("main").getByText("say the beginning").first().waitFor()
    await shot(home, "list")
    await home.locator("main").getByText("say the beginning").first().click()
    await shows(home, "AssistantPart: the beginning", "AssistantPart: from the other tab")
    assert.equal(idOf(home), idOf(one))
  },

  /** The page of a server elsewhere, ours added in its settings with a password: what `allow_origins` is for. */
  async server() {
    const page = await tab(await open(twoOrigins), real + "/")
    await page.getByText("Settings", { exact: true }).first().click()
    await page.getByText("Servers", { exact: true }).first().click()
    await page.getByRole("button", { name: "Add server" }).first().click()
    await page.getByPlaceholder("http://localhost:4096").fill(ours)
    await page.getByPlaceholder("username").fill("opencode")
    await page.getByPlaceholder("password").fill(token)
    await page.getByRole("button", { name: "Add server" }).last().click()
    await page.getByText("opencode", { exact: true }).first().waitFor() // the name in its row, when it is connected
    await shot(page, "added")
    const session = await create()
    await page.goto(`${real}/server/${base64(ours)}/session/${session}`)
    await ready(page)
    await say(page, "say from far", "ask Deploy")
    await page.getByRole("button", { name: "Allow once" }).click()
    await shows(page, "AssistantPart: from far")
    await until(page, (now) => tool("Deploy")(now.at(-1)), "the tool")
    await idle(page)
    await shot(page, "turn")
  },
}

async function create() {
  const headers = { "content-type": "application/json", authorization: `Bearer ${token}` }
  const answer = await fetch(`${ours}/session`, { method: "POST", headers, body: "{}" })
  return (await answer.json()).id
}

let told = { ok: true }
try {
  await scenarios[scenario]()
  assert.deepEqual(errors, [])
} catch (error) {
  told = { ok: false, error: String(error?.stack ?? error), errors }
  for (const [index, page] of browser.contexts().flatMap((context) => context.pages()).entries())
    await page.screenshot({ path: `${shots}/${scenario}-failed-${index}.png` }).catch(() => {})
}
console.log(JSON.stringify({ ...told, asked: [...new Set(asked)], refused }))
await browser.close()
process.exit(told.ok ? 0 : 1)
