"""The sessions that are in memory: loaded when somebody asks, recovered after a restart, unloaded when nobody does.

Nothing here is a client's business: what can be asked of a session is the controller's.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import structlog

from gateway.agents import AgentConfig, Logins, PortFactory
from gateway.client_calls import ClientCalls
from gateway.commands import Commands
from gateway.core.errors import GatewayError, NotFound, StoreError
from gateway.core.ids import SessionId
from gateway.core.inputs import Recover
from gateway.core.session import Policy, dump, load
from gateway.core.tree import Tree
from gateway.live import Live
from gateway.log import SessionLog
from gateway.store import Store
from gateway.tasks import Supervisor

_log = structlog.get_logger("controller")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Options:
    """Settings of the controller. Times in seconds."""

    on_restart: Literal["run", "hold"] = "run"
    idle_unload: float = 900.0
    max_sessions: int = 10_000
    max_pending: int = 256


class Residents:
    """``live`` by root, ``roots``: the root of every session in memory."""

    def __init__(
        self,
        store: Store,
        log: SessionLog,
        agents: Mapping[str, AgentConfig],
        factory: PortFactory,
        *,
        default_agent: str,
        options: Options = Options(),
        clients: ClientCalls | None = None,
        logins: Logins | None = None,
        commands: Commands | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """``clients``: how agents reach what clients offer them; ``logins``: how clients log in to agents;
        ``commands``: how people run commands, where they may; ``clock``: milliseconds since the epoch.
        """
        self.clients = clients or ClientCalls()
        self.logins = logins
        self.commands = commands
        self.clock = clock
        self.store = store
        self.log = log
        self.agents = dict(agents)
        self.factory = factory
        self.default_agent = default_agent
        self.options = options
        self.tasks = Supervisor()
        self.live: dict[SessionId, Live] = {}
        self.roots: dict[SessionId, SessionId] = {}  # of every session in memory
        self._loading: dict[SessionId, asyncio.Task[Live | GatewayError]] = {}
        self._closed = False

    async def start(self) -> None:
        """Bring back what was unfinished when the gateway ended."""
        for root_id in await self.store.unfinished():
            try:
                await self._get(root_id)
            except Exception:
                _log.exception("session not recovered", session=root_id)
        self.tasks.start(self._sweep(), name="sweep")

    def end_waits(self) -> None:
        """The gateway is about to end: who waits for a turn is told now, the message itself stays."""
        for live in self.live.values():
            live.end_waits(StoreError("the gateway is shutting down: the message is stored, look again later"))

    async def close(self) -> None:
        """End all agents; running turns are ``interrupted`` at the next start. Does not close the store."""
        self._closed = True
        lives = list(self.live.values())
        await asyncio.gather(*(live.close() for live in lives), return_exceptions=True)
        await self.tasks.close()
        self.live.clear()

    def policy(self, agent: str) -> Policy:
        config = self.agents.get(agent)
        if config is None:
            return Policy(max_pending=self.options.max_pending)
        return Policy(config.steer_fallback, self.options.max_pending, config.permissions)

    def _adopt(self, tree: Tree) -> Live:
        live = self.live[tree.root_id] = Live(self, tree)
        for session_id in tree.sessions:
            self.roots[session_id] = tree.root_id
        return live

    def give_up(self, live: Live) -> None:
        """Leave a session that is not what the store says; whoever asks for it next gets it from there."""
        self._forget(live)
        self.tasks.start(live.close(), name=f"give up {live.tree.root_id}")

    def _forget(self, live: Live) -> None:
        self.live.pop(live.tree.root_id, None)
        for session_id in live.tree.sessions:
            self.roots.pop(session_id, None)

    async def _get(self, session_id: SessionId) -> Live:
        """The live tree of a session, loaded if it is not in memory. NotFound."""
        live = self.live.get(self.roots.get(session_id, session_id))
        if live is not None and not live.closed:
            return live
        loading = self._loading.get(session_id)
        if loading is None:
            # a task of its own: whoever asked first may leave, the others still want it
            loading = self.tasks.start(self._try_load(session_id), name=f"load {session_id}")
            self._loading[session_id] = loading
            loading.add_done_callback(lambda _: self._loading.pop(session_id))
        found = await asyncio.shield(loading)
        if isinstance(found, GatewayError):
            raise found
        return found

    async def _try_load(self, session_id: SessionId) -> Live | GatewayError:
        try:
            return await self._load(session_id)
        except GatewayError as error:
            return error

    async def _load(self, session_id: SessionId) -> Live:
        loaded = await self.store.load(session_id)
        if not loaded:
            raise NotFound(f"Session not found: {session_id}", session_id=session_id)
        root_id = loaded[0].info.id
        checkpoints = await self.store.checkpoints(root_id)
        live = self.live.get(root_id)  # another of the tree was faster
        if live is not None and not live.closed:
            return live
        sessions = [load(one.info.id, one.snapshot, one.records) for one in loaded]
        tree = Tree.of(sessions, self.policy(sessions[0].info.agent))
        live = self._adopt(tree)
        if tree.busy:
            try:
                await live.ask(root_id, Recover(checkpoints=checkpoints, on_restart=self.options.on_restart))
            except GatewayError:  # not stored: as it stands it would look like a turn that runs
                self._forget(live)
                await live.close()
                raise
        return live

    async def _sweep(self) -> None:
        """Stop agents and unload sessions that were not used for long."""
        while True:
            stops = [c.idle_stop for c in self.agents.values()]
            await asyncio.sleep(max(min(self.options.idle_unload, *stops, 60.0) / 4, 0.05))
            now = time.monotonic()
            for live in list(self.live.values()):
                if not live.idle():
                    continue
                quiet = now - max(live.touched, live.heard)
                config = live.config
                if live.port is not None and config is not None and quiet > config.idle_stop:
                    live.stop_agent()
                elif quiet > self.options.idle_unload:
                    await self.unload(live.tree.root_id)

    async def unload(self, root_id: SessionId) -> bool:
        """Take an idle session out of the memory, with a snapshot for the next load. False if it is not idle."""
        live = self.live.get(root_id)
        if live is None or not live.idle():
            return False
        images = [(s.id, s.state.seq, dump(s)) for s in live.tree.sessions.values()]
        self._forget(live)
        await live.close()
        await self.store.save_snapshot(images)
        return True
