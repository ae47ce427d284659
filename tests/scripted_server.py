"""What the scripted model servers have in common: the script, the HTTP on loopback, what was asked.

What the last line of the newest user message says is what the model does:

    words N [every MS]   N words, MS milliseconds apart (10)
    run: COMMAND         one call of the agent's shell tool; after its result the answer is ``The tool said: …``
    ask: COMMAND         the same, for agents where it is the model that asks for a permission
    delegate: TASK       one call of the agent's subagent tool, the TASK being its first message
    anything else        ``You wrote: …``

A request without tools (a title, a summary) is answered with two words and not kept.
"""

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

Json = Any


class Words(NamedTuple):
    words: list[str]
    pause: float = 0.0

    def chunks(self) -> Iterator[str]:
        for index, word in enumerate(self.words):
            yield (" " if index else "") + word
            time.sleep(self.pause)  # the script's own time, not a wait for anything


class Call(NamedTuple):
    tool: str
    argument: str
    ask: bool = False


class Asked(NamedTuple):
    """A request, in the words of no protocol. ``result``: of a tool, if that is the newest."""

    users: list[str]
    result: str | None
    tools: list[str]
    model: str


# How the agents call them.
SHELL = ("bash", "Bash", "exec_command")
TOOLS = {"run": SHELL, "ask": SHELL, "delegate": ("Agent", "Task")}


def script(asked: Asked) -> list[Words | Call]:
    newest = asked.users[-1].strip().rpartition("\n")[2] if asked.users else ""
    if asked.result is not None:
        return [Words(["The tool said:", asked.result.strip()])]
    # Delegated work may itself be a command: what comes first counts.
    if found := re.search(r"(run|ask|delegate): ([^\n]+)", newest):
        if tool := next((name for name in TOOLS[found[1]] if name in asked.tools), None):
            return [Words(["Running", "it."]), Call(tool, found[2].strip(), found[1] == "ask")]
    elif found := re.search(r"words (\d+)(?: every (\d+))?", newest):
        return [Words([f"w{n}" for n in range(int(found[1]))], int(found[2] or 10) / 1000)]
    return [Words(["You wrote:", newest] if newest else ["Noted."])]


class Scripted:
    """``with Model() as model``: serves on ``model.url`` until the block ends.

    A subclass reads its protocol's request (``read``) and writes its answer (``answer``).
    """

    always = False  # requests without tools are of the conversation too

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self._count = 0
        self._lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self._json({})

            def do_GET(self) -> None:
                self._json({"object": "list", "data": [], "models": [], "has_more": False})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
                if (whole := model.whole(self.path, body)) is not None:
                    self._json(whole)
                    return
                asked = model.read(body)
                steps: list[Words | Call] = [Words(["Scripted", "title"])]
                if asked.tools or model.always:
                    with model._lock:
                        model.requests.append(asked)
                    steps = script(asked)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    for event, value in model.answer(body, steps):
                        head = f"event: {event}\n" if event else ""
                        data = value if isinstance(value, str) else json.dumps(value)
                        self.wfile.write(f"{head}data: {data}\n\n".encode())
                        self.wfile.flush()
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the agent was cancelled: it does not listen any more

            def _json(self, value: Json) -> None:
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.root = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.root}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def asked(self) -> list[str]:
        """The newest user text of each request."""
        return [each.users[-1] if each.users else "" for each in self.requests]

    def told(self, text: str) -> int:
        """How often the newest conversation that has this text has it: once, or something was said twice."""
        counts = [sum(text in user for user in each.users) for each in self.requests]
        return next((count for count in reversed(counts) if count), 0)

    def number(self) -> int:
        """1, 2, 3 …: what ids are made of."""
        with self._lock:
            self._count += 1
            return self._count

    # --- one protocol each ---------------------------------------------------------------------------------------

    def whole(self, path: str, body: Json) -> Json | None:
        """The answer to a request that is not streamed; None: it is."""
        return None

    def read(self, body: Json) -> Asked:
        raise NotImplementedError

    def answer(self, body: Json, steps: list[Words | Call]) -> Iterator[tuple[str, Json]]:
        """Events: their name, empty where the protocol has none, and their data."""
        raise NotImplementedError


def text_of(content: Json) -> str:
    """The text of a message: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or [] if isinstance(part, dict) and "text" in part)
