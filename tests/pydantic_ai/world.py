"""The controller with its store, and native agents in the test's own loop: every step is the test's to order."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from adapters.pydantic_ai.session import NativeSession, open_session
from adapters.pydantic_ai.thread import BlockingCalls
from gateway.agents import AgentConfig, Sink
from gateway.controller import SessionController
from gateway.core import effects
from gateway.core.content import Text
from gateway.core.ids import MessageId, SessionId
from gateway.core.inputs import AgentFact, AgentGone
from gateway.core.model import Error, SessionInfo
from gateway.core.transcript import StepItem, TextPart, ToolPart, UserItem
from gateway.log import SessionLog
from gateway.residents import Options
from gateway.store import Store
from gateway.tasks import Supervisor
from tests.pydantic_ai.machine import Machine


class InLoop:
    """A port without a thread: a session of ``agent`` beside the controller."""

    def __init__(self, agent: Any, folder: Path, sink: Sink) -> None:
        self._agent, self._folder, self._sink = agent, folder, sink
        self.session: NativeSession | None = None
        self.facts: list[AgentFact] = []
        self._tasks = Supervisor()
        self._batch: list[effects.AnyEffect] = []

    def start(self, info: SessionInfo, has_history: bool) -> None:
        self._tasks.start(self._open(info, has_history))

    async def _open(self, info: SessionInfo, has_history: bool) -> None:
        self.session = await open_session(self._agent, info, has_history, self._folder, self._tell, BlockingCalls())

    def _tell(self, *facts: AgentFact) -> None:
        self.facts.extend(facts)
        self._sink(facts)

    def perform(self, effect: effects.AnyEffect) -> None:
        if isinstance(effect, effects.KillAgent):
            assert self.session is not None
            self.session.kill()
            self._tell(AgentGone(error=Error("agent_exit", effect.why)))
            return
        if not self._batch:
            asyncio.get_running_loop().call_soon(self._send)
        self._batch.append(effect)

    def _send(self) -> None:
        batch, self._batch = self._batch, []
        if self.session is not None:
            self.session.do(batch)

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()
        await self._tasks.close()


class World:
    """One controller, one machine, one session."""

    def __init__(self, controller: SessionController, machine: Machine, ports: list[InLoop]) -> None:
        self.c, self.machine, self.ports = controller, machine, ports
        self.id = SessionId("")
        self.verdicts: dict[str, str] = {}

    async def open(self) -> None:
        self.id = (await self.c.create(cwd="/w")).id

    async def again(self) -> None:
        """Another session, of which the machine has seen nothing."""
        self.machine.seen.clear()
        self.machine.requests.clear()
        await self.open()

    async def send(self, text: str, delivery: Any = "queue", **more: Any) -> MessageId:
        return (await self.c.submit(self.id, (Text(text),), delivery=delivery, **more)).message_id

    async def begin(self, text: str = "go") -> MessageId:
        """A turn whose model waits."""
        own = await self.send(text)
        await self.until(lambda: self.machine.at == "model")
        return own

    async def steer(self, text: str) -> MessageId:
        """A steer that is on its way, wherever that is."""
        own = await self.send(text, "steer")
        await self.settled(own)
        return own

    async def settled(self, message_id: MessageId) -> None:
        live = self.c.live[self.id]
        root = live.tree.root

        def check() -> object:
            entry = root.state.inbox.get(message_id)
            if entry is None or entry.held:
                return True
            if entry.state == "offered":
                offer = root.state.offers.get(entry.offer_id) if entry.offer_id else None
                return True if offer is not None and offer.accepted else None
            return None

        await asyncio.wait_for(live.until(check), 60)

    async def until(self, check: Callable[[], object]) -> None:
        """Of the machine, or of the session: asked after each change of either."""
        live = self.c.live[self.id]
        while not check():
            self.machine.moved.clear()
            moved = asyncio.ensure_future(self.machine.moved.wait())  # noqa: TID251
            changed = asyncio.ensure_future(live.until(lambda: check() or None))  # noqa: TID251
            done, rest = await asyncio.wait((moved, changed), timeout=60, return_when=asyncio.FIRST_COMPLETED)
            for each in rest:
                each.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            assert done, f"nothing happens: {live!r}"

    async def next_place(self) -> None:
        """The machine waits again, or the session is idle."""
        await self.until(lambda: self.machine.at or self.quiet())

    def quiet(self) -> bool:
        root = self.c.live[self.id].tree.root
        return root.state.turn_id is None and all(m.held for m in root.state.inbox.values())

    async def finish(self) -> None:
        """Let everything end that goes by itself."""
        while not self.quiet():
            await self.until(lambda: self.machine.at or self.quiet())
            if self.machine.at:
                await self.machine.step("end" if self.machine.at == "model" else "done")

    async def users(self) -> list[str]:
        items = (await self.c.view(self.id)).transcript.items
        return [getattr(i.message.content[0], "text", "") for i in items if isinstance(i, UserItem)]

    async def lines(self) -> list[str]:
        await self.c.view(self.id)
        return self._lines()

    async def shows(self, *lines: str) -> None:
        """Wait until the transcript after the first prompt is this."""
        try:
            await self.until(lambda: self._lines()[1:] == list(lines))
        except AssertionError:
            assert self._lines()[1:] == list(lines)
            raise

    def _lines(self) -> list[str]:
        out = []
        for item in self.c.live[self.id].tree.root.transcript.items:
            if isinstance(item, UserItem):
                out.append("user: " + " ".join(getattr(b, "text", "?") for b in item.message.content))
            elif isinstance(item, StepItem):
                for part in item.parts:
                    if isinstance(part, TextPart):
                        out.append(f"{part.role}: {part.text}")
                    elif isinstance(part, ToolPart):
                        out.append(f"tool: {part.call.name} {part.call.status}")
        return out

    async def pending(self) -> list[str]:
        return [getattr(m.content[0], "text", "") for m in (await self.c.view(self.id)).pending]

    async def reconciled(self) -> None:
        """What the model is shown now is what people are shown as delivered, in that order."""
        await self.finish()
        await self.send("last")
        state = self.c.live[self.id].tree.root.state
        await self.until(lambda: self.machine.at == "model" and self.machine.seen[-1][-1] == "last" and not state.inbox)
        shown = await self.users()
        assert self.machine.seen[-1] == shown, f"the model saw {self.machine.seen[-1]}, people see {shown}"
        await self.finish()


@asynccontextmanager
async def world(path: Path, machine: Machine | None = None, **config: Any) -> AsyncIterator[World]:
    machine = machine or Machine()
    ports: list[InLoop] = []

    def factory(config: AgentConfig, info: SessionInfo, sink: Sink) -> InLoop:
        ports.append(InLoop(machine.agent, path / "pydantic_ai", sink))
        return ports[-1]

    store = Store.open(f"sqlite:///{path / 'test.db'}")
    agents = {"bot": AgentConfig(name="bot", python="m:agent", **config)}
    log = SessionLog(store.epoch)
    controller = SessionController(store, log, agents, factory, default_agent="bot", options=Options())
    await controller.start()
    made = World(controller, machine, ports)
    try:
        await made.open()
        yield made
    finally:
        await controller.close()
        await store.close()
