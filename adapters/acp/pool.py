"""Which sessions share an agent's process, and when it ends. It knows nothing of sessions but their number."""

import asyncio
from collections.abc import Sequence
from http.cookiejar import CookieJar
from pathlib import Path

from adapters.acp.connection import Connection
from adapters.acp.logins import AgentLogins
from gateway.agents import AgentConfig
from gateway.client_calls import ClientCalls
from gateway.tasks import Supervisor


class Pool:
    """Connections by the agent's name, where its setting is ``process = "shared"``; else one a session.

    ``run_dir``: where running processes are recorded, for ``reaper.reap`` at the next start. ``roots``, ``clients``:
    where, and by whom, files and terminals are served for agents.
    """

    def __init__(
        self, run_dir: Path | None = None, roots: Sequence[Path] = (), clients: ClientCalls | None = None
    ) -> None:
        self.run_dir, self.roots, self.clients = run_dir, roots, clients or ClientCalls()
        self.logins = AgentLogins(lambda config, cwd: Connection(config, cwd, run_dir))
        self._shared: dict[str, Connection] = {}
        self._cookies: dict[str, CookieJar] = {}  # of remote agents: they find the same server again
        self._stopping: set[asyncio.Task[None]] = set()
        self._tasks = Supervisor()

    def connect(self, config: AgentConfig, cwd: str) -> Connection:
        """A connection that is opening or open; ``leave`` it in the end."""
        shared = config.process == "shared"
        connection = self._shared.get(config.name) if shared else None
        if connection is None or connection.dead is not None:
            cookies = self._cookies.setdefault(config.name, CookieJar()) if config.url else None
            connection = Connection(config, cwd, self.run_dir, cookies, self.logins.again)
            if shared:
                self._shared[config.name] = connection
            connection.open()
        connection.users += 1
        return connection

    def leave(self, connection: Connection) -> "asyncio.Task[None] | None":
        """The last to leave ends the process: the task that does so."""
        connection.users -= 1
        if connection.users > 0:
            return None
        if self._shared.get(connection.config.name) is connection:
            del self._shared[connection.config.name]
        task = self._tasks.start(connection.stop(), name=f"stop {connection.name}")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
        return task

    async def close(self) -> None:
        """Wait until every process that was left has ended."""
        while self._stopping:
            await asyncio.wait(self._stopping)
