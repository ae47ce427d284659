"""A tree under test, with its invariants checked at every step. Clock and entropy are counters: nothing is patched."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.core import effects as fx
from gateway.core import events as ev
from gateway.core.ids import SessionId
from gateway.core.inputs import Create, Input
from gateway.core.model import SessionInfo
from gateway.core.session import Policy, Session, dump, load
from gateway.core.state import Known, State
from gateway.core.transcript import BlockPart, StepItem, TextPart, Transcript
from gateway.core.tree import Decision, Tree, claims, create
from gateway.core.turn import TurnState
from tests.core import trace

T0 = 1_770_000_000_000  # milliseconds; far from a wrap of the 48 bits
WRAP = (1 << 48) // 4096 * 435  # the last one: 2026-08-14


class Whole(msgspec.Struct):
    """All of a session, also what only ephemeral events said."""

    state: State
    transcript: Transcript
    known: dict[str, Known]
    used: list[str]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Whole)


def whole(session: Session) -> bytes:
    for item in session.transcript.items:
        if isinstance(item, StepItem):
            for part in item.parts:
                if isinstance(part, TextPart):
                    _ = part.text  # joins the chunks: how they are cut is no state
    return _encoder.encode(Whole(session.state, session.transcript, session.known, list(session.used)))


def copy_of(session: Session, image: bytes) -> Session:
    decoded = _decoder.decode(image)
    fresh = Session(session.id)
    fresh.state, fresh.transcript, fresh.known = decoded.state, decoded.transcript, decoded.known
    fresh.used = dict.fromkeys(decoded.used, True)
    return fresh


class World:
    """``step`` decides and applies some inputs; ``lost=True`` throws the decision away, as a failed commit does.

    ``heavy``: every how many steps the checks that read the whole story are made (always by ``check_all``).
    """

    def __init__(self, policy: Policy = Policy(), now: int = T0, heavy: int = 1, **about: Any) -> None:
        self.now = now
        self.heavy = heavy
        self.names = trace.Names()
        self.lines: list[str] = []
        self.count = 0
        self._entropy = 0
        self.policy = policy
        self.tree, first = create(Create(cwd="/w", **about), now, self.entropy(), policy)
        self.names.of[self.tree.root_id] = "root"
        self.tree.apply(first.records)
        self.records: dict[SessionId, list[ev.Record]] = {}
        self.every: dict[SessionId, list[ev.Record]] = {}
        self.seen: set[str] = set()  # ids that were introduced
        self.snapshots: dict[SessionId, tuple[bytes, int]] = {}
        self.foreign: set[str] = set()  # ids that sessions elsewhere have
        self.owner: dict[str, SessionId] = {}  # of the ids that are unique in the gateway
        self._keep(first.records)

    @property
    def root(self) -> Session:
        return self.tree.root

    def entropy(self) -> bytes:
        self._entropy += 1
        return self._entropy.to_bytes(16, "big")

    # --- a step -------------------------------------------------------------------------------------------------------

    def step(self, *items: Input | tuple[SessionId, Input], lost: bool = False) -> Decision:
        inputs = [item if isinstance(item, tuple) else (self.tree.root_id, item) for item in items]
        self.lines += [trace.given(self.names, item) for _, item in inputs]
        before = {i: whole(s) for i, s in self.tree.sessions.items()}
        taken: set[str] = set()
        decision = self._decide(inputs, taken)
        while (found := self._taken(decision)) is not None:
            assert found not in taken, "an id that another has is tried again"
            taken.add(found)
            assert len(taken) < 10, "it never finds an id of its own"
            self.lines.append(f"   (taken: {self.names(found)})")
            decision = self._decide(inputs, taken)
        assert {i: whole(s) for i, s in self.tree.sessions.items()} == before, "decide changed something"
        if lost:
            self.lines.append("   (the commit failed)")
            return decision
        infos = {i: s.state.info for i, s in self.tree.sessions.items()}
        for record in decision.records:
            told = trace.event(self.names, record.event, infos.get(record.session_id))
            if isinstance(record.event, ev.SessionCreated | ev.SessionUpdated):
                infos[record.session_id] = record.event.info
            self.lines.append(f"<< {self._where(record.session_id, infos)}{told}")
        self.lines += [trace.effect(self.names, e) for e in decision.effects]
        self.lines += [line for r in decision.replies if (line := trace.reply(self.names, r))]
        self.tree.apply(decision.records)
        self._keep(decision.records)
        self.count += 1
        self.check(decision)
        if self.count % self.heavy == 0:
            self.check_all()
        return decision

    def _where(self, session_id: SessionId, infos: dict[SessionId, SessionInfo | None]) -> str:
        info = infos.get(session_id)
        return "" if session_id == self.tree.root_id or info is None else f"@{info.agent_session} "

    def _taken(self, decision: Decision) -> str | None:
        """The first id that the store would not give: another session has it, of this tree or elsewhere."""
        owner = dict(self.owner)
        for value, session_id in claims(decision.durable):
            if value in self.foreign or owner.setdefault(value, session_id) != session_id:
                return value
        return None

    def _decide(self, inputs: list[tuple[SessionId, Input]], among: set[str]) -> Decision:
        """Decide twice, the same way; the draft must be what applying the records to a copy makes."""
        entropy, taken = self.entropy(), frozenset(among)
        decision = self.tree.decide(inputs, self.now, entropy, taken)
        draft, hot, replies = self.tree.draft(inputs, self.now, entropy, taken)
        assert len(replies) == len(inputs)
        if draft is None:
            assert tuple(hot) == decision.records
            return decision
        assert tuple(draft.records) == decision.records, "the same inputs were decided differently"
        copies = {i: copy_of(s, whole(s)) for i, s in self.tree.sessions.items()}
        other = Tree.of([copies[self.tree.root_id], *(s for i, s in copies.items() if i != self.tree.root_id)])
        other.apply(decision.records)
        for session_id, node in draft.nodes.items():
            applied = other.sessions.get(session_id)
            if applied is None:
                continue  # begun by an input that was refused
            assert node.state == applied.state, "a draft changed otherwise than by apply"
            assert dict(node.known) == applied.known
            assert dict(node.used) == applied.used
            assert dict(node.refs) == applied.transcript.refs
            assert dict(node.children) == applied.transcript.children
            for part_id in node.texts:
                part = applied.transcript.part(part_id)
                if isinstance(part, TextPart) and part.ended is None:
                    assert node.text_of(part_id) == part.text
        assert draft.by_agent == other.by_agent
        assert decision.busy == other.busy
        return decision

    def _keep(self, records: Sequence[ev.Record]) -> None:
        self.owner.update(claims(records))
        for record in records:
            if record.seq:
                self.records.setdefault(record.session_id, []).append(record)
            self.every.setdefault(record.session_id, []).append(record)
            if isinstance(record.event, ev.PartOpened | ev.BlockAdded):
                e = record.event
                assert e.first == (e.ordinal == 1)
                self._new(f"{record.session_id} {e.role} {e.message_id} #{e.ordinal}")
            for value in introduced(record.event):
                self._new(value)

    def _new(self, value: str) -> None:
        assert value not in self.seen, f"an id was given twice: {value}"
        self.seen.add(value)

    # --- after a step -------------------------------------------------------------------------------------------------

    def check(self, decision: Decision) -> None:
        for session in self.tree.sessions.values():
            _check_offers(session)
        rose: dict[SessionId, int] = {}
        for record in decision.records:
            assert record.clock >= rose.get(record.session_id, 0), "the id clock went back"
            rose[record.session_id] = record.clock
        self._check_effects(decision)

    def _check_effects(self, decision: Decision) -> None:
        """Each offer has its effect, and each effect its event."""
        events = [record.event for record in decision.records]
        offered = [(e.how, e.offer_id, e.message_ids) for e in events if isinstance(e, ev.MessagesOffered)]
        told = [
            ("prompt" if isinstance(e, fx.OfferPrompt) else "injected", e.offer_id, tuple(m.id for m in e.messages))
            for e in decision.effects
            if isinstance(e, fx.OfferPrompt | fx.OfferSteer)
        ]
        assert offered == told, "offers and their effects differ"
        starting = sum(isinstance(e, ev.AgentStateChanged) and e.state == "starting" for e in events)
        assert starting == sum(isinstance(e, fx.StartAgent) for e in decision.effects)

    def check_all(self) -> None:
        """What reads the whole story: seq, the folds, the list's times, the order of parts."""
        for session_id, session in self.tree.sessions.items():
            durable = self.records[session_id]
            assert [r.seq for r in durable] == list(range(1, len(durable) + 1)), "seq has holes"
            every = Session(session_id)
            for record in self.every[session_id]:
                every.apply(record)
            assert every.transcript == session.transcript, "the fold of all events is not the transcript"
            assert every.state.turn == session.state.turn
            _same_as_stored(load(session_id, None, durable), session)
            _same_as_stored(load(session_id, dump(session), ()), session)
            if session_id in self.snapshots:
                snapshot, seq = self.snapshots[session_id]
                _same_as_stored(load(session_id, snapshot, [r for r in durable if r.seq > seq]), session)
            if self.count % 3 == 0 or session_id not in self.snapshots:
                self.snapshots[session_id] = dump(session), session.state.seq
            _check_list(session)

    # --- a restart ----------------------------------------------------------------------------------------------------

    def reload(self) -> dict[str, str]:
        """Everything from the store. Returns the text so far of open parts, as the checkpoints keep it."""
        texts: dict[str, str] = {}
        for session in self.tree.sessions.values():
            if session.state.part is not None:
                part = session.transcript.part(session.state.part.part_id)
                assert isinstance(part, TextPart)
                texts[part.part_id] = part.text
        sessions = [load(i, None, self.records[i]) for i in self.tree.sessions]
        self.tree = Tree.of(sessions, self.policy)
        self.every = {i: list(r) for i, r in self.records.items()}
        self.snapshots.clear()
        self.lines.append("   (restart)")
        return texts


