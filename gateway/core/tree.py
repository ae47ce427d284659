"""The tree of a root session and its children: what one lock guards. ``decide`` changes nothing, ``apply`` only by
events that are stored (the durable ones) or decided (the ephemeral ones).
"""

from collections.abc import Sequence

import msgspec

from gateway.core import events as ev
from gateway.core import ids, on_agent, on_client, on_speech
from gateway.core.effects import AnyEffect
from gateway.core.errors import ClientError, GatewayError, NotFound
from gateway.core.ids import SessionId
from gateway.core.inputs import AgentFact, AgentText, ClientInput, Create, Input, Replayed
from gateway.core.model import Pending, SessionInfo
from gateway.core.replies import Reply
from gateway.core.session import Draft, Policy, Session, root_session_id
from gateway.core.turn import TurnState


class Decision(msgspec.Struct, frozen=True):
    """``replies``: one an input, in order: a reply, or the error that the input was refused with."""

    records: tuple[ev.Record, ...]
    effects: tuple[AnyEffect, ...]
    replies: tuple[Reply | GatewayError, ...]
    busy: bool = False  # afterwards something is open, or will begin by itself: a restart has to look at it

    @property
    def durable(self) -> tuple[ev.Record, ...]:
        return tuple(r for r in self.records if r.seq)


class Tree:
    """A root session and its children: what one lock guards."""

    def __init__(self, root_id: SessionId, policy: Policy = Policy()) -> None:
        self.root_id = root_id
        self.policy = policy
        self.sessions: dict[SessionId, Session] = {}
        self.by_agent: dict[str, SessionId] = {}

    @classmethod
    def of(cls, sessions: Sequence[Session], policy: Policy = Policy()) -> "Tree":
        """A tree from loaded sessions, root first."""
        tree = cls(sessions[0].id, policy)
        for session in sessions:
            tree.sessions[session.id] = session
            if session.info.parent_id and session.info.agent_session:
                tree.by_agent[session.info.agent_session] = session.id
        return tree

    @property
    def root(self) -> Session:
        return self.sessions[self.root_id]

    def continuing(self, item: Input, now: int) -> ev.Record | None:
        """The hot path: more text of a part that is open already. Decides without a draft; None if it is not that."""
        if type(item) is not AgentText:
            return None
        session_id = self.by_agent.get(item.agent_session) if item.agent_session else self.root_id
        session = self.sessions.get(session_id) if session_id is not None else None
        if session is None or session.state.deleted or not item.text:
            return None
        part = session.state.part
        if part is None or part.role != item.role or (item.agent_id and item.agent_id != part.agent_id):
            return None
        event = ev.TextDelta(part.part_id, part.message_id, part.step_id, part.role, item.text, item.source)
        return ev.Record(session.id, 0, now, session.state.clock, event)

    def decide(
        self,
        inputs: Sequence[tuple[SessionId, Input]],
        now: int,
        entropy: bytes,
        taken: frozenset[str] = frozenset(),
    ) -> Decision:
        """Decide some inputs, in order, each on what the ones before it left. Changes nothing.

        ``now`` is in milliseconds, ``entropy`` at least 16 random bytes, ``taken`` the ids that the store said belong
        to others. A refused input's reply is its error, and it leaves nothing behind.
        """
        draft, hot, replies = self.draft(inputs, now, entropy, taken)
        if draft is None:
            return Decision(tuple(hot), (), tuple(replies), True)
        return Decision(tuple(draft.records), tuple(draft.effects), tuple(replies), self._busy(draft))

    def draft(
        self, inputs: Sequence[tuple[SessionId, Input]], now: int, entropy: bytes, taken: frozenset[str] = frozenset()
    ) -> tuple[Draft | None, list[ev.Record], list[Reply | GatewayError]]:
        """The work of ``decide``: the draft (None where all was more text), more text before it, the replies."""
        draft: Draft | None = None
        hot: list[ev.Record] = []
        replies: list[Reply | GatewayError] = []
        for session_id, item in inputs:
            if draft is None:
                record = self.continuing(item, now)
                if record is not None:
                    hot.append(record)
                    replies.append(None)
                    continue
                draft = Draft(self.root_id, self.sessions, self.by_agent, self.policy, now, entropy, taken)
                for record in hot:
                    draft._apply(draft.node(record.session_id), record)
                    draft.records.append(record)
            records, effects = len(draft.records), len(draft.effects)
            draft.by = item.by if isinstance(item, ClientInput) else None
            try:
                if draft.root.state.deleted:
                    raise NotFound(f"Session not found: {self.root_id}", session_id=self.root_id)
                if isinstance(item, AgentFact):
                    on_agent.handle(draft, item)
                    replies.append(None)
                elif isinstance(item, ClientInput):
                    replies.append(on_client.handle(draft, session_id, item))
                else:
                    on_agent.handle_gateway(draft, item)
                    replies.append(None)
            except GatewayError as error:
                replies.append(error)
                draft = draft.rewound(records, effects)
        return draft, hot, replies

    def _busy(self, draft: Draft) -> bool:
        states = [draft.nodes[i].state if i in draft.nodes else s.state for i, s in self.sessions.items()]
        states += [node.state for i, node in draft.nodes.items() if i not in self.sessions]
        return any(
            s.turn is not TurnState.IDLE
            or s.step is not None
            or s.offers
            or s.requests
            or s.background
            or any(not m.held for m in s.inbox.values())
            for s in states
            if not s.deleted
        )

    def apply(self, records: Sequence[ev.Record]) -> None:
        """Change by decided (and, the durable ones, stored) events."""
        for record in records:
            session = self.sessions.get(record.session_id)
            if session is None:
                session = self.sessions[record.session_id] = Session(record.session_id)
                info = record.event.info if isinstance(record.event, ev.SessionCreated) else None
                if info is not None and info.parent_id and info.agent_session:
                    self.by_agent[info.agent_session] = info.id
            session.apply(record)

    @property
    def busy(self) -> bool:
        """As ``Decision.busy``, of the tree as it stands."""
        return self._busy(Draft(self.root_id, {}, {}, self.policy, 0, b""))

    def context(self, record: ev.Record) -> tuple[SessionInfo, Pending | None]:
        """What stands beside an event in the log: the session's info, and the pending message it is about."""
        session = self.sessions[record.session_id]
        message_id = getattr(record.event, "message_id", None)
        return session.info, session.state.inbox.get(message_id) if message_id else None


