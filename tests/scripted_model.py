"""A model server that follows a script: OpenAI's streaming chat completions, on loopback, for agents without a key.

What the newest user message says is what the model does:

    words N [every MS]   N words, MS milliseconds apart (10)
    run: COMMAND         one call of the ``bash`` tool; after its result the answer is ``The tool said: …``
    anything else        ``You wrote: …``

A title request (OpenCode makes one for each session) is answered with two words. Requests are kept in ``asked``.
"""

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


class Model:
    """``with Model() as model``: serves on ``model.url`` until the block ends."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    for delta, finish in model.answer(request):
                        choice = {"index": 0, "delta": delta, "finish_reason": finish}
                        chunk = {"id": "chat-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
                        self.put({**chunk, "choices": [choice]})
                    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
                    self.put({**chunk, "choices": [], "usage": usage})
                    self.wfile.write(b"data: [DONE]\n\n")
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the agent was cancelled: it does not listen any more

            def put(self, value: object) -> None:
                self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
                self.wfile.flush()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> "Model":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
        """Deltas with their finish reason."""
        messages = request["messages"]
        system = " ".join(text_of(m["content"]) for m in messages if m["role"] == "system")
        users = [text_of(m["content"]) for m in messages if m["role"] == "user"]
        asked = users[-1] if users else ""
        if "title" in system.lower() and not request.get("tools"):
            yield from self.words(["Scripted", "title"])
            return
        self.asked.append(asked)
        if messages[-1]["role"] == "tool":
            yield from self.words(["The tool said:", text_of(messages[-1]["content"]).strip()])
        elif found := re.search(r"run: ([^\n]+)", asked):
            arguments = json.dumps({"command": found[1].strip(), "description": "a scripted command"})
            call = {"index": 0, "id": f"call_{len(self.asked)}", "type": "function"}
            yield {"role": "assistant", "content": "Running it."}, None
            yield {"tool_calls": [{**call, "function": {"name": "bash", "arguments": arguments}}]}, None
            yield {}, "tool_calls"
        elif found := re.search(r"words (\d+)(?: every (\d+))?", asked):
            yield from self.words([f"w{n}" for n in range(int(found[1]))], int(found[2] or 10) / 1000)
        else:
            yield from self.words(["You wrote:", asked.strip()])

    def words(self, words: list[str], pause: float = 0.0) -> Iterator[tuple[dict[str, Any], str | None]]:
        yield {"role": "assistant", "content": ""}, None
        for index, word in enumerate(words):
            yield {"content": (" " if index else "") + word}, None
            time.sleep(pause)  # the script's own time, not a wait for anything
        yield {}, "stop"