def _check_offers(session: Session) -> None:
    state = session.state
    assert sum(not o.accepted for o in state.offers.values()) <= 1, "two unanswered offers"
    for offer in state.offers.values():
        assert offer.message_ids
        for message_id in offer.message_ids:
            assert state.inbox[message_id].offer_id == offer.id
    for entry in state.inbox.values():
        assert entry.state == "pending" or entry.offer_id in state.offers
        assert not (entry.state == "offered" and entry.held)
        assert session.known[entry.id].state == "inbox"
    beginning = state.turn in (TurnState.PROMPTING, TurnState.STILLBORN)
    assert beginning == any(o.how == "prompt" for o in state.offers.values())
    assert (state.turn is TurnState.IDLE) == (state.turn_id is None)
    if state.part is not None:
        assert state.step is not None and state.part.step_id == state.step.id


def _same_as_stored(loaded: Session, session: Session) -> None:
    """What the store gives back is the session, but for what only ephemeral events said."""
    part = session.state.part
    if part is not None:
        live, old = session.transcript.part(part.part_id), loaded.transcript.part(part.part_id)
        assert isinstance(live, TextPart) and isinstance(old, TextPart)
        assert live.text.startswith(old.text)
        old.chunks = [live.text]
    assert loaded.transcript == session.transcript, "stored events do not fold to the transcript"
    want, have = session.state.durable(), loaded.state.durable()
    assert have.clock <= want.clock
    want.clock = have.clock = want.question = have.question = 0
    for each in (want, have):
        each.inbox = {k: msgspec.structs.replace(m, questions=()) for k, m in each.inbox.items()}
    assert have == want, "stored events do not make the state"
    assert loaded.known == session.known
    assert loaded.used == session.used