def create(wish: Create, now: int, entropy: bytes, policy: Policy = Policy()) -> tuple[Tree, Decision]:
    """A new session: an empty tree and the decision that fills it."""
    session_id = wish.session_id or root_session_id(now, entropy)
    if not wish.cwd.startswith("/"):
        raise ClientError(f"cwd must be an absolute path, got {wish.cwd!r}", field="cwd")
    tree = Tree(session_id, policy)
    # the ids of the agent stay those of its messages; as ids of steps the first session has them
    taken = frozenset(getattr(fact, "agent_id", "") for fact in wish.history)
    draft = Draft(session_id, {}, {}, policy, now, entropy, taken)
    node = draft.new_node(session_id)
    node.clock = ids.next_clock(0, now)
    draft.by = wish.by
    info = SessionInfo(
        session_id,
        session_id,
        wish.cwd,
        now,
        now,
        title=wish.title,
        named=bool(wish.title),
        agent=wish.agent,
        mode=wish.mode,
        model=wish.model,
        asked_mode=wish.mode,
        asked_model=wish.model,
        mcp_servers=wish.mcp_servers,
        meta=wish.meta,
        fork_of=wish.fork_of,
    )
    draft.emit(node, ev.SessionCreated(info))
    if wish.history:
        on_speech.handle(draft, Replayed(facts=wish.history))
    return tree, Decision(tuple(draft.records), (), (node.info,))


def claims(records: Sequence[ev.Record]) -> tuple[tuple[str, SessionId], ...]:
    """The ids that these events take for the whole gateway: of user messages (as OpenCode knows them) and steps."""
    found: list[tuple[str, SessionId]] = []
    for record in records:
        match record.event:
            case ev.MessageAdmitted(message=message):
                found.append((message.ascending_id, record.session_id))
            case ev.MessageDelivered(message=user) if user.how in ("imported", "command"):
                found.append((user.ascending_id, record.session_id))
            case ev.StepStarted(step=step):
                found.append((step.id, record.session_id))
            case _:
                pass
    return tuple(found)
