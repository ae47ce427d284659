"""What an agent of ACP v1 may ask beside permissions: files and terminals, by its settings ``fs`` and ``terminal``.

``gateway``: done here, inside the workspace (``fs``, ``terminals``); ``client``: passed to a client of the session;
``off``: no such method. Requests run side by side, files in their order; each is answered once, also when withdrawn.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import structlog

from adapters.acp import fs, rpc, terminals, wire
from adapters.acp.owner import CallFailed
from gateway.agents import AgentConfig
from gateway.client_calls import ClientCalls, ClientLeft, NoClient, ServingClient
from gateway.core.errors import GatewayError
from gateway.core.model import SessionInfo
from gateway.spawn import environment
from gateway.tasks import Supervisor

if TYPE_CHECKING:
    from adapters.acp.connection import Connection

FILES = {"fs/read_text_file": "fs.readTextFile", "fs/write_text_file": "fs.writeTextFile"}
TERMINALS = ("terminal/create", "terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release")

Params = TypeVar("Params")
_log = structlog.get_logger("agent")


def methods(config: AgentConfig) -> tuple[str, ...]:
    """The requests that this agent may make. Version 2 has none of them."""
    if config.protocol != 1:
        return ()
    return (*(FILES if config.fs != "off" else ()), *(TERMINALS if config.terminal != "off" else ()))


class Duties:
    """Of one session. ``begin`` before the agent can ask; ``close`` frees all."""

    def __init__(
        self, config: AgentConfig, clients: ClientCalls, roots: Sequence[Path] = (), run_dir: Path | None = None
    ) -> None:
        self._config, self._clients, self._workspace, self._run_dir = config, clients, roots, run_dir
        self._methods = methods(config)
        self._tasks = Supervisor()
        self._running: dict[rpc.Id, asyncio.Task[None]] = {}
        self._order = asyncio.Lock()  # of what is done with files
        self._holders: dict[str, ServingClient] = {}  # who has which terminal
        self._info: SessionInfo | None = None  # none before ``begin`` and after ``close``
        self._roots: list[Path] = []
        self._terminals: terminals.Terminals | None = None

    def __repr__(self) -> str:
        return f"<Duties {len(self._running)} open {self._terminals} held={list(self._holders)}>"

    def begin(self, info: SessionInfo) -> None:
        """The session that the agent works for. Its folders are the workspace roots that its cwd is in."""
        self._info = info
        cwd = os.path.realpath(info.cwd)
        roots = [root for root in self._workspace if Path(cwd).is_relative_to(os.path.realpath(root))]
        self._roots = roots or [Path(cwd)]

    def asked(self, connection: "Connection", request: rpc.Request, agent_session: str) -> bool:
        """Serve a request; False: no such method. ``agent_session``: a child's id, or empty."""
        if request.method not in self._methods or self._info is None:
            return False
        key = rpc.id_key(request.id)
        serve = self._serve(connection, request, agent_session)
        task = self._running[key] = self._tasks.start(serve, name=f"{request.method} of {connection.name}")

        def over(done: "asyncio.Task[None]") -> None:
            self._running.pop(key, None)
            if done.cancelled():  # perhaps before it began
                connection.refuse(request.id, rpc.CANCELLED, "Request cancelled")

        task.add_done_callback(over)
        return True

    def withdrawn(self, request: rpc.Id) -> None:
        """The agent does not want the answer any more: it is told so, and a client that was asked too."""
        task = self._running.get(request)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Returns when no terminal's process is left. What the agent still waits for is answered as cancelled."""
        self._info = None  # what is asked from now on is refused
        await self._tasks.close()
        self._tasks = Supervisor()
        self._holders.clear()
        held, self._terminals = self._terminals, None
        if held is not None:
            await held.close()

    async def _serve(self, connection: "Connection", request: rpc.Request, agent_session: str) -> None:
        try:
            result = await self._do(connection, request, agent_session)
        except CallFailed as failed:
            connection.refuse(request.id, failed.error.code, failed.error.message, failed.error.data)
        except NoClient as error:
            connection.refuse(request.id, rpc.METHOD_NOT_FOUND, error.message, {"reason": error.code})
        except ClientLeft as error:
            connection.refuse(request.id, rpc.INTERNAL, error.message, {"reason": error.code})
        except GatewayError as error:
            connection.refuse(request.id, rpc.INVALID_PARAMS, error.message, {"reason": error.code})
        except Exception:
            _log.exception("request of the agent failed", agent=connection.name, method=request.method)
            connection.refuse(request.id, rpc.INTERNAL, "Internal error")
        else:
            connection.answer(request.id, result)

    async def _do(self, connection: "Connection", request: rpc.Request, agent_session: str) -> Any:
        """What may be large is answered at once when there is room for it: nothing is awaited in between."""
        files = request.method in FILES
        if (self._config.fs if files else self._config.terminal) == "client":
            result = await self._pass_on(request, agent_session)
            await _room(connection)
            return result
        if files:
            async with self._order:
                if request.method == "fs/read_text_file":
                    text = await asyncio.to_thread(fs.read, _params(request, fs.Read), self._roots)
                    await _room(connection)
                    return {"content": text}
                await asyncio.to_thread(fs.write, _params(request, fs.Write), self._roots)
                return {}
        if request.method == "terminal/output":
            await _room(connection)
        return await self._terminal(request)

    async def _terminal(self, request: rpc.Request) -> Any:
        held = self._terminals
        if held is None:
            assert self._info is not None
            env = environment(os.environ, self._config.pass_env, self._config.env)
            held = terminals.Terminals(env, self._roots, self._info.cwd, self._run_dir, self._config.name)
            self._terminals = held
        if request.method == "terminal/create":
            return await held.create(_params(request, terminals.Create))
        number = _params(request, terminals.Named).terminal_id
        terminal = held.get(number)
        match request.method:
            case "terminal/output":
                return terminal.output()
            case "terminal/wait_for_exit":
                return await terminal.wait()
            case "terminal/kill":
                terminal.kill()
            case _:
                await held.release(number)
        return {}

    async def _pass_on(self, request: rpc.Request, agent_session: str) -> Any:
        """To the client that has the terminal, else to the first one that can. Paths and ids are the client's own."""
        assert self._info is not None
        params = wire.as_object(request.params)
        number = params.get("terminalId")
        if request.method in FILES or request.method == "terminal/create":
            client = self._clients.find(self._info.root_id, FILES.get(request.method, "terminal"))
        else:
            found = self._holders.get(number) if isinstance(number, str) else None
            if found is None:
                raise fs.refused(rpc.NOT_FOUND, f"Resource not found: no terminal {number}", terminalId=number)
            client = found
        result = await client.call(request.method, params, agent_session)
        if request.method == "terminal/create":
            made = wire.as_object(result).get("terminalId")
            if not isinstance(made, str):
                raise fs.refused(rpc.INTERNAL, "the client made a terminal without an id")
            self._holders[made] = client
        elif request.method == "terminal/release":
            self._holders.pop(str(number), None)
        return result


async def _room(connection: "Connection") -> None:
    if connection.process is not None:
        await connection.process.room()


def _params(request: rpc.Request, kind: type[Params]) -> Params:
    try:
        return msgspec.json.decode(request.params or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        told = str(error).replace(" - at `$.", " - at `")
        raise fs.refused(rpc.INVALID_PARAMS, f"Invalid params: {told}") from None
