"""A client that speaks JSON-RPC by hand over WebSocket, and checks all it is sent against the SDK's schemas."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.acp.clients.schema import Checker

Json = dict[str, Any]
PATIENCE = 30  # seconds; a loaded machine is slow, not wrong

V1: Json = {
    "protocolVersion": 1,
    "clientInfo": {"name": "tests", "version": "1"},
    "clientCapabilities": {
        "subagents": {},
        "session": {"notices": {}},
        "elicitation": {"form": {}, "url": {}},
        "_meta": {"trunkline": {"pending": {}}},
    },
}
V2: Json = {
    "protocolVersion": 2,
    "info": {"name": "tests", "version": "1"},
    "capabilities": {"elicitation": {"form": {}, "url": {}}, "_meta": {"trunkline": {"pending": {}}}},
}


class RpcError(Exception):
    def __init__(self, error: Json) -> None:
        super().__init__(f"{error['code']}: {error['message']} {error.get('data')}")
        self.code, self.data = error["code"], error.get("data")


class Client:
    """``got`` is all that came, in order. ``answer`` chooses the option of a permission; None: it is not answered."""

    def __init__(self, socket: ClientConnection, version: int) -> None:
        self.socket = socket
        self.version = version
        self.checker = Checker(version)
        self.got: list[Json] = []
        self.answer: Callable[[Json], Json | None] = lambda message: _allow(message)
        self.session = ""
        self.patience = PATIENCE
        self._next = 0
        self._pending: dict[int, asyncio.Future[Json]] = {}
        self._changed = asyncio.Event()
        self.failed: BaseException | None = None

    # --- out ---------------------------------------------------------------------------------------------------------

    async def write(self, message: Json | str) -> None:
        await self.socket.send(message if isinstance(message, str) else json.dumps(message))

    def start(self, method: str, **params: Any) -> "asyncio.Future[Json]":
        """A request that is written when the loop runs next; its result."""
        return asyncio.get_running_loop().create_task(self.call(method, **params))  # type: ignore[return-value]

    async def call(self, method: str, **params: Any) -> Json:
        self._next += 1
        number = self._next
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        self.checker.request(number, method)
        await self.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        async with asyncio.timeout(self.patience):
            return await future

    async def notify(self, method: str, **params: Any) -> None:
        await self.write({"jsonrpc": "2.0", "method": method, "params": params})

    async def new(self, cwd: object, **more: Any) -> Json:
        created = await self.call("session/new", cwd=str(cwd), mcpServers=[], **more)
        self.session = created["sessionId"]
        return created

    def prompt(self, text: str) -> "asyncio.Future[Json]":
        return self.start("session/prompt", sessionId=self.session, prompt=[{"type": "text", "text": text}])

    async def turn(self, text: str) -> Json:
        """A prompt and its end; on v2 the idle state with the message's id beside it."""
        after = len(self.got)
        result = await self.prompt(text)
        if self.version == 1:
            return result
        return {**(await self.state("idle", after)), "messageId": result["messageId"]}

    # --- in ----------------------------------------------------------------------------------------------------------

    async def read(self) -> None:
        error: BaseException = ConnectionError("the socket is closed")
        try:
            with suppress(ConnectionClosed):
                async for frame in self.socket:
                    assert isinstance(frame, str), "a binary frame"
                    await self._take(json.loads(frame))
        except BaseException as wrong:
            error = wrong
            raise
        finally:
            self.failed = error
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # nobody has to look at it
            self._changed.set()

    async def _take(self, message: Json) -> None:
        self.checker.message(message)
        self.got.append(message)
        if "method" not in message:
            future = self._pending.pop(message["id"], None) if message["id"] is not None else None
            if future is not None and not future.done():
                if "error" in message:
                    future.set_exception(RpcError(message["error"]))
                else:
                    future.set_result(message["result"])
        elif "id" in message:
            result = self.answer(message)
            if result is not None:
                await self.write({"jsonrpc": "2.0", "id": message["id"], "result": result})
        self._changed.set()

    async def until(self, found: Callable[[Json], bool], after: int = 0) -> Json:
        """The first message after the ``after``-th that ``found`` likes."""
        async with asyncio.timeout(self.patience):
            while True:
                self._changed.clear()
                for message in self.got[after:]:
                    if found(message):
                        return message
                if self.failed is not None:
                    raise self.failed
                await self._changed.wait()

    async def update(self, kind: str, after: int = 0, **fields: Any) -> Json:
        """The first update of a kind with these fields."""

        def found(message: Json) -> bool:
            update = (message.get("params") or {}).get("update") or {}
            return update.get("sessionUpdate") == kind and all(update.get(k) == v for k, v in fields.items())

        message = await self.until(found, after)
        update: Json = message["params"]["update"]
        return update

    async def state(self, word: str, after: int = 0) -> Json:
        """A state of the session itself (v2)."""

        def found(message: Json) -> bool:
            params = message.get("params") or {}
            return params.get("sessionId") == self.session and (params.get("update") or {}).get("state") == word

        update: Json = (await self.until(found, after))["params"]["update"]
        return update

    async def said(self, text: str, after: int = 0) -> None:
        """Wait until the agent has said this, in however many chunks."""
        await self.until(lambda _: text in self.text(after=after), after)

    async def asked(self, method: str, after: int = 0) -> Json:
        return await self.until(lambda m: m.get("method") == method, after)

    def updates(self, *kinds: str, after: int = 0, session: str = "") -> list[Json]:
        return [
            m["params"]["update"]
            for m in self.got[after:]
            if m.get("method") == "session/update"
            and (not kinds or m["params"]["update"]["sessionUpdate"] in kinds)
            and (not session or m["params"]["sessionId"] == session)
        ]

    def text(self, kind: str = "agent_message_chunk", after: int = 0, session: str = "") -> str:
        return "".join(u["content"].get("text", "") for u in self.updates(kind, after=after, session=session))


def _allow(message: Json) -> Json:
    if message["method"] == "elicitation/create":
        return {"action": "accept", "content": {"answer": "fine"}}
    return {"outcome": {"outcome": "selected", "optionId": message["params"]["options"][0]["optionId"]}}


@asynccontextmanager
async def client(url: str, version: int = 1, path: str = "/acp", hello: Json | None = None) -> AsyncIterator[Client]:
    """An initialized client. What it was sent wrongly fails the block."""
    async with connect(url.replace("http", "ws", 1) + path, max_size=None, compression=None) as socket:
        one = Client(socket, version)
        reader = asyncio.get_running_loop().create_task(one.read())
        try:
            await one.call("initialize", **(hello or (V1 if version == 1 else V2)))
            yield one
        finally:
            await socket.close()
            await asyncio.wait([reader])
        reader.result()
