"""A recording sink, and the demo agent as a port, for the tests of this folder."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from adapters.acp.agent import AcpAgent, AcpAgents
from adapters.acp.connection import Connection
from adapters.acp.process import Process
from adapters.acp.rpc import Request
from gateway.agents import AgentConfig
from gateway.core import effects, inputs
from gateway.core.content import Content, Text
from gateway.core.ids import MessageId, OfferId, PartId, SessionId, TurnId
from gateway.core.inputs import AgentFact
from gateway.core.model import Pending, SessionInfo
from tests.acp.clients.schema import check_to_agent

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "adapters.acp.demo"]
Fact = TypeVar("Fact", bound=AgentFact)
Json = dict[str, Any]


class Sink:
    """Keeps every fact, and wakes who waits for one."""

    def __init__(self) -> None:
        self.facts: list[AgentFact] = []
        self.calls: list[list[AgentFact]] = []
        self.is_full = False
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()

    def __call__(self, facts: Sequence[AgentFact], /) -> None:
        self.calls.append(list(facts))
        self.facts += facts
        self._changed.set()

    def full(self) -> bool:
        return self.is_full

    async def drained(self) -> None:
        await self._drained.wait()

    def drain(self) -> None:
        self.is_full = False
        self._drained.set()

    async def until(self, found: Callable[[AgentFact], bool], after: int = 0) -> AgentFact:
        """The first fact after the ``after``-th that ``found`` likes."""
        async with asyncio.timeout(20):
            while True:
                self._changed.clear()
                for fact in self.facts[after:]:
                    if found(fact):
                        return fact
                await self._changed.wait()

    async def one(self, kind: type[Fact], after: int = 0, **fields: Any) -> Fact:
        """The first fact of ``kind`` with these fields."""
        fact = await self.until(
            lambda f: isinstance(f, kind) and all(getattr(f, k) == v for k, v in fields.items()), after
        )
        assert isinstance(fact, kind)
        return fact

    def of(self, kind: type[Fact]) -> list[Fact]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def text(self, role: str = "agent", after: int = 0) -> str:
        return "".join(f.text for f in self.facts[after:] if isinstance(f, inputs.AgentText) and f.role == role)


def pending(text: str, content: Content | None = None) -> Pending:
    return Pending(
        id=MessageId("msg_1"),
        content=content or (Text(text),),
        part_ids=(PartId("prt_1"),),
        ascending_id="msg_1",
        lane="queue",
        place=1,
        created=1,
        group=MessageId("msg_1"),
    )


def session(cwd: str, agent_session: str = "") -> SessionInfo:
    return SessionInfo(
        id=SessionId("ses_1"),
        root_id=SessionId("ses_1"),
        cwd=cwd,
        created=1,
        updated=1,
        agent="demo",
        agent_session=agent_session,
    )


class Driver:
    """A port and its sink, with the effects that a session would perform."""

    def __init__(self, config: AgentConfig, cwd: Path, pool: AcpAgents | None = None) -> None:
        self.sink = Sink()
        self.cwd = str(cwd)
        self.pool = pool or AcpAgents()
        self.port: AcpAgent = self.pool(config, session(self.cwd), self.sink)
        self._offers = 0

    @property
    def pid(self) -> int:
        connection = self.port._connection
        assert connection and connection.process
        return connection.process.pid

    async def start(self, agent_session: str = "", has_history: bool = False) -> inputs.AgentReady:
        at = len(self.sink.facts)
        self.port.start(session(self.cwd, agent_session), has_history)
        fact = await self.sink.until(lambda f: isinstance(f, inputs.AgentReady | inputs.AgentGone), at)
        assert isinstance(fact, inputs.AgentReady), fact
        return fact

    def offer(self, text: str, content: Content | None = None) -> OfferId:
        self._offers += 1
        offer = OfferId(f"off_{self._offers}")
        self.port.perform(effects.OfferPrompt(offer, TurnId("trn_1"), (pending(text, content),)))
        return offer

    def steer(self, text: str) -> OfferId:
        self._offers += 1
        offer = OfferId(f"off_{self._offers}")
        self.port.perform(effects.OfferSteer(offer, TurnId("trn_1"), (pending(text),)))
        return offer

    async def turn(self, text: str, content: Content | None = None) -> inputs.PromptEnded:
        offer = self.offer(text, content)
        return await self.sink.one(inputs.PromptEnded, offer_id=offer)


def demo_config(tmp: Path, *flags: str, **fields: Any) -> AgentConfig:
    env = {"TRUNKLINE_DEMO_STATE": str(tmp / "state"), "PYTHONPATH": str(ROOT), **fields.pop("env", {})}
    return AgentConfig(**{"name": "demo", "command": [*DEMO, *flags], "env": env, **fields})


@asynccontextmanager
async def demo(tmp: Path, *flags: str, start: bool = True, **fields: Any) -> AsyncIterator[Driver]:
    """A demo agent's port, started; closed at the end whatever happens."""
    driver = Driver(demo_config(tmp, *flags, **fields), tmp)
    try:
        if start:
            await driver.start()
        yield driver
    finally:
        await driver.port.close()
        await driver.pool.close()


@contextmanager
def told_to_agents(monkeypatch: pytest.MonkeyPatch, version: int) -> Iterator[list[Json]]:
    """What is written to agents in the block; at its end each message is checked against the SDK's schema."""
    written: list[Json] = []
    asked: dict[str, str] = {}  # by the agent: the JSON of the id → the method
    write, request = Process.write, Connection._request

    def heard(self: Connection, message: Request) -> None:
        asked[bytes(message.id).decode()] = message.method
        request(self, message)

    def spy(self: Process, data: bytes) -> bool:
        written.append(json.loads(data))
        return write(self, data)

    monkeypatch.setattr(Process, "write", spy)
    monkeypatch.setattr(Connection, "_request", heard)
    yield written
    for message in written:
        check_to_agent(version, message, asked)
