"""A session, and the draft that a decision works on. The only place that mints ids.

A session changes only by ``apply``; a draft changes only through ``state.apply``, the function that changes the
session too. Handlers (``on_client.py``, ``on_agent.py``) emit events and effects here; ``tree.py`` runs them.
"""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from gateway.core import events as ev
from gateway.core import ids
from gateway.core.content import Content
from gateway.core.effects import AnyEffect
from gateway.core.errors import NotFound
from gateway.core.ids import MessageId, OfferId, PartId, RequestId, SessionId, StepId, TurnId
from gateway.core.model import By, Child, Refs, Rule, SessionInfo, ToolCall
from gateway.core.state import Known, State, apply
from gateway.core.transcript import TextPart, Transcript


class Policy(msgspec.Struct, frozen=True):
    """Settings that decisions depend on. ``max_pending`` counts messages that are not delivered, a session.

    ``permissions``: by a tool call's kind (``*``: any other) what is answered when the agent asks for a permission.
    """

    steer_fallback: Literal["next_turn", "interrupt"] = "next_turn"
    max_pending: int = 1000
    permissions: Mapping[str, Rule] = {}


class Session:
    """State, transcript and the ids that were ever used. Changes by ``apply`` alone."""

    def __init__(self, session_id: SessionId) -> None:
        self.id = session_id
        self.state = State()
        self.transcript = Transcript()
        self.known: dict[str, Known] = {}
        self.used: dict[str, bool] = {}

    @property
    def info(self) -> SessionInfo:
        if self.state.info is None:
            raise NotFound(f"Session not found: {self.id}", session_id=self.id)
        return self.state.info

    def apply(self, record: ev.Record) -> None:
        apply(self.state, self.known, self.used, record)
        self.transcript.apply(record)

    def __repr__(self) -> str:
        s = self.state
        inbox = ", ".join(
            f"{m.id[-6:]}:{m.lane}/{m.state}{'/held ' + m.held if m.held else ''}{'?' if m.uncertain else ''}"
            for m in s.inbox.values()
        )
        return f"<Session {self.id} {s.turn} agent={s.agent} seq={s.seq} inbox=[{inbox}] offers={list(s.offers)}>"


class _Image(msgspec.Struct):
    state: State
    transcript: Transcript
    known: dict[str, Known]
    used: list[str]


_image_encoder = msgspec.json.Encoder()
_image_decoder = msgspec.json.Decoder(_Image)


def dump(session: Session) -> bytes:
    """The session as a snapshot for the store (JSON); what only ephemeral events said is left out."""
    image = _Image(session.state.durable(), session.transcript, session.known, list(session.used))
    return _image_encoder.encode(image)


def load(session_id: SessionId, snapshot: bytes | None, records: Sequence[ev.Record]) -> Session:
    """A session from its snapshot and the durable events since."""
    session = Session(session_id)
    if snapshot is not None:
        image = _image_decoder.decode(snapshot)
        session.state, session.transcript, session.known = image.state, image.transcript, image.known
        session.used = dict.fromkeys(image.used, True)
    for record in records:
        session.apply(record)
    return session


class Node:
    """One session inside a draft: a fork of its state, and its ids read through."""

    def __init__(self, base: Session, entropy: bytes) -> None:
        self.base = base
        self.id = base.id
        self.state = base.state.fork()
        self.entropy = blake2b(base.id.encode(), key=entropy[:64]).digest()  # no two sessions mint the same id
        self.known: ChainMap[str, Known] = ChainMap({}, base.known)
        self.used: ChainMap[str, bool] = ChainMap({}, base.used)
        self.clock = base.state.clock
        # what this draft adds to the transcript, where handlers ask for it
        self.texts: dict[PartId, list[str]] = {}
        self.calls: dict[str, ToolCall] = {}
        self.users: dict[MessageId, Content] = {}
        self.ends: dict[StepId, str] = {}
        self.refs: ChainMap[str, Refs] = ChainMap({}, base.transcript.refs)
        self.children: ChainMap[SessionId, Child] = ChainMap({}, base.transcript.children)

    @property
    def info(self) -> SessionInfo:
        if self.state.info is None:
            raise NotFound(f"Session not found: {self.id}", session_id=self.id)
        return self.state.info

    def text_of(self, part_id: PartId) -> str:
        stored = self.base.transcript.part(part_id)
        before = stored.text if isinstance(stored, TextPart) else ""
        return before + "".join(self.texts.get(part_id, ()))

    def last_of(self, step_id: StepId) -> str:
        """The greatest part id of a step, which may have ended."""
        if self.state.step is not None and self.state.step.id == step_id:
            return self.state.last_part
        stored = self.base.transcript.step(step_id)
        told = [stored.step.end_part or "", *(part.part_id for part in stored.parts)] if stored is not None else []
        return max([*told, self.ends.get(step_id, "")])

    def user(self, message_id: MessageId) -> Content:
        """The content of a delivered message."""
        if message_id in self.users:
            return self.users[message_id]
        stored = self.base.transcript.user(message_id)
        return stored.content if stored is not None else ()

    def tool(self, call_id: str) -> ToolCall | None:
        """The newest tool call of this name, of whatever turn."""
        found = self.state.tools.get(call_id) or self.calls.get(call_id)
        if found is None and "tool " + call_id in self.used:
            found = self.base.transcript.tool(call_id)
        return found


