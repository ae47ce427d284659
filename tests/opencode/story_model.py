"""A model server for the compared stories: OpenAI's streaming chat completions, on loopback.

What the newest user message says is what the model does, one thing a line:

    think: TEXT          the text as reasoning, before anything else
    run: COMMAND         a call of the ``bash`` tool; more such lines are more calls in the same step. After the results
                         the answer is ``Done.``
    words N every MS     N words, MS milliseconds apart
    fail: STATUS TEXT    an HTTP error
    anything else        ``You wrote: …``

A request without tools (a title) is answered with two words.
"""

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = Any


class StoryModel:
    """``with StoryModel() as model``: serves on ``model.url`` until the block ends."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if found := re.search(r"fail: (\d+) ([^\n]+)", newest(request)):
                    body = json.dumps({"error": {"message": found[2], "type": "scripted"}}).encode()
                    self.head(int(found[1]), "application/json")
                    self.wfile.write(body)
                    return
                self.head(200, "text/event-stream")
                head = {"id": "chat-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
                try:
                    for delta, finish in answer(request):
                        self.put({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
                    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
                    self.put({**head, "choices": [], "usage": usage})
                    self.wfile.write(b"data: [DONE]\n\n")
                except (BrokenPipeError, ConnectionResetError):
                    pass  # whoever asked was cancelled and does not listen any more

            def head(self, status: int, kind: str) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True

            def put(self, value: Json) -> None:
                self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
                self.wfile.flush()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> "StoryModel":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def newest(request: Json) -> str:
    """What the newest user message says; nothing in a request for a title."""
    if not request.get("tools"):
        return ""
    users = [text_of(message["content"]) for message in request["messages"] if message["role"] == "user"]
    return users[-1] if users else ""


def answer(request: Json) -> Iterator[tuple[Json, str | None]]:
    """Deltas with their finish reason."""
    asked = newest(request)
    results = request["messages"][-1]["role"] == "tool"
    if not request.get("tools"):
        yield from words(["Scripted", "title"])
    elif results:
        yield from words(["Done."])
    elif commands := re.findall(r"run: ([^\n]+)", asked):
        yield {"role": "assistant", "content": "Running it."}, None
        for index, command in enumerate(commands):
            arguments = json.dumps({"command": command.strip(), "description": "a scripted command"})
            call = {"index": index, "id": f"call_{time.monotonic_ns()}", "type": "function"}
            yield {"tool_calls": [{**call, "function": {"name": "bash", "arguments": arguments}}]}, None
        yield {}, "tool_calls"
    elif found := re.search(r"words (\d+) every (\d+)", asked):
        yield from words([f"w{n}" for n in range(int(found[1]))], int(found[2]) / 1000)
    else:
        if found := re.search(r"think: ([^\n]+)", asked):
            yield {"role": "assistant", "reasoning_content": found[1].strip()}, None
        yield from words(["You wrote:", asked.strip().rpartition("\n")[2]])


def words(told: list[str], pause: float = 0.0) -> Iterator[tuple[Json, str | None]]:
    yield {"role": "assistant", "content": ""}, None
    for index, word in enumerate(told):
        yield {"content": (" " if index else "") + word}, None
        time.sleep(pause)  # the script's own time, not a wait for anything
    yield {}, "stop"


def text_of(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or [] if isinstance(part, dict))
