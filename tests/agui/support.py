"""What the tests of this adapter share: an application around a scripted agent, and streams read without a socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.middleware import Middleware

from adapters.agui import routes, wire
from adapters.agui.streams import Stream
from adapters.agui.threads import Asked, Threads
from gateway.agents import AgentConfig
from gateway.controller import SessionController
from gateway.core import effects as fx
from gateway.core.inputs import AgentAsk, AgentTool
from gateway.core.model import Option
from gateway.http_errors import Errors, install, render_default
from gateway.log import SessionLog
from gateway.residents import Options
from gateway.security import Guard
from gateway.settings import Settings
from gateway.store import Store
from gateway.tasks import Supervisor
from tests.agui.client import frames
from tests.fake_port import Farm

OPTIONS = (Option("yes", "Yes", "allow_once"), Option("no", "No", "reject_once"))
Json = dict[str, Any]


def user(name: str, content: Any = "hello") -> Json:
    return {"id": name, "role": "user", "content": content}


def body(
    *messages: Json, run: str = "r1", thread: str = "t1", resume: list[Json] | None = None, **options: Any
) -> Json:
    """A RunAgentInput; ``options`` are ours."""
    made: Json = {"threadId": thread, "runId": run, "protocolVersion": "1.0", "messages": list(messages), "state": {}}
    made |= {"tools": [], "context": [], "forwardedProps": {"trunkline": options} if options else {}}
    return made | ({"resume": resume} if resume else {})


def yes(interrupt: Json, payload: Any = None, status: str = "resolved") -> Json:
    return {"interruptId": interrupt["id"], "status": status, "payload": payload or {"approved": True}}


def ask(ref: str, call: str) -> AgentAsk:
    tool = AgentTool(call_id=call, title=f"run {call}", kind="execute", input={"x": call})
    return AgentAsk(agent_ref=ref, title=f"run {call}?", tool=tool, options=OPTIONS)


class Reader:
    """A stream taken apart as it comes."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.ids: list[str] = []
        self.events: list[Json] = []
        self.over = False
        self._next: asyncio.Task[bytes] | None = None

    async def _more(self) -> None:
        try:
            data = await anext(self.stream)
        except StopAsyncIteration:
            self.over = True
            return
        for cursor, event in frames(data):
            self.ids.append(cursor)
            self.events.append(event)

    async def until(self, kind: str, **fields: Any) -> Json:
        async with asyncio.timeout(10):
            while True:
                for event in self.events:
                    if event["type"] == kind and all(event.get(k) == v for k, v in fields.items()):
                        return event
                assert not self.over, [e["type"] for e in self.events]
                await self._more()

    async def end(self) -> list[Json]:
        async with asyncio.timeout(10):
            while not self.over:
                await self._more()
        return self.events

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    async def close(self) -> None:
        await self.stream.aclose()


class Gateway:
    def __init__(self, controller: SessionController, settings: Settings, app: FastAPI, farm: Farm) -> None:
        self.controller = controller
        self.farm = farm
        self.threads = Threads(controller, settings)
        self.closing = asyncio.Event()
        self.workspace = settings.workspace[0]
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app, raise_app_exceptions=False), base_url="http://127.0.0.1:4096"
        )
        self.tasks = Supervisor()

    def asked(self, given: Json, agent: str = "fake") -> Asked:
        judged = wire.judge(given)
        options = wire.judge_options(judged.forwarded_props)
        return Asked(agent, judged, given["messages"], options, "me", self.closing.is_set)

    async def run(self, given: Json) -> Reader:
        return Reader(await self.threads.run(self.asked(given)))

    async def connect(self, given: Json, cursor: str = "") -> Reader:
        found = await self.threads.connect(self.asked(given), cursor)
        assert isinstance(found, Stream)
        return Reader(found)

    async def prompted(self, count: int = 1) -> None:
        """The agent has got so many prompts."""
        async with asyncio.timeout(10):
            while len(self.farm.prompts) < count:
                await asyncio.sleep(0.001)

    def told(self, *facts: Any) -> None:
        self.farm.port.tell(*facts)

    def answers(self) -> list[fx.AnswerAgent]:
        return [e for e in self.farm.port.effects if isinstance(e, fx.AnswerAgent)]


@asynccontextmanager
async def gateway(
    path: Path, farm: Farm, *, log: Json | None = None, options: Options = Options(), **settings: Any
) -> AsyncIterator[Gateway]:
    workspace = path / "work"
    workspace.mkdir(exist_ok=True)
    made = Settings(
        data=path, workspace=[workspace], agents={"fake": AgentConfig(), "other": AgentConfig()}, **settings
    )
    store = Store.open(f"sqlite:///{path / 'test.db'}")
    events = SessionLog(store.epoch, **(log or {}))
    controller = SessionController(store, events, made.agents, farm, default_agent="fake", options=options)
    await controller.start()
    errors = Errors()
    app = FastAPI(openapi_url=None, middleware=[Middleware(Guard, settings=made, errors=errors)])
    app.state.shutdown = asyncio.Event()
    install(app, errors)
    errors.register("/agui", render_default)
    app.include_router(routes.router(controller, made))
    one = Gateway(controller, made, app, farm)
    try:
        yield one
    finally:
        await one.http.aclose()
        await controller.close()
        await store.close()