def _check_list(session: Session) -> None:
    """Times of the list rise strictly; the parts of a step ascend, between its start and its end."""
    items = session.transcript.items
    created = [item.step.created if isinstance(item, StepItem) else item.message.created for item in items]
    assert all(a < b for a, b in zip(created, created[1:], strict=False)), "time.created does not rise"
    for item in session.transcript.items:
        if isinstance(item, StepItem):
            parts = [item.step.start_part, *(p.part_id for p in item.parts)]
            assert all(a < b for a, b in zip(parts, parts[1:], strict=False)), "part ids do not ascend"
            for part in item.parts:
                if isinstance(part, TextPart) and part.ended is not None:
                    assert part.ended >= part.created
                if isinstance(part, TextPart | BlockPart):
                    assert part.turn_id == item.step.turn_id
        else:
            assert list(item.message.part_ids) == sorted(set(item.message.part_ids))


def introduced(event: ev.Event) -> list[str]:
    """The ids that an event brings in. Each may come in once."""
    match event:
        case ev.SessionCreated(info):
            return [info.id]
        case ev.MessageAdmitted(message):
            return [*dict.fromkeys((message.id, message.ascending_id)), *message.part_ids]
        case ev.MessageDelivered(message) if message.how == "imported":
            return [*dict.fromkeys((message.id, message.ascending_id)), *message.part_ids]
        case ev.TurnStarted():
            return [event.turn_id]
        case ev.MessagesOffered():
            return [event.offer_id]
        case ev.StepStarted(step):
            return [step.id, step.start_part]
        case ev.StepEnded(step):
            return [step.end_part or ""]
        case ev.PartOpened() | ev.BlockAdded():
            return [event.part_id]
        case ev.ToolUpdated(call) if event.first:
            return [call.part_id]
        case ev.RequestOpened(request):
            return [request.id]
        case ev.MessageReplaced():
            return [p.part_id for p in event.parts if p.part_id not in event.dropped]
        case _:
            return []
