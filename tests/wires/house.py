"""A whole gateway in the test's own process: the real application on a real socket, stopped and started at will."""

import asyncio
import shutil
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from gateway.agents import AgentConfig
from gateway.app import STORE_NAME, create_app
from gateway.controller import SessionController
from gateway.heads import BoundedHeads
from gateway.server import Server
from gateway.settings import Settings
from gateway.tasks import Supervisor

ROOT = Path(__file__).resolve().parents[2]


def demo_agent(folder: Path) -> AgentConfig:
    """The demo agent, which can be steered and loads its sessions again."""
    command = [sys.executable, "-m", "adapters.acp.demo", "--steer"]
    env = {"PYTHONPATH": str(ROOT), "TRUNKLINE_DEMO_STATE": str(folder / "demo")}
    return AgentConfig(name="agent", command=command, env=env, cancel_grace=5)


def native_agent(folder: Path) -> AgentConfig:
    """A Pydantic AI agent that does the same scripts."""
    return AgentConfig(name="agent", python="tests.wires.bot:agent", cancel_grace=5)


class House:
    """``url`` while it is open. ``restart`` keeps the port and the data."""

    def __init__(self, folder: Path, agents: dict[str, AgentConfig], template: Path | None = None) -> None:
        self.workspace = folder / "work"
        self.workspace.mkdir(parents=True, exist_ok=True)
        data = folder / "data"
        data.mkdir(exist_ok=True)
        if template is not None and not (data / STORE_NAME).exists():
            shutil.copy(template, data / STORE_NAME)  # its tables are made: migrations are tested elsewhere
        self.settings = Settings(data=data, workspace=[self.workspace], agents=agents, port=0)
        self.url = ""
        self.http = httpx.AsyncClient(verify=False)  # reading the certificates of the machine takes long
        self.tasks = Supervisor()
        self._stack = AsyncExitStack()
        self._port = 0

    @property
    def controller(self) -> SessionController:
        found: SessionController = self.app.state.controller
        return found

    async def open(self) -> None:
        self.app = create_app(self.settings)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", self._port))
        self._port = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        ready = asyncio.Event()
        config: dict[str, Any] = {"http": BoundedHeads, "ws": "websockets-sansio", "ws_per_message_deflate": False}
        config |= {
            "lifespan": "off",
            "log_config": None,
            "access_log": False,
            "timeout_graceful_shutdown": 3,
            "timeout_keep_alive": 75,
        }
        self._server = Server(uvicorn.Config(self.app, **config), ready.set, self.app.state.shutdown)
        await self._stack.enter_async_context(self.app.router.lifespan_context(self.app))
        self._serving = self.tasks.start(self._server.serve(sockets=[sock]), name="serve")
        await ready.wait()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
        self.http = httpx.AsyncClient(base_url=self.url, timeout=60, limits=limits, verify=False)

    async def _end(self) -> None:
        """As a signal does it: streams end, agents end, what ran is interrupted at the next start."""
        await self.http.aclose()
        self._server.ask_to_stop(15)
        await asyncio.wait([self._serving])
        await self._stack.aclose()

    async def restart(self) -> None:
        await self._end()
        await self.open()

    async def __aenter__(self) -> "House":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()
        await self.tasks.close()