class Draft:
    """Where handlers work: ``emit`` records an event and applies it to the draft, ``do`` adds an effect."""

    def __init__(
        self,
        root_id: SessionId,
        sessions: Mapping[SessionId, Session],
        by_agent: Mapping[str, SessionId],
        policy: Policy,
        now: int,
        entropy: bytes,
        taken: frozenset[str] = frozenset(),
    ) -> None:
        self.sessions = sessions
        self.root_id = root_id
        self.policy = policy
        self.now = now
        self.entropy = entropy
        self.taken = taken
        self.by: By | None = None
        self.nodes: dict[SessionId, Node] = {}
        self.by_agent = dict(by_agent)
        self._by_agent = by_agent
        self.records: list[ev.Record] = []
        self.effects: list[AnyEffect] = []

    @property
    def root(self) -> Node:
        return self.node(self.root_id)

    def node(self, session_id: SessionId) -> Node:
        node = self.nodes.get(session_id)
        if node is None:
            base = self.sessions.get(session_id)
            if base is None:
                raise NotFound(f"Session not found: {session_id}", session_id=session_id)
            node = self.nodes[session_id] = Node(base, self.entropy)
        return node

    def new_node(self, session_id: SessionId) -> Node:
        """A session that begins in this draft."""
        node = self.nodes[session_id] = Node(Session(session_id), self.entropy)
        return node

    def all_nodes(self) -> list[Node]:
        """Root first, then children, also those that begin in this draft."""
        for session_id in self.sessions:
            self.node(session_id)
        return sorted(self.nodes.values(), key=lambda node: node.id != self.root_id)

    def of_agent(self, agent_session: str) -> Node:
        """The session that the agent calls so; the root for the empty name. NotFound for a stranger."""
        if not agent_session:
            return self.root
        session_id = self.by_agent.get(agent_session)
        if session_id is None:
            raise NotFound(f"the agent speaks of a session that it did not announce: {agent_session}")
        return self.node(session_id)

    # --- what happened ------------------------------------------------------------------------------------------

    def emit(self, node: Node, event: ev.Event) -> None:
        seq = 0 if isinstance(event, ev.EPHEMERAL) else node.state.seq + 1
        node.clock = max(node.clock, node.state.clock)
        record = ev.Record(node.id, seq, self.now, node.clock, event, self.by)
        self._apply(node, record)
        self.records.append(record)

    def _apply(self, node: Node, record: ev.Record) -> None:
        apply(node.state, node.known, node.used, record)
        event = record.event
        if isinstance(event, ev.TextDelta):
            node.texts.setdefault(event.part_id, []).append(event.text)
        elif isinstance(event, ev.ToolUpdated):
            node.calls[event.call.call_id] = event.call
        elif isinstance(event, ev.StepEnded):
            node.ends[event.step.id] = event.step.end_part or ""
        elif isinstance(event, ev.MessageReplaced):
            for part in event.parts:
                node.ends[part.step_id] = max(node.ends.get(part.step_id, ""), part.part_id)
        elif isinstance(event, ev.MessageDelivered):
            node.users[event.message.id] = event.message.content
        elif isinstance(event, ev.MessageRefs):
            node.refs[event.message_id] = event.refs
        elif isinstance(event, ev.ChildUpdated):
            node.children[event.child.session_id] = event.child
        elif isinstance(event, ev.SessionCreated) and event.info.agent_session and event.info.parent_id:
            self.by_agent[event.info.agent_session] = event.info.id

    def do(self, effect: AnyEffect) -> None:
        self.effects.append(effect)

    def rewound(self, records: int, effects: int) -> "Draft":
        """This draft as it was when it had so many records and effects."""
        fresh = Draft(self.root_id, self.sessions, self._by_agent, self.policy, self.now, self.entropy, self.taken)
        for record in self.records[:records]:
            event = record.event
            begins = isinstance(event, ev.SessionCreated) and record.session_id not in self.sessions
            node = fresh.new_node(record.session_id) if begins else fresh.node(record.session_id)
            node.clock = max(node.clock, record.clock)
            fresh._apply(node, record)
            fresh.records.append(record)
        fresh.effects = self.effects[:effects]
        return fresh

    # --- ids and times ------------------------------------------------------------------------------------------

    def _tick(self, node: Node) -> int:
        node.clock = ids.next_clock(max(node.clock, node.state.clock), self.now)
        return node.clock

    def mint(self, node: Node, prefix: str) -> str:
        while True:
            value = ids.ascending(prefix, self._tick(node), node.entropy)
            if value not in self.taken and value not in node.used:
                return value

    def message_id(self, node: Node) -> MessageId:
        return MessageId(self.mint(node, "msg"))

    def step_id(self, node: Node) -> StepId:
        return StepId(self.mint(node, "msg"))

    def turn_id(self, node: Node) -> TurnId:
        return TurnId(self.mint(node, "trn"))

    def offer_id(self, node: Node) -> OfferId:
        return OfferId(self.mint(node, "off"))

    def request_id(self, node: Node, prefix: str) -> RequestId:
        return RequestId(self.mint(node, prefix))

    def session_id(self, node: Node) -> SessionId:
        """The id of a child session, minted by its parent."""
        return SessionId(ids.descending("ses", self._tick(node), node.entropy))

    def part_id(self, node: Node, last: str | None = None) -> PartId:
        """A part id that sorts after the last one of the open step (``last``), also over the wrap of 48 bits."""
        value = self.mint(node, "prt")
        last = node.state.last_part if last is None else last
        return PartId(ids.after(last, value) if last else value)

    def created(self, node: Node) -> int:
        """A time for the list: now, but strictly later than every other in the session."""
        return max(self.now, node.state.last_created + 1)


def root_session_id(now: int, entropy: bytes) -> SessionId:
    """The id of a new root session: there is no session yet whose clock could be asked."""
    return SessionId(ids.descending("ses", ids.next_clock(0, now), entropy))
