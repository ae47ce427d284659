"""Steers on their way to an agent: ``session/inject`` (v2), ``_session/steering`` (claude-agent-acp, codex-acp), none.

Each answers every OfferSteer with verdicts and every Withdraw with one; what was not answered is lost with the agent.
Source of the inject messages: ACP RFD #1261 and schema PR #2043, whose error codes differ: both are understood.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from adapters.acp import rpc, wire
from adapters.acp.translate_content import string, table
from gateway.core import effects
from gateway.core.content import Content
from gateway.core.ids import MessageId, OfferId
from gateway.core.inputs import AgentFact, AgentUser, SteerVerdict, WithdrawVerdict

Json: TypeAlias = Any
Answered: TypeAlias = Callable[[msgspec.Raw | None, rpc.RpcError | None], None]
PRECONDITION = -32010


class Line(Protocol):
    """What a way of steering needs of its session."""

    own_id: str

    def blocks(self, content: Content) -> list[Json]: ...

    def steer_call(self, method: str, params: Json, answered: Answered) -> bool:
        """A request with the deadline of steers. False: it could not be written."""
        ...

    def add(self, *facts: AgentFact) -> None: ...
    def timed_out(self, error: rpc.RpcError) -> bool: ...


class Steering(Protocol):
    def offer(self, offer: effects.OfferSteer) -> None: ...
    def withdraw(self, wish: effects.Withdraw) -> None: ...

    def landed(self, agent_id: str, content: Content) -> list[AgentFact] | None:
        """What a user message of the agent says of a steer; None: it is none of ours."""
        ...


def refused(offer: effects.OfferSteer) -> SteerVerdict:
    return SteerVerdict(offer_id=offer.offer_id, verdict="refused")


def cannot(wish: effects.Withdraw) -> WithdrawVerdict:
    return verdict(wish, False)


def verdict(wish: effects.Withdraw, done: bool) -> WithdrawVerdict:
    return WithdrawVerdict(offer_id=wish.offer_id, message_id=wish.message_id, question=wish.question, done=done)


class NoSteering:
    def __init__(self, line: Line) -> None:
        self._line = line

    def offer(self, offer: effects.OfferSteer) -> None:
        self._line.add(refused(offer))

    def withdraw(self, wish: effects.Withdraw) -> None:
        self._line.add(cannot(wish))

    def landed(self, agent_id: str, content: Content) -> list[AgentFact] | None:
        return None


class _Expected(msgspec.Struct):
    """A steer whose echo has not come."""

    offer_id: OfferId
    content: Content  # of its first message
    decided: bool = False


class ByMethod(NoSteering):
    """``_session/steering``: one request for all messages, answered when the agent has them; nothing comes back.

    ``echoes``: the agent tells a steer as a user message too (codex-acp on v2), perhaps before its answer.
    """

    def __init__(self, line: Line, echoes: bool) -> None:
        super().__init__(line)
        self._echoes = echoes
        self._expected: deque[_Expected] = deque()

    def offer(self, offer: effects.OfferSteer) -> None:
        content = tuple(block for message in offer.messages for block in message.content)
        params = wire.steering(self._line.own_id, self._line.blocks(content))
        if not self._line.steer_call("_session/steering", params, partial(self._answered, offer.offer_id)):
            self._line.add(refused(offer))
        elif self._echoes:
            self._expected.append(_Expected(offer.offer_id, offer.messages[0].content))

    def _answered(self, offer_id: OfferId, result: msgspec.Raw | None, error: rpc.RpcError | None) -> None:
        found: Literal["injected", "refused", "lost"]
        if error is not None:
            found = "lost" if self._line.timed_out(error) else "refused"
        else:
            match wire.as_object(result).get("outcome"):
                case "injected" | "startedNewTurn":
                    found = "injected"
                case "promptRequired" | "failed":
                    found = "refused"
                case _:
                    found = "lost"  # it may have it, or not
        for each in [e for e in self._expected if e.offer_id == offer_id]:
            each.decided = True
            if found == "refused":
                self._expected.remove(each)
        self._line.add(SteerVerdict(offer_id=offer_id, verdict=found))

    def landed(self, agent_id: str, content: Content) -> list[AgentFact] | None:
        """The gateway is the only one who sends: a message that is no prompt's is the oldest steer."""
        if not self._expected:
            return None
        first = self._expected.popleft()
        if first.decided:
            return [AgentUser(content=first.content, agent_id=agent_id)]
        return [SteerVerdict(offer_id=first.offer_id, verdict="injected", agent_id=agent_id)]


class _Sent(msgspec.Struct):
    """One message of an offer, as the agent holds it."""

    offer_id: OfferId
    message_id: MessageId
    content: Content
    agent_id: str = ""  # since it was accepted
    wishes: list[effects.Withdraw] = []  # until then


