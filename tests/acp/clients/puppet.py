"""An ACP v1 agent whose prompt is a list of steps in JSON: it says exactly that. Standard library only.

{"update": {…}, "of": "child"}   a session/update, of the session itself or of another
{"ask": method, "params": {…}}   a request; it waits for the answer and says it as text
{"wait": method}                 wait for a message of the client, and say its params as text
{"end": stop reason}             answer the prompt; further steps come after it
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
OWN = "puppet-1"


def send(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(body: Json, session: str = OWN) -> None:
    send({"method": "session/update", "params": {"sessionId": session, "update": body}})


def say(text: str) -> None:
    update(
        {
            "sessionUpdate": "agent_message_chunk",
            "messageId": f"m{len(text)}",
            "content": {"type": "text", "text": text},
        }
    )


def perform(steps: list[Json], number: Any, messages: Iterator[Json]) -> None:
    ended = False
    for count, step in enumerate(steps):
        if "update" in step:
            update(step["update"], step.get("of", OWN))
        elif "ask" in step:
            params = {"sessionId": step.get("of", OWN), **step["params"]}
            send({"id": 100 + count, "method": step["ask"], "params": params})
            answer = next(m for m in messages if m.get("id") == 100 + count and "method" not in m)
            say(json.dumps(answer.get("result", answer.get("error"))))
        elif "wait" in step:
            found = next(m for m in messages if m.get("method") == step["wait"])
            say(json.dumps(found["params"]))
        else:
            send({"id": number, "result": {"stopReason": step["end"]}})
            ended = True
    if not ended:
        send({"id": number, "result": {"stopReason": "end_turn"}})


def main() -> None:
    messages = (json.loads(line) for line in sys.stdin)
    for message in messages:
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            send({"id": number, "result": {"protocolVersion": 1, "agentCapabilities": {}}})
        elif method == "session/new":
            send({"id": number, "result": {"sessionId": OWN}})
        elif method == "session/prompt":
            perform(json.loads(message["params"]["prompt"][0]["text"]), number, messages)
        elif number is not None and method is not None:
            send({"id": number, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()
