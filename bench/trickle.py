"""Sessions that write slowly, all of them to one ``/global/event`` reader: how late the chunks come.

    python -m bench.trickle [--sessions 50] [--chunks 250] [--rounds 3]

Each agent writes a chunk every 20 ms: the time at which it wrote it. The same agents, as many, are read straight from
their pipes in the same run. What the gateway adds is the difference; its p99 is to be at most four times the pipes'
p99. Also with one session. The first chunk of a session, which waits for a commit, is left out. Text is verified.
"""

import argparse
import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench.spine import ROOT, Gateway

PAUSE = 20  # milliseconds
AGENT = [sys.executable, str(ROOT / "bench" / "trickle_agent.py")]
STAMP = re.compile(rb'"text": "(\d+) "')
DELTA = re.compile(rb'"message\.part\.delta"[^\n]*?"partID":"(\w+)"[^\n]*?"delta":"([\d ]+)"')

Late = list[float]  # milliseconds


def percentile(values: Late, share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def pipes(sessions: int, chunks: int) -> Late:
    """How late chunks come straight from the pipes of the agents."""
    agents = [
        subprocess.Popen(AGENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) for _ in range(sessions)
    ]
    ready = selectors.DefaultSelector()
    try:
        for agent in agents:
            assert agent.stdin is not None and agent.stdout is not None
            agent.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize"}).encode() + b"\n")
            agent.stdout.readline()  # it has started
            ready.register(agent.stdout, selectors.EVENT_READ)
        prompt = [{"type": "text", "text": f"{chunks} {PAUSE}"}]
        params = {"sessionId": "trickle", "prompt": prompt}
        ask = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": params}).encode() + b"\n"
        for agent in agents:
            agent.stdin.write(ask)  # type: ignore[union-attr]
        late: Late = []
        seen = dict.fromkeys([agent.stdout.fileno() for agent in agents if agent.stdout], 0)
        running = sessions
        while running:
            for key, _ in ready.select(60):
                data = os.read(key.fd, 1 << 16)
                now = time.monotonic_ns()
                for stamp in STAMP.findall(data):
                    if seen[key.fd]:
                        late.append((now - int(stamp)) / 1e6)
                    seen[key.fd] += 1
                running -= data.count(b'"stopReason"')
    finally:
        ready.close()
        for agent in agents:
            agent.stdin.close()  # type: ignore[union-attr]
        for agent in agents:
            agent.wait(20)
            agent.stdout.close()  # type: ignore[union-attr]
    if set(seen.values()) != {chunks}:
        raise RuntimeError(f"chunks were lost in the pipes: {sorted(set(seen.values()))}, not {chunks}")
    return late


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def through(gateway: Gateway, sessions: int, chunks: int) -> tuple[Late, float]:
    """How late they come to one reader of the gateway's stream; microseconds of the gateway's CPU a chunk."""
    ids: list[str] = []
    for _ in range(sessions):
        session: Any = gateway.call("POST", "/session", {})
        ids.append(session["id"])
        # one chunk now: the agent has started when its answer comes
        gateway.call("POST", f"/session/{ids[-1]}/message", {"parts": [{"type": "text", "text": "1 1"}]})
    reader = socket.create_connection(("127.0.0.1", gateway.port))
    reader.settimeout(120)
    reader.sendall(f"GET /global/event HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n\r\n".encode())
    while b"server.heartbeat" not in reader.recv(1 << 20):  # the snapshot is behind us
        pass
    body = {"parts": [{"type": "text", "text": f"{chunks} {PAUSE}"}]}

    def ask() -> None:
        for session_id in ids:
            gateway.call("POST", f"/session/{session_id}/prompt_async", body)

    used = cpu(gateway.process.pid)
    asking = threading.Thread(target=ask)  # the first sessions stream already: the reader must not wait for the last
    asking.start()
    late: Late = []
    texts: dict[bytes, int] = {}
    idle, rest = 0, b""
    while idle < sessions:
        data = reader.recv(1 << 20)
        now = time.monotonic_ns()
        if not data:
            raise RuntimeError("the stream ended")
        data = rest + data
        end = data.rfind(b"\n\n") + 2
        data, rest = data[:end], data[end:]
        for part, text in DELTA.findall(data):
            for stamp in text.split():
                if part in texts:
                    late.append((now - int(stamp)) / 1e6)
                texts[part] = texts.get(part, 0) + 1
        idle += data.count(b'"type":"session.idle"')
    used = cpu(gateway.process.pid) - used
    asking.join()
    reader.close()
    if sorted(texts.values()) != [chunks] * sessions:
        raise RuntimeError(f"chunks were lost: {sorted(set(texts.values()))} in {len(texts)} parts")
    for session_id in ids:
        gateway.call("DELETE", f"/session/{session_id}")
    return late, used * 1e6 / (chunks * sessions)


def measure(sessions: int, chunks: int, rounds: int) -> None:
    print(f"{sessions} sessions, a chunk every {PAUSE} ms; milliseconds:")
    ratios, medians = [], []
    for _ in range(rounds):
        raw = pipes(sessions, chunks)
        gateway = Gateway("--agent", f"trickle={' '.join(AGENT)}")
        try:
            late, used = through(gateway, sessions, chunks)
        finally:
            gateway.close()
        p50, p99 = (percentile(late, share) - percentile(raw, share) for share in (0.5, 0.99))
        ratios.append(p99 / percentile(raw, 0.99))
        medians.append(p50)
        print(
            f"    pipes p50 {percentile(raw, 0.5):.2f}, p99 {percentile(raw, 0.99):.2f}; "
            f"gateway p50 {percentile(late, 0.5):.2f}, p99 {percentile(late, 0.99):.2f}: "
            f"added p50 {p50:.2f}, p99 {p99:.2f} = {ratios[-1]:.1f} x the pipes' p99; "
            f"CPU {used:.0f} µs a chunk"
        )
    print(f"  median: added p50 {statistics.median(medians):.2f} ms, added p99 {statistics.median(ratios):.1f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--chunks", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=3)
    options, _ = parser.parse_known_args()
    measure(1, options.chunks, options.rounds)
    measure(options.sessions, options.chunks, options.rounds)


if __name__ == "__main__":
    main()