class ByInject(NoSteering):
    """``session/inject``: a message at a time; accepted, it can come back until it is told as ``user_message``."""

    def __init__(self, line: Line, replace: bool) -> None:
        super().__init__(line)
        self._replace = replace
        self._held: dict[MessageId, _Sent] = {}

    def offer(self, offer: effects.OfferSteer) -> None:
        for message in offer.messages:
            self._held[message.id] = _Sent(offer.offer_id, message.id, message.content)
        self._next(offer, 0)

    def _next(self, offer: effects.OfferSteer, index: int) -> None:
        """The next one when the one before is decided: a refusal in between must not change the order."""
        if index == len(offer.messages):
            self._line.add(SteerVerdict(offer_id=offer.offer_id, verdict="accepted"))
            return
        message = offer.messages[index]
        params = wire.inject(self._line.own_id, self._line.blocks(message.content))
        if not self._line.steer_call("session/inject", params, partial(self._answered, offer, index)):
            self._refused(offer, index)

    def _answered(
        self, offer: effects.OfferSteer, index: int, result: msgspec.Raw | None, error: rpc.RpcError | None
    ) -> None:
        message_id = offer.messages[index].id
        sent = self._held.get(message_id)
        agent_id = string(wire.as_object(result).get("messageId")) if error is None else None
        if error is not None and not self._line.timed_out(error):
            self._refused(offer, index)
            return
        if sent is not None and agent_id is None:
            del self._held[message_id]  # nobody knows
            lost = SteerVerdict(offer_id=offer.offer_id, verdict="lost", message_id=message_id)
            self._line.add(lost, *(cannot(wish) for wish in sent.wishes))
        elif sent is not None and agent_id is not None and not sent.agent_id:
            sent.agent_id = agent_id
            wishes, sent.wishes = sent.wishes, []
            for wish in wishes:
                self._ask(sent, wish)
        self._next(offer, index + 1)

    def _refused(self, offer: effects.OfferSteer, index: int) -> None:
        """This one and those behind it: they would only be refused too."""
        for message in offer.messages[index:]:
            sent = self._held.pop(message.id, None)
            if sent is not None:
                back = SteerVerdict(offer_id=offer.offer_id, verdict="refused", message_id=message.id)
                self._line.add(back)
        if index:
            self._line.add(SteerVerdict(offer_id=offer.offer_id, verdict="accepted"))

    # --- taking it back ----------------------------------------------------------------------------------------------

    def withdraw(self, wish: effects.Withdraw) -> None:
        sent = self._held.get(wish.message_id)
        if sent is None or sent.offer_id != wish.offer_id or (wish.content is not None and not self._replace):
            self._line.add(cannot(wish))
        elif sent.agent_id:
            self._ask(sent, wish)
        else:
            sent.wishes.append(wish)

    def _ask(self, sent: _Sent, wish: effects.Withdraw) -> None:
        params: Json = {"sessionId": self._line.own_id, "messageId": sent.agent_id}
        method = "session/revoke_inject"
        if wish.content is not None:
            method, params = "session/replace_inject", {**params, "content": self._line.blocks(wish.content)}
        if not self._line.steer_call(method, params, partial(self._asked, sent, wish)):
            self._line.add(cannot(wish))

    def _asked(
        self, sent: _Sent, wish: effects.Withdraw, result: msgspec.Raw | None, error: rpc.RpcError | None
    ) -> None:
        if error is None:
            if wish.content is None:
                self._held.pop(sent.message_id, None)
            self._line.add(verdict(wish, True))
        elif reason(error) == "unknown_message_id" and sent.message_id in self._held:
            del self._held[sent.message_id]  # it accepted it, and does not know it any more
            self._line.add(
                SteerVerdict(offer_id=sent.offer_id, verdict="lost", message_id=sent.message_id), cannot(wish)
            )
        else:
            self._line.add(cannot(wish))

    def landed(self, agent_id: str, content: Content) -> list[AgentFact] | None:
        sent = next((each for each in self._held.values() if each.agent_id == agent_id), None)
        if sent is None:  # perhaps told before the answer to its inject: the oldest unanswered of this content
            waiting = (each for each in self._held.values() if not each.agent_id and each.content == content)
            sent = next(waiting, None)
        if sent is None:
            return None
        del self._held[sent.message_id]
        landed = SteerVerdict(offer_id=sent.offer_id, verdict="injected", message_id=sent.message_id, agent_id=agent_id)
        return [landed, *(cannot(wish) for wish in sent.wishes)]


def reason(error: rpc.RpcError) -> str:
    """The word of an inject error; the code says it where there is no word."""
    found = string(table(error.data).get("reason"))
    return found or ("unknown_message_id" if error.code == rpc.NOT_FOUND else "")
