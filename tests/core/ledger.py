"""An independent account of every message, kept from the events: what must hold of lanes, offers and fates."""

from typing import Literal

import msgspec

from gateway.core import events as ev
from gateway.core.ids import MessageId, OfferId, RequestId, TurnId
from gateway.core.replies import Settlement
from tests.core.agent import Agent

Fate = Literal["inbox", "delivered", "revoked"]


class Line(msgspec.Struct):
    group: MessageId
    fate: Fate = "inbox"
    offered: bool = False
    held: bool = False
    uncertain: bool = False
    resent: bool = False  # a person sent an uncertain one again: it may be given twice
    replacing: bool = False  # a replace was asked of the agent
    foggy: bool = False  # and nobody knows whether it did
    refused_in: TurnId | None = None
    turn: TurnId | None = None  # that it was delivered in


class Ledger:
    def __init__(self) -> None:
        self.lines: dict[MessageId, Line] = {}
        self.steer: list[MessageId] = []
        self.queue: list[MessageId] = []
        self.offers: dict[OfferId, set[MessageId]] = {}
        self.accepted: set[OfferId] = set()
        self.turn: TurnId | None = None
        self.written = False  # the agent works in it
        self.cancelled = False
        self.command = False  # the turn is a person's command
        self.cancels: list[TurnId] = []  # that the agent must be told now
        self.resent: list[MessageId] = []  # now
        self.requests: set[RequestId] = set()  # open ones, also of children

    def asked(self, e: ev.Event) -> None:
        if isinstance(e, ev.RequestOpened):
            self.requests.add(e.request.id)
        elif isinstance(e, ev.RequestSettled):
            self.requests.remove(e.request_id)

    def free(self, lane: list[MessageId]) -> list[MessageId]:
        return [m for m in lane if not self.lines[m].offered and not self.lines[m].held]

    def record(self, e: ev.Event, agent: Agent) -> None:
        match e:
            case ev.MessageAdmitted(m):
                assert m.id not in self.lines, "admitted twice"
                self.lines[m.id] = Line(m.group, held=bool(m.held))
                (self.steer if m.lane == "steer" else self.queue).append(m.id)
            case ev.MessagePromoted():
                self.queue.remove(e.message_id)
                self.steer.append(e.message_id)
            case ev.MessageDemoted():
                self.steer.remove(e.message_id)
                self.queue.append(e.message_id)
            case ev.MessageHeld():
                assert not self.lines[e.message_id].offered, "told to be held while it is offered"
                self.lines[e.message_id].held = True
            case ev.MessageReleased():
                line = self.lines[e.message_id]
                if line.uncertain:
                    line.resent = True
                    self.resent.append(e.message_id)
                line.held = False
            case ev.QuestionAsked() if e.question.kind == "replace":
                self.lines[e.message_id].replacing = True
            case ev.MessagesOffered():
                self._offered(e)
            case ev.OfferAccepted():
                self.accepted.add(e.offer_id)
            case ev.MessageReturned():
                line = self.lines[e.message_id]
                assert line.offered or (line.uncertain and e.why == "refused" and bool(e.held) == line.held)
                line.offered, line.held = False, bool(e.held)
                line.uncertain |= e.uncertain
                line.foggy |= e.uncertain and line.replacing
                assert not e.uncertain or e.held, "an uncertain message is sent again by itself"
                if e.why == "refused":
                    line.refused_in = e.turn_id
                self._undecided(e.message_id)
            case ev.MessageDelivered(m) if m.how not in ("imported", "command"):
                assert m.id in agent.given, "delivered, but the agent does not have it"
                line = self.lines[m.id]
                assert line.foggy or m.content == agent.given[m.id].content or agent.given[m.id].times > 1
                line.turn = m.turn_id
                self._over(m.id, "delivered")
                if m.how == "prompt" and not self.written:
                    self.written = True
                    self._cancel()
            case ev.MessageRevoked():
                assert e.uncertain or e.message_id not in agent.given, "revoked, but the agent has it"
                assert e.uncertain or not self.lines[e.message_id].uncertain, "it was uncertain, and is no more"
                self.lines[e.message_id].uncertain = e.uncertain
                self._over(e.message_id, "revoked")
            case ev.TurnStarted():
                assert self.turn is None, "a turn in a turn"
                self.turn, self.written, self.cancelled = e.turn_id, e.cause == "agent", False
                self.command = e.cause == "command"
            case ev.TurnCancelling() if not self.cancelled:
                self.cancelled = True
                self._cancel()
            case ev.TurnEnded():
                assert self.turn == e.turn_id
                self.turn, self.command = None, False
            case _:
                pass

    def _offered(self, e: ev.MessagesOffered) -> None:
        assert all(o in self.accepted for o in self.offers), "an offer while another is unanswered"
        steers, queue = self.free(self.steer), self.free(self.queue)
        offered = list(e.message_ids)
        if e.how == "injected":
            assert offered == steers and self.turn == e.turn_id and not self.command
            assert not self.requests, "a steer while a person is asked something"
            assert all(self.lines[m].refused_in != e.turn_id for m in steers), "refused, and offered again"
        else:
            assert not self.offers, "a prompt while an offer is undecided"
            if not steers:
                group = [m for m in queue if self.lines[m].group == self.lines[queue[0]].group]
                assert offered == queue[: len(offered)] and set(offered) <= set(group) and offered
            else:
                assert offered == steers
        self.offers[e.offer_id] = set(offered)
        for message_id in offered:
            line = self.lines[message_id]
            line.offered = True
            line.replacing = False

    def _cancel(self) -> None:
        if self.cancelled and self.written and self.turn is not None:
            self.cancels.append(self.turn)

    def _undecided(self, message_id: MessageId) -> None:
        for offer_id, members in list(self.offers.items()):
            members.discard(message_id)
            if not members:
                del self.offers[offer_id]

    def _over(self, message_id: MessageId, fate: Fate) -> None:
        line = self.lines[message_id]
        assert line.fate == "inbox", f"{line.fate}, and then {fate}"
        line.fate, line.offered = fate, False
        self._undecided(message_id)
        lane = self.steer if message_id in self.steer else self.queue
        lane.remove(message_id)

    def settlement(self, message_id: MessageId, found: Settlement | None) -> None:
        """A waiter is answered when, and as, it is true."""
        line = self.lines[message_id]
        if line.fate == "revoked":
            assert found is not None and (found.kind, found.uncertain) == ("revoked", line.uncertain)
        elif line.fate == "inbox":
            assert (found is not None) == line.held and (found is None or found.kind == "held")
        else:
            assert (found is None) == (line.turn == self.turn)
            assert found is None or (found.kind, found.turn_id) == ("ended", line.turn)

    def check(self, agent: Agent) -> None:
        """What the agent truly has, against what was told."""
        for message_id, given in agent.given.items():
            line = self.lines[message_id]
            assert line.fate != "revoked" or line.uncertain, "the agent got a message that was revoked for certain"
            assert given.times == 1 or line.resent, "the agent got a message twice"
        assert len(set(self.steer + self.queue)) == len(self.steer) + len(self.queue)
        assert {m for m, line in self.lines.items() if line.fate == "inbox"} == set(self.steer + self.queue)
