"""An ACP agent for ``bench.trickle``: a prompt ``N MS`` is answered with N chunks, MS milliseconds apart, each the time
(nanoseconds of the monotonic clock) at which it was written. Standard library only: fifty of them are started.
"""

import json
import sys
import time


def say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def stream(session: str, count: int, pause: float) -> None:
    due = time.monotonic()
    for _ in range(count):
        due += pause
        time.sleep(max(0.0, due - time.monotonic()))
        content = {"type": "text", "text": f"{time.monotonic_ns()} "}
        update = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": content}
        say({"method": "session/update", "params": {"sessionId": session, "update": update}})


for line in sys.stdin:
    asked = json.loads(line)
    params, result = asked.get("params") or {}, {}
    if asked.get("method") == "initialize":
        result = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
    elif asked.get("method") == "session/new":
        result = {"sessionId": "trickle"}
    elif asked.get("method") == "session/prompt":
        count, ms = params["prompt"][0]["text"].split()
        stream(params["sessionId"], int(count), int(ms) / 1000)
        result = {"stopReason": "end_turn"}
    if "id" in asked:
        say({"id": asked["id"], "result": result})
