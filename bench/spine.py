"""The spine measured: memory, start-up, and a flood from the demo agent to one ``/global/event`` reader.

    python bench/spine.py [--chunks 200000] [--rounds 3]

Every figure is set beside a reference of the same run: the bare imports, and the agent's raw pipe. The text that the
reader put together must equal the stored one, else there is no figure.
"""

import argparse
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SERVER = [sys.executable, "-m", "gateway"]
IMPORTS = "import gateway.app, gateway.server, adapters.opencode, adapters.acp.agent, uvicorn, uvloop, httptools"


def rss(pid: int) -> float:
    """Resident memory in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def bare() -> tuple[float, float]:
    """Seconds and MB of a process that only imports what the server imports."""
    code = f"import time; t=time.perf_counter()\n{IMPORTS}\nprint(time.perf_counter()-t, flush=True); input()"
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    took, memory = time.perf_counter() - began, rss(process.pid)
    process.communicate("\n")
    return took, memory


class Gateway:
    """A server of its own on a free port, in a folder that goes away. ``more``: flags of ``serve``."""

    def __init__(self, *more: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        began = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRUNKLINE_DEMO_STATE": self.folder.name}
        arguments = ["serve", "--port", "0", "--data", self.folder.name + "/data", "--workspace", self.folder.name]
        self.process = subprocess.Popen(
            SERVER + arguments + list(more),
            cwd=self.folder.name,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                break
        else:
            raise RuntimeError("the server did not start")
        self.ready = time.perf_counter() - began

    def call(self, method: str, path: str, body: object = None) -> object:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        request.add_header("content-type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data, timeout=120) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.folder.cleanup()


def raw_pipe(chunks: int) -> float:
    """Chunks a second of the demo agent's ``flood`` into a reader that only counts lines."""
    process = subprocess.Popen(
        [sys.executable, "-m", "adapters.acp.demo"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None

    def say(number: int, method: str, params: object) -> None:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]

    def answer(number: int) -> dict[str, object]:
        while True:
            message: dict[str, object] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            if message.get("id") == number and "result" in message:
                return message

    say(0, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    answer(0)
    say(1, "session/new", {"cwd": "/tmp", "mcpServers": []})
    session = answer(1)["result"]["sessionId"]  # type: ignore[index]
    say(2, "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": f"flood {chunks}"}]})
    began, rest, done = time.perf_counter(), b"", False
    lines = 0
    while not done:
        data = os.read(process.stdout.fileno(), 1 << 18)
        lines += data.count(b"\n")
        tail = rest + data
        done = b'"stopReason"' in tail
        rest = data[-64:]
    took = time.perf_counter() - began
    process.stdin.close()
    process.wait(10)
    return chunks / took


def flood(gateway: Gateway, chunks: int) -> float:
    """Chunks a second from the agent to one reader of ``/global/event``, from the POST to the last byte of text."""
    session: Any = gateway.call("POST", "/session", {})
    session_id = session["id"]
    reader = socket.create_connection(("127.0.0.1", gateway.port))
    reader.sendall(f"GET /global/event HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n\r\n".encode())
    reader.settimeout(120)
    seen = b""
    while b"server.connected" not in seen:
        seen += reader.recv(1 << 16)
    began = time.perf_counter()
    gateway.call(
        "POST", f"/session/{session_id}/prompt_async", {"parts": [{"type": "text", "text": f"flood {chunks}"}]}
    )
    stream = bytearray(seen)
    while b'"session.idle"' not in stream[-4096:]:
        data = reader.recv(1 << 20)
        if not data:
            raise RuntimeError("the stream ended")
        stream += data
    took = time.perf_counter() - began
    reader.close()
    texts: list[str] = []
    for line in re.sub(rb"\r\n[0-9a-fA-F]+\r\n", b"", bytes(stream)).split(b"\n"):
        if line.startswith(b"data:") and b'"message.part.delta"' in line:
            texts.append(json.loads(line[5:])["payload"]["properties"]["delta"])
    messages: Any = gateway.call("GET", f"/session/{session_id}/message")
    stored = "".join(p["text"] for p in messages[-1]["parts"] if p["type"] == "text")
    if "".join(texts) != stored or not stored:
        raise RuntimeError(f"texts differ: {len(''.join(texts))} characters seen, {len(stored)} stored")
    print(f"    {len(texts)} frames, {len(stored)} characters, equal")
    return chunks / took


def flood_agui(gateway: Gateway, chunks: int) -> float:
    """The same over AG-UI: one run, from its POST to its last event."""
    thread = f"bench-{time.monotonic_ns()}"
    message = {"id": thread + "-1", "role": "user", "content": f"flood {chunks}"}
    run = {"threadId": thread, "runId": "r1", "protocolVersion": "1.0", "state": {}, "messages": [message]}
    body = json.dumps({**run, "tools": [], "context": [], "forwardedProps": {}}).encode()
    reader = socket.create_connection(("127.0.0.1", gateway.port))
    reader.settimeout(120)
    head = f"POST /agui/demo HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nContent-Type: application/json\r\n"
    began = time.perf_counter()
    reader.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    stream = bytearray()
    while b'"RUN_FINISHED"' not in stream[-4096:]:
        data = reader.recv(1 << 20)
        if not data:
            raise RuntimeError(f"the run ended early: {bytes(stream[-300:])!r}")
        stream += data
    took = time.perf_counter() - began
    reader.close()
    texts = [
        json.loads(line[5:])["delta"]
        for line in re.sub(rb"\r\n[0-9a-fA-F]+\r\n", b"", bytes(stream)).split(b"\n")
        if line.startswith(b"data:") and b'"TEXT_MESSAGE_CONTENT"' in line
    ]
    sessions: Any = gateway.call("GET", "/session")
    messages: Any = gateway.call("GET", f"/session/{sessions[0]['id']}/message")
    stored = "".join(p["text"] for p in messages[-1]["parts"] if p["type"] == "text")
    if "".join(texts) != stored or not stored:
        raise RuntimeError(f"texts differ: {len(''.join(texts))} characters seen, {len(stored)} stored")
    return chunks / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    imports, memory = min(bare() for _ in range(3))
    gateway = Gateway()
    try:
        print(f"ready after {gateway.ready:.2f} s; bare imports {imports:.2f} s: +{gateway.ready - imports:.2f} s")
        idle = rss(gateway.process.pid)
        print(f"idle RSS {idle:.1f} MB; bare imports {memory:.1f} MB: +{idle - memory:.1f} MB")
        best = 0.0
        for _ in range(options.rounds):
            raw, rate = raw_pipe(options.chunks), flood(gateway, options.chunks)
            agui = flood_agui(gateway, options.chunks)
            best = max(best, rate)
            print(f"flood: {rate:,.0f} chunks/s to one reader; raw pipe {raw:,.0f}: ratio {rate / raw:.2f}")
            print(f"       {agui:,.0f} chunks/s on AG-UI: {agui / rate:.2f} x the OpenCode stream")
        print(f"best {best:,.0f} chunks/s; RSS after {rss(gateway.process.pid):.1f} MB")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"CPU of the references: {used.ru_utime + used.ru_stime:.1f} s")
    finally:
        gateway.close()


if __name__ == "__main__":
    main()
