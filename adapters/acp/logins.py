"""Logging in to agents, for clients in front: with which methods, and again for each process that starts later.

Some agents keep a login in the process, so the method that was used is used again right after each ``initialize``. What
came with it (``_meta`` may hold a key) stays in memory: it is never stored, logged or shown.
"""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import structlog

from adapters.acp.connection import Connection
from adapters.acp.owner import CallFailed, Gone
from adapters.acp.translate_content import marked, rows, table
from adapters.acp.translate_v1_calls import Abilities
from gateway.agents import AgentConfig
from gateway.core.content import Json
from gateway.core.errors import ClientError, NotSupported
from gateway.views import agent_failure

LOGIN = 600.0  # seconds: a person may have to go through pages in a browser
_log = structlog.get_logger("agent")


class Login(msgspec.Struct, frozen=True):
    method_id: str
    meta: Any = None

    def __repr__(self) -> str:
        return f"<Login {self.method_id}>"  # not what came with it


class AgentLogins:
    """``gateway.agents.Logins``. ``connect`` makes a connection of its own, not opened yet, in a folder."""

    def __init__(self, connect: Callable[[AgentConfig, str], Connection]) -> None:
        self._connect = connect
        self._known: dict[str, Abilities] = {}
        self._logins: dict[str, Login] = {}
        self._running: list[Connection] = []

    def __repr__(self) -> str:
        return f"<AgentLogins {self._logins} of {list(self._known)}>"

    def methods(self, agent: str) -> list[Json]:
        can = self._known.get(agent)
        return [] if can is None else methods_of(can)

    def can_logout(self, agent: str) -> bool:
        can = self._known.get(agent)
        return can is not None and _logout(can)

    def learn(self, connection: Connection) -> None:
        """A process has initialized, whatever for."""
        if connection.can is not None:
            self._known[connection.config.name] = connection.can

    async def again(self, connection: Connection) -> None:
        """Log a new process in as those before it. Where that fails the agent says so itself when it is asked for
        something that needs it. Raises Gone.
        """
        self.learn(connection)
        self._running = [each for each in self._running if each.dead is None]
        self._running.append(connection)
        login = self._logins.get(connection.config.name)
        if login is not None:
            try:
                await _authenticate(connection, login, connection.config.start_timeout)
            except CallFailed as failed:
                name = connection.name
                _log.warning("agent refused its login", agent=name, method=login.method_id, code=failed.error.code)

    async def login(self, config: AgentConfig, method_id: str, meta: Json = None) -> None:
        login = Login(method_id, meta)
        async with self._some(config) as connections:
            for connection in connections:
                can = await _ready(connection)
                known = [str(m.get("id") or m.get("methodId")) for m in methods_of(can)]
                if method_id not in known:
                    names = ", ".join(known) or "none"
                    message = f"the agent {config.name} has no login method {method_id!r} (there are: {names})"
                    raise ClientError(message, field="methodId", methods=known)
                await _asked(connection, _authenticate(connection, login, LOGIN))
        self._logins[config.name] = login

    async def logout(self, config: AgentConfig) -> None:
        async with self._some(config) as connections:
            for connection in connections:
                can = await _ready(connection)
                if not _logout(can):
                    raise NotSupported(f"the agent {config.name} offers no logout")
                method = "logout" if can.protocol == 1 else "auth/logout"
                await _asked(connection, connection.ask(method, {}, config.request_timeout))
        self._logins.pop(config.name, None)

    @asynccontextmanager
    async def _some(self, config: AgentConfig) -> AsyncIterator[list[Connection]]:
        """The agent's processes that run, else one that is started for this and ended."""
        if not (config.command or config.url):
            raise NotSupported(f"the agent {config.name} runs inside the gateway: it has no login")
        running = [each for each in self._running if each.config.name == config.name and each.dead is None]
        if running:
            yield running
            return
        with tempfile.TemporaryDirectory(prefix="trunkline-login-") as cwd:
            connection = self._connect(config, cwd)
            connection.open()
            try:
                await _ready(connection)
                self.learn(connection)
                yield [connection]
            finally:
                await connection.stop()


def methods_of(can: Abilities) -> list[Json]:
    """Login methods as the agent describes them, but those that need its command in a terminal of the client's."""
    return [method for method in rows(can.raw.get("authMethods")) if method.get("type") != "terminal"]


def _logout(can: Abilities) -> bool:
    if can.protocol != 1:
        return bool(can.auth)  # v2: who logs in can log out
    return marked(table(table(can.raw.get("agentCapabilities")).get("auth")).get("logout"))


async def _authenticate(connection: Connection, login: Login, timeout: float) -> None:
    """Raises Gone, CallFailed."""
    method = "authenticate" if connection.can is None or connection.can.protocol == 1 else "auth/login"
    params = {"methodId": login.method_id, **({"_meta": login.meta} if login.meta else {})}
    await connection.ask(method, params, timeout)


async def _ready(connection: Connection) -> Abilities:
    try:
        return await connection.ready()
    except Gone as gone:
        raise agent_failure(gone.error) from None


async def _asked(connection: Connection, asking: Any) -> None:
    """Wait for the agent's answer. Raises AgentError with its own words."""
    try:
        await asking
    except Gone as gone:
        raise agent_failure(gone.error) from None
    except CallFailed as failed:
        raise agent_failure(connection.error_of(failed)) from None
