"""An ACP v1 agent that says what a real one was recorded saying (``golden/acp/recorded_*.jsonl``).

Run it as ``python replayer.py FILE``. Standard library only. Its first prompt is answered with all recorded updates and
requests, in their order; it waits for the answer to each request.
"""

import json
import sys
from typing import Any

Json = dict[str, Any]


def send(message: Json) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answered(number: Any) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == number and "method" not in message:
            return


def main(path: str) -> None:
    with open(path) as file:
        recorded = [json.loads(line) for line in file]
    results = [m["result"] for m in recorded if "result" in m]
    replies = {
        "initialize": next(r for r in results if "protocolVersion" in r),
        "session/new": next(r for r in results if "sessionId" in r),
    }
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method in replies:
            send({"jsonrpc": "2.0", "id": number, "result": replies[method]})
        elif method == "session/prompt":
            for each in recorded:
                if "method" in each:
                    send(each)
                    if "id" in each:
                        answered(each["id"])
            send({"jsonrpc": "2.0", "id": number, "result": {"stopReason": "end_turn"}})
        elif number is not None:
            send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main(sys.argv[1])
