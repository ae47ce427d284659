"""What agents ask of one of our clients: its files and terminals. The client's side of ``gateway.client_calls``."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from adapters.acp import rpc
from adapters.acp.owner import CallFailed
from gateway.client_calls import ClientLeft
from gateway.core.ids import SessionId

if TYPE_CHECKING:
    from adapters.acp.server import Connection, Server


class Errand(msgspec.Struct, eq=False):
    """A request that a client was sent for an agent, and that is not answered yet."""

    root_id: SessionId
    answer: "asyncio.Future[msgspec.Raw]"

    def answered(self, result: msgspec.Raw | None, error: rpc.RpcError | None) -> None:
        if self.answer.done():
            return
        if result is not None:
            self.answer.set_result(result)
        else:
            self.answer.set_exception(CallFailed(error or rpc.RpcError(rpc.INTERNAL, "no answer")))


class Attached:
    """A client, as a ServingClient of one session that it follows."""

    def __init__(self, connection: "Connection", root_id: SessionId) -> None:
        self._connection, self._root_id = connection, root_id

    def __repr__(self) -> str:
        return f"<Attached {self._connection!r} to {self._root_id}>"

    async def call(self, method: str, params: dict[str, Any], agent_session: str) -> msgspec.Raw:
        """The client's result as it came. Raises ClientLeft, CallFailed."""
        connection = self._connection
        feed = None if connection.closed else connection.feeds.get(self._root_id)
        if feed is None:
            raise left()
        shown: str = self._root_id
        if connection.can.subagents:
            shown = feed.names.get(agent_session, self._root_id)
        errand = Errand(self._root_id, asyncio.get_running_loop().create_future())
        number, line = connection.peer.request(method, {**params, "sessionId": shown}, errand)
        try:
            await connection.send(line.decode().rstrip("\n"), shown, self._root_id)
            return await errand.answer
        except asyncio.CancelledError:
            if connection.peer.forget(number) is not None:
                frame = connection.peer.notify("$/cancel_request", {"requestId": number}).decode().rstrip("\n")
                connection.tasks.start(connection.send(frame, shown, self._root_id), name="acp cancel request")
            raise


def serving(server: "Server", root_id: SessionId, ability: str) -> Attached | None:
    """Of the clients that follow a session, the first that offered this at its initialize."""
    for connection in server.holders(root_id):
        if ability in connection.can.serves and connection.feeds[root_id].standing.is_set():
            return Attached(connection, root_id)
    return None


def leave(connection: "Connection", root_id: SessionId | None = None) -> None:
    """The client leaves a session (or is gone): what it was asked there will not be answered."""
    for number, call in connection.peer.pending():
        if isinstance(call, Errand) and root_id in (None, call.root_id):
            connection.peer.forget(number)
            if not call.answer.done():
                call.answer.set_exception(left())


def left() -> ClientLeft:
    return ClientLeft("the client that was to do this has left the session")
