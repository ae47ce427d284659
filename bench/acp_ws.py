"""A flood from the demo agent to one ACP client over WebSocket, beside the same flood to an OpenCode stream.

    python -m bench.acp_ws [--chunks 200000] [--rounds 3]

Both are in one run on one gateway, beside the agent's raw pipe. The text that came must equal the stored one.
"""

import argparse
import base64
import json
import os
import socket
import struct
import time

from bench.spine import Gateway, flood, raw_pipe


class Socket:
    """The least of a WebSocket client: text frames, small ones out, any in."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.settimeout(120)
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET /acp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self.sock.sendall(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        self.data = bytearray()
        while b"\r\n\r\n" not in self.data:
            self.data += self.sock.recv(4096)
        del self.data[: self.data.index(b"\r\n\r\n") + 4]
        self.number = 0

    def send(self, method: str, params: object) -> int:
        self.number += 1
        body = json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}).encode()
        size = struct.pack(">B", 0x80 | len(body)) if len(body) < 126 else struct.pack(">BH", 0x80 | 126, len(body))
        self.sock.sendall(b"\x81" + size + b"\0\0\0\0" + body)  # a mask of zeros
        return self.number

    def frames(self) -> list[bytes]:
        """The whole frames that are here."""
        data, at, out = self.data, 0, []
        while len(data) - at >= 2:
            size, head = data[at + 1] & 0x7F, 2
            if size == 126:
                size, head = int.from_bytes(data[at + 2 : at + 4], "big"), 4
            elif size == 127:
                size, head = int.from_bytes(data[at + 2 : at + 10], "big"), 10
            if len(data) - at < head + size:
                break
            if data[at] & 0x0F == 1:
                out.append(bytes(data[at + head : at + head + size]))
            at += head + size
        del data[:at]
        return out

    def until(self, number: int) -> tuple[dict[str, object], list[bytes]]:
        """The answer to a request, and all frames before it."""
        mark = f'"id":{number},"result"'.encode()
        seen: list[bytes] = []
        while True:
            for frame in self.frames():
                if mark in frame[:80]:
                    found: dict[str, object] = json.loads(frame)["result"]
                    return found, seen
                seen.append(frame)
            data = self.sock.recv(1 << 20)
            if not data:
                raise RuntimeError("the socket ended")
            self.data += data


def acp(gateway: Gateway, chunks: int) -> float:
    """Chunks a second from the agent to one ACP v1 client, from the prompt to its answer."""
    one = Socket(gateway.port)
    one.until(one.send("initialize", {"protocolVersion": 1}))
    created, _ = one.until(one.send("session/new", {"cwd": gateway.folder.name, "mcpServers": []}))
    session_id = created["sessionId"]
    began = time.perf_counter()
    prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": f"flood {chunks}"}]}
    _, seen = one.until(one.send("session/prompt", prompt))
    took = time.perf_counter() - began
    one.sock.close()
    updates = [json.loads(frame)["params"]["update"] for frame in seen]
    texts = [u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk"]
    messages = gateway.call("GET", f"/session/{session_id}/message")
    stored = "".join(p["text"] for m in messages if m["info"]["role"] == "assistant"  # type: ignore[attr-defined]
                     for p in m["parts"] if p["type"] == "text")  # fmt: skip
    if "".join(texts) != stored or not stored:
        raise RuntimeError(f"texts differ: {len(''.join(texts))} characters seen, {len(stored)} stored")
    print(f"    {len(texts)} frames, {len(stored)} characters, equal")
    return chunks / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    gateway = Gateway()
    best = {"opencode": 0.0, "acp": 0.0}
    try:
        for _ in range(options.rounds):
            raw = raw_pipe(options.chunks)
            rates = {"opencode": flood(gateway, options.chunks), "acp": acp(gateway, options.chunks)}
            best = {name: max(best[name], rate) for name, rate in rates.items()}
            told = "; ".join(f"{name} {rate:,.0f} chunks/s, {rate / raw:.2f} of it" for name, rate in rates.items())
            print(f"raw pipe {raw:,.0f} chunks/s; {told}")
        ratio = best["acp"] / best["opencode"]
        print(f"best: acp {best['acp']:,.0f}, opencode {best['opencode']:,.0f} chunks/s: ratio {ratio:.2f}")
    finally:
        gateway.close()


if __name__ == "__main__":
    main()
