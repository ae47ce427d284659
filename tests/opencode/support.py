"""What the tests of this adapter share: the whole application around a scripted agent, and two kinds of clients.

``Store`` keeps what a stream says as OpenCode's terminal client does, its faults included; ``frames`` takes a stream
apart.
"""

import asyncio
import json
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI
from starlette.middleware import Middleware

from adapters import opencode
from adapters.opencode.frames import Kind
from adapters.opencode.lookup import Lookup
from adapters.opencode.routes.catalog import News
from adapters.opencode.streams import Streams
from adapters.opencode.translate import Translator
from gateway.agents import AgentConfig, PortFactory
from gateway.controller import SessionController
from gateway.head_requests import HeadAsGet
from gateway.http_errors import Errors, install
from gateway.log import SessionLog
from gateway.residents import Options, now_ms
from gateway.security import Guard
from gateway.settings import Settings
from gateway.store import Store as Database
from gateway.tasks import Supervisor

T = TypeVar("T")
_tasks = Supervisor()


class Gateway:
    """A gateway in the test's process: ``http`` asks it, ``streams`` reads its events without a socket."""

    def __init__(self, controller: SessionController, settings: Settings, app: FastAPI) -> None:
        self.controller = controller
        self.settings = settings
        self.app = app
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app, raise_app_exceptions=False), base_url="http://127.0.0.1:4096"
        )
        translator = Translator(controller.default_agent, Lookup(controller))
        self.streams = Streams(controller, translator, 100, News(controller))
        self.workspace = settings.workspace[0]

    async def new(self, **body: Any) -> str:
        answer = await self.http.post("/session", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def prompt(self, session_id: str, text: str, **body: Any) -> httpx.Response:
        parts = [{"type": "text", "text": text}]
        return await self.http.post(f"/session/{session_id}/message", json={"parts": parts, **body})

    async def queue(self, session_id: str, text: str, **body: Any) -> None:
        parts = [{"type": "text", "text": text}]
        answer = await self.http.post(f"/session/{session_id}/prompt_async", json={"parts": parts, **body})
        assert answer.status_code == 204, answer.text

    async def messages(self, session_id: str) -> list[dict[str, Any]]:
        answer = await self.http.get(f"/session/{session_id}/message")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    def read(self, cursor: str = "", kind: Kind = "global") -> "Reader":
        return Reader(self, self.streams.open(kind, str(self.workspace), cursor))


@asynccontextmanager
async def gateway(
    path: Path,
    farm: PortFactory,
    *,
    log: dict[str, Any] | None = None,
    options: Options = Options(),
    clock: Callable[[], int] = now_ms,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """``log``: bounds of the SessionLog; ``settings``: more of them."""
    workspace = path / "work"
    workspace.mkdir(exist_ok=True)
    agents = settings.pop("agents", None) or {"fake": AgentConfig(), "other": AgentConfig()}
    made = Settings(data=path, workspace=[workspace], agents=agents, **settings)
    store = Database.open(f"sqlite:///{path / 'test.db'}")
    events = SessionLog(store.epoch, **(log or {}))
    controller = SessionController(store, events, made.agents, farm, default_agent="fake", options=options, clock=clock)
    await controller.start()
    errors = Errors()
    app = FastAPI(openapi_url=None, middleware=[Middleware(Guard, settings=made, errors=errors), Middleware(HeadAsGet)])
    app.state.shutdown = asyncio.Event()
    install(app, errors)
    errors.register("/", opencode.error_response)
    app.router.routes.extend(opencode.router(controller, made).routes)
    one = Gateway(controller, made, app)
    try:
        yield one
    finally:
        await one.http.aclose()
        await controller.close()
        await store.close()


def task(awaitable: Awaitable[T]) -> asyncio.Task[T]:
    """Run beside the test, which awaits it."""

    async def run() -> T:
        return await awaitable

    return _tasks.start(run())


# --- reading streams -----------------------------------------------------------------------------------------------


def frames(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Id and event of each frame; the event without its envelope."""
    assert data.endswith(b"\n\n")
    for text in data.decode()[:-2].split("\n\n"):
        head, body = text.split("\n")
        assert head.startswith("id: ") and body.startswith("data: "), text
        event = json.loads(body[6:])
        yield head[4:], event.get("payload", event)


class Reader:
    """A stream taken apart. ``seen``: all of it so far."""

    def __init__(self, gateway: Gateway, source: Any) -> None:
        self._gateway = gateway
        self._source = source
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._reading: asyncio.Task[bytes] | None = None
        self._rest = b""

    async def until(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """Read on until ``count`` more frames of this type have come; the events that were read."""
        at = len(self.seen)
        async with asyncio.timeout(10):
            while sum(event["type"] == kind for _, event in self.seen[at:]) < count:
                await asyncio.wait([self._read()])
                self._take()
        return [event for _, event in self.seen[at:]]

    async def now(self) -> list[dict[str, Any]]:
        """What is there to read, up to the newest entry of the log."""
        at = len(self.seen)
        async with asyncio.timeout(10):
            while True:
                reading = self._read()
                await asyncio.sleep(0)
                while not reading.done() and not self._has_all():
                    await asyncio.sleep(0)
                if not reading.done():  # it waits for more; a later call takes it
                    return [event for _, event in self.seen[at:]]
                self._take()

    def _read(self) -> "asyncio.Task[bytes]":
        if self._reading is None:
            self._reading = task(anext(self._source))
        return self._reading

    def _take(self) -> None:
        assert self._reading is not None
        data, self._reading = self._rest + self._reading.result(), None
        end = data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0  # a piece may end inside of a frame
        self._rest = data[end:]
        if end:
            self.seen += list(frames(data[:end]))

    def _has_all(self) -> bool:
        stream = self._source.stream  # it says when there is nothing to wait for
        return bool(stream.written >= self._gateway.controller.log.position)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._source.aclose()


def place(cursor: str) -> tuple[int, ...]:
    return tuple(int(word) for word in cursor.split("."))


# --- a client ------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """The terminal client's event loop would have stopped for good."""


class Store:
    """What OpenCode's terminal client keeps (its ``sync`` store, 1.18.33), read off its code."""

    def __init__(self) -> None:
        self.message: dict[str, list[dict[str, Any]]] = {}
        self.part: dict[str, list[dict[str, Any]]] = {}
        self.status: dict[str, str] = {}
        self.permission: dict[str, list[dict[str, Any]]] = {}
        self.question: dict[str, list[dict[str, Any]]] = {}
        self.todo: dict[str, Any] = {}
        self.session: dict[str, dict[str, Any]] = {}

    def feed(self, *events: dict[str, Any]) -> "Store":
        for event in events:
            self._one(event["type"], event["properties"])
        return self

    def _one(self, kind: str, p: dict[str, Any]) -> None:
        match kind:
            case "session.updated":
                self.session[p["info"]["id"]] = p["info"]
            case "session.deleted":
                self.session.pop(p["info"]["id"], None)
            case "session.status":
                self.status[p["sessionID"]] = p["status"]["type"]
            case "todo.updated":
                self.todo[p["sessionID"]] = p["todos"]
            case "message.updated":
                held = self.message.setdefault(p["info"]["sessionID"], [])
                keys = [key(info) for info in held]
                index = bisect_left(keys, key(p["info"]))
                if index < len(held) and keys[index] == key(p["info"]):
                    held[index] = p["info"]
                else:
                    held.insert(index, p["info"])
            case "message.removed":
                if p["sessionID"] not in self.message:
                    raise Stopped(p)
                held = self.message[p["sessionID"]]
                index = next((i for i, info in enumerate(held) if info["id"] == p["messageID"]), -1)
                if index >= 0:
                    del held[index]
            case "message.part.updated":
                put(self.part.setdefault(p["part"]["messageID"], []), p["part"])
            case "message.part.delta":
                for part in self.part.get(p["messageID"], []):
                    if part["id"] == p["partID"]:
                        part[p["field"]] += p["delta"]
            case "message.part.removed":
                if p["messageID"] not in self.part:
                    raise Stopped(p)
                self.part[p["messageID"]] = [x for x in self.part[p["messageID"]] if x["id"] != p["partID"]]
            case "permission.asked":
                put(self.permission.setdefault(p["sessionID"], []), p)
            case "permission.replied":
                self.permission[p["sessionID"]] = without(self.permission.get(p["sessionID"], []), p["requestID"])
            case "question.asked":
                put(self.question.setdefault(p["sessionID"], []), p)
            case "question.replied" | "question.rejected":
                self.question[p["sessionID"]] = without(self.question.get(p["sessionID"], []), p["requestID"])

    def messages(self, session_id: str) -> list[dict[str, Any]]:
        """As GET lists them."""
        return [{"info": info, "parts": self.part.get(info["id"], [])} for info in self.message.get(session_id, [])]


def key(info: dict[str, Any]) -> str:
    return f"{info['time']['created']}{info['id']}"


def put(held: list[dict[str, Any]], one: dict[str, Any]) -> None:
    """By binary search, as the client does: what is not in order is not found."""
    index = bisect_left([x["id"] for x in held], one["id"])
    if index < len(held) and held[index]["id"] == one["id"]:
        held[index] = one
    else:
        held.insert(index, one)


def without(held: list[dict[str, Any]], request_id: str) -> list[dict[str, Any]]:
    return [one for one in held if one["id"] != request_id]
