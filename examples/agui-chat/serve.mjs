// node serve.mjs [url of a running gateway]
//
// Serves the page. Without an address it starts a gateway of its own beside it (`trunkline` of this repository's .venv,
// else of the PATH), with a store in ./.trunkline, and allows this page's origin there.
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { createServer } from "node:http"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const here = dirname(fileURLToPath(import.meta.url))
const esbuild = createRequire(import.meta.url)("esbuild")
const agent = process.env.AGENT ?? "demo"
const config = { gateway: process.argv[2]?.replace(/\/$/, ""), agent }

const script = (
  await esbuild.build({
    entryPoints: [join(here, "main.js")],
    bundle: true,
    format: "esm",
    write: false,
    logLevel: "warning",
    nodePaths: (process.env.NODE_PATH ?? "").split(":").filter(Boolean),
  })
).outputFiles[0].contents

const files = {
  "/": ["text/html; charset=utf-8", await readFile(join(here, "index.html"))],
  "/main.js": ["text/javascript; charset=utf-8", script],
}

const server = createServer((request, response) => {
  const path = request.url.split("?")[0]
  const [type, body] = path === "/config.json" ? ["application/json", JSON.stringify(config)] : (files[path] ?? [])
  response.writeHead(body ? 200 : 404, { "content-type": type ?? "text/plain" }).end(body ?? "not found")
})

server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", () => {
  const origin = `http://127.0.0.1:${server.address().port}`
  if (config.gateway) console.log(`open ${origin}`)
  else start(origin)
})

function start(origin) {
  const own = join(here, "../../.venv/bin/trunkline")
  const data = join(process.cwd(), ".trunkline")
  const gateway = spawn(existsSync(own) ? own : "trunkline", ["serve", "--port", "0", "--data", data], {
    env: { ...process.env, TRUNKLINE_ALLOW_ORIGINS: origin },
    stdio: ["ignore", "pipe", "pipe"],
  })
  gateway.on("exit", (code) => process.exit(code ?? 1))
  gateway.on("error", (error) => (console.error(`trunkline cannot be started: ${error.message}`), process.exit(1)))
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => gateway.kill("SIGTERM"))
  let said = ""
  const heard = (data) => {
    process.stderr.write(data)
    if (config.gateway) return
    said += data
    config.gateway = /listening on (http:\S+)/.exec(said)?.[1]
    if (config.gateway) console.log(`open ${origin}`)
  }
  gateway.stdout.on("data", heard)
  gateway.stderr.on("data", heard)
}
