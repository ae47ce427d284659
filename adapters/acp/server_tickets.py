"""Requests that are answered by what becomes of a message: prompts and steers of one client in one session.

v1 answers a prompt at the end of its turn, v2 when it was inserted, ``_session/steering`` when it is known how the
steer got there. What is answered as cancelled or failed must not run later: it is revoked before the answer.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from adapters.acp import rpc
from adapters.acp import translate_server_v1 as v1
from adapters.acp.translate_server import rpc_error
from gateway.core import events as ev
from gateway.core.errors import GatewayError
from gateway.core.ids import MessageId, SessionId, TurnId
from gateway.core.model import Error

if TYPE_CHECKING:
    from adapters.acp.server import Connection


class Ticket(msgspec.Struct, eq=False):
    tag: str  # what its message's ``By.connection`` is
    request: msgspec.Raw  # its id
    kind: Literal["prompt", "steer"]
    generation: int
    message_id: MessageId | None = None
    turn_id: TurnId | None = None  # since it was delivered
    failure: Error | None = None  # why it was held
    giving_up: bool = False


class Tickets:
    """``see`` gets each event of the session when the client has been told of it, so answers keep their place."""

    def __init__(self, connection: "Connection", root_id: SessionId, caught_up: Callable[[], Awaitable[None]]) -> None:
        """``caught_up``: waits until the client was told all that has happened by now."""
        self._connection = connection
        self._caught_up = caught_up
        self._generation = 0  # of the feed's reading: between two, events may have passed unseen
        self._root_id = root_id
        self._all: dict[str, Ticket] = {}  # by their tag
        self._waiting: dict[MessageId, Ticket] = {}
        self._last_error: Error | None = None

    def __repr__(self) -> str:
        return f"<Tickets {len(self._all)} open, {len(self._waiting)} admitted>"

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, tag: str) -> bool:
        return tag in self._all

    def add(self, request: msgspec.Raw, kind: Literal["prompt", "steer"]) -> Ticket:
        """A ticket for a message that is about to be submitted ``by`` its tag."""
        ticket = Ticket(self._connection.tag(), request, kind, self._generation)
        self._all[ticket.tag] = ticket
        return ticket

    def admitted(self, ticket: Ticket, message_id: MessageId) -> None:
        """Its message has an id. Usually the event has told so, or will."""
        if ticket.tag in self._all and ticket.message_id is None:
            ticket.message_id = message_id
            self._waiting[message_id] = ticket
            if ticket.generation != self._generation:
                self._look_after(ticket, message_id)

    def drop(self, ticket: Ticket) -> None:
        """Its message was not admitted, or it is answered."""
        self._all.pop(ticket.tag, None)
        if ticket.message_id is not None:
            self._waiting.pop(ticket.message_id, None)

    def of(self, request: rpc.Id) -> Ticket | None:
        return next((t for t in self._all.values() if rpc.id_key(t.request) == request), None)

    # --- what becomes of them ----------------------------------------------------------------------------------------

    async def see(self, event: ev.Event) -> None:
        match event:
            case ev.AgentStateChanged():
                self._last_error = event.error
            case ev.MessageAdmitted(message=message):
                ticket = self._all.get(message.by.connection)
                if ticket is not None:
                    ticket.message_id = message.id
                    self._waiting[message.id] = ticket
            case ev.MessageDelivered(message=user) if user.id in self._waiting:
                ticket = self._waiting[user.id]
                ticket.turn_id, ticket.failure = user.turn_id, None
                if ticket.kind == "steer":
                    how = "injected" if user.how == "injected" else "startedNewTurn"
                    await self._answer(ticket, {"outcome": how})
                elif self._connection.protocol == 2:
                    await self._answer(ticket, {"messageId": user.id})
            case ev.MessageHeld(message_id=message_id, why=why) if message_id in self._waiting:
                self._give_up(self._waiting[message_id], why)
            case ev.MessageReturned(message_id=message_id, held=held) if held and message_id in self._waiting:
                self._give_up(self._waiting[message_id], held)
            case ev.MessageRevoked(message_id=message_id) if message_id in self._waiting:
                await self._cancelled(self._waiting[message_id], event.uncertain)
            case ev.TurnEnded():
                self._last_error = event.error
                for ticket in list(self._waiting.values()):
                    if ticket.turn_id == event.turn_id:
                        await self._ended(ticket, event)
                    elif ticket.giving_up and ticket.failure is None:
                        ticket.failure = event.error  # it came back because of this
            case ev.SessionDeleted() if event.info.id == self._root_id:
                for ticket in list(self._waiting.values()):
                    await self._fail(ticket, {"code": rpc.NOT_FOUND, "message": "the session was deleted"})

    async def _ended(self, ticket: Ticket, event: ev.TurnEnded) -> None:
        result = v1.prompt_result(ticket.message_id or "", event.outcome, event.tokens)
        if result is not None:
            await self._answer(ticket, result)
        else:
            await self._fail(ticket, v1.prompt_error(event.outcome, event.error))

    def _give_up(self, ticket: Ticket, why: str) -> None:
        if why not in ("abort", "stored", "restart"):
            ticket.failure = self._last_error
        self.revoke(ticket)

    def revoke(self, ticket: Ticket) -> None:
        """Take its message back; the answer comes with that. One that was delivered meanwhile goes on as it was."""
        if ticket.message_id is None or ticket.giving_up:
            return
        ticket.giving_up = True

        async def run(message_id: MessageId) -> None:
            controller = self._connection.server.controller
            with suppress(GatewayError):
                await controller.revoke(self._root_id, message_id, by=self._connection.by())
            ticket.giving_up = False

        self._connection.tasks.start(run(ticket.message_id), name=f"revoke {ticket.message_id}")

    async def _cancelled(self, ticket: Ticket, uncertain: bool) -> None:
        if ticket.kind == "steer":
            await self._answer(ticket, {"outcome": "failed", "reason": "cancelled"})
        elif ticket.failure is not None:
            await self._fail(ticket, rpc_error(ticket.failure))
        elif self._connection.protocol == 1:
            meta = {"trunkline": {"messageId": ticket.message_id, **({"uncertain": True} if uncertain else {})}}
            await self._answer(ticket, {"stopReason": "cancelled", "_meta": meta})
        else:
            await self._fail(ticket, {"code": rpc.CANCELLED, "message": "Request cancelled"})

    async def _answer(self, ticket: Ticket, result: dict[str, Any]) -> None:
        self.drop(ticket)
        if ticket.kind == "steer":
            result["_meta"] = {"trunkline": {"messageId": ticket.message_id}}
        await self._connection.respond(ticket.request, result, self._root_id)

    async def _fail(self, ticket: Ticket, error: dict[str, Any]) -> None:
        self.drop(ticket)
        data = error.get("data")
        await self._connection.refuse(ticket.request, error["code"], error["message"], data, self._root_id)

    async def abandon(self) -> None:
        """The client leaves the session: what is still open will not be answered by an event."""
        for ticket in list(self._all.values()):
            await self._cancelled(ticket, uncertain=False)

    # --- after a gap -------------------------------------------------------------------------------------------------

    def recheck(self) -> None:
        """The fate of some may have passed unseen: ask for it."""
        self._generation += 1
        for message_id, ticket in self._waiting.items():
            self._look_after(ticket, message_id)

    def _look_after(self, ticket: Ticket, message_id: MessageId) -> None:
        self._connection.tasks.start(self._look(ticket, message_id), name=f"look for {message_id}")

    async def _look(self, ticket: Ticket, message_id: MessageId) -> None:
        try:
            found = await self._connection.server.controller.wait(self._root_id, message_id)
        except GatewayError as error:
            if message_id in self._waiting:
                await self._fail(ticket, {"code": rpc.INTERNAL, "message": error.message})
            return
        await self._caught_up()
        if message_id not in self._waiting:
            return  # answered in its place
        if found.kind == "held":
            self._give_up(ticket, found.why)
        elif found.kind == "revoked":
            await self._cancelled(ticket, found.uncertain)
        elif ticket.kind == "steer":
            await self._answer(ticket, {"outcome": "injected"})
        elif self._connection.protocol == 2:
            await self._answer(ticket, {"messageId": message_id})
        else:
            ended = ev.TurnEnded(found.turn_id or TurnId(""), found.outcome or "end_turn", found.error)
            await self._ended(ticket, ended)
