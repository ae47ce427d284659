"""An ACP v2 agent that says what a real one was recorded saying (``golden/acp/turns_*_v2.jsonl``).

Run it as ``python replayer_v2.py FILE``. Standard library only. A prompt gets what the real agent said to the same one,
its answer in its place; it waits for the answer to each request. What the gateway asked is not compared.
"""

import json
import sys
from typing import Any

Json = dict[str, Any]


def send(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def perform(said: list[Json], number: Any) -> None:
    for each in said:
        if "answer" in each:
            send({"id": number, "result": each["answer"]})
            continue
        send(each)
        while "id" in each:
            message = json.loads(sys.stdin.readline())
            if message.get("id") == each["id"] and "method" not in message:
                break


def main(path: str) -> None:
    with open(path) as file:
        recorded = [json.loads(line) for line in file]
    results = {
        name: value for each in recorded for name, value in each.items() if name in ("initialize", "session/new")
    }
    turns = {each["prompt"]: each["said"] for each in recorded if "prompt" in each}
    for line in iter(sys.stdin.readline, ""):
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method in results:
            send({"id": number, "result": results[method]})
        elif method == "session/prompt":
            perform(turns[message["params"]["prompt"][0]["text"]], number)
        elif number is not None and method is not None:
            send({"id": number, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main(sys.argv[1])
