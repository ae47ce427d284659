// The server of the official TypeScript SDK, over HTTP and WebSocket, with the scripted agent behind it: a process a
// connection. Prints "listening on URL", then the method of each message and each request's status.
//   node far.mjs <port> <the agent's command as JSON>
import { spawn } from "node:child_process"
import http from "node:http"
import { createRequire } from "node:module"
import path from "node:path"
import { Readable, Writable } from "node:stream"
import { pathToFileURL } from "node:url"

// The packages are in tests/clients; this file is not.
const require = createRequire(path.join(process.env.CLIENTS, "package.json"))
const load = (name) => import(pathToFileURL(path.join(process.env.CLIENTS, "node_modules", name)).href)
const SDK = "@agentclientprotocol/sdk/dist/"
const { WebSocketServer } = require("ws")
const acp = await load(SDK + "v1/stable/acp.js")
const { AcpServer } = await load(SDK + "transports/server.js")
const { createNodeHttpHandler, createNodeWebSocketUpgradeHandler } = await load(SDK + "transports/node-adapter.js")

const [port, command] = process.argv.slice(2)
const [program, ...args] = JSON.parse(command)

function connect(stream) {
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] })
  const inner = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout))
  const seen = new TransformStream({
    transform(message, controller) {
      if (message.method) console.log(message.method)
      controller.enqueue(message)
    },
  })
  stream.readable.pipeThrough(seen).pipeTo(inner.writable).catch(() => child.kill())
  inner.readable.pipeTo(stream.writable).catch(() => child.kill())
  const closed = new Promise((resolve) => child.on("exit", resolve))
  return { closed }
}

const server = new AcpServer({ agent: { connect } })
const handle = createNodeHttpHandler(server)
const listener = http.createServer((request, response) => {
  response.on("finish", () => console.log(`${request.method} ${response.statusCode}`))
  handle(request, response)
})
listener.on("upgrade", createNodeWebSocketUpgradeHandler(server, new WebSocketServer({ noServer: true })))
listener.listen(Number(port), "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${listener.address().port}`))
