"""One handler for each fact about what the agent says: text, plans, children, replays (tools: ``on_tools``)."""

from collections.abc import Sequence

import msgspec

from gateway.core import events as ev
from gateway.core import flow, on_tools
from gateway.core.content import Block, Content, Text
from gateway.core.ids import MessageId, PartId, StepId
from gateway.core.inputs import (
    UNSET,
    AgentBackground,
    AgentBlock,
    AgentChild,
    AgentCommands,
    AgentConfig,
    AgentFact,
    AgentMessage,
    AgentMode,
    AgentPlan,
    AgentRefs,
    AgentText,
    AgentTitle,
    AgentTool,
    AgentUnknown,
    AgentUsage,
    AgentUser,
    Replayed,
)
from gateway.core.model import (
    Child,
    Refs,
    Role,
    SessionInfo,
    Step,
    UserMessage,
)
from gateway.core.session import Draft, Node
from gateway.core.state import message_key
from gateway.core.turn import TurnState


def handle(d: Draft, fact: AgentFact) -> None:
    node = d.of_agent(fact.agent_session)
    match fact:
        case AgentText():
            text(d, node, fact)
        case AgentBlock():
            block(d, node, fact.role, fact.block, fact.agent_id, fact)
        case AgentMessage():
            message(d, node, fact.role, fact.agent_id, fact.content, fact)
        case AgentUser():
            user(d, node, fact)
        case AgentTool():
            on_tools.tool(d, node, fact)
        case AgentRefs():
            refs(d, node, fact)
        case AgentChild():
            child(d, node, fact)
        case AgentPlan():
            d.emit(node, ev.PlanUpdated(fact.entries, fact.plan_id, fact.source))
        case AgentUsage():
            d.emit(node, ev.UsageUpdated(fact.used, fact.size, fact.cost, fact.source))
        case AgentMode():
            modes = None if fact.modes is UNSET else fact.modes
            d.emit(node, ev.ModesUpdated(fact.mode, modes, fact.source))
            flow.replace_info(d, node, mode=fact.mode)
        case AgentConfig():
            d.emit(node, ev.ConfigUpdated(fact.options, fact.source))
            changes = {"model": fact.model, "mode": fact.mode}
            flow.replace_info(d, node, **{k: v for k, v in changes.items() if v is not UNSET})
        case AgentCommands():
            d.emit(node, ev.CommandsUpdated(fact.commands, fact.source))
        case AgentBackground():
            if fact.items != node.state.background:
                d.emit(node, ev.BackgroundUpdated(fact.items))
        case AgentTitle():
            if not node.info.named:
                flow.replace_info(d, node, fact.source, title=fact.title)
        case AgentUnknown():
            d.emit(node, ev.AgentUpdated(fact.kind, fact.raw, fact.source))
        case Replayed():
            replayed(d, node, fact)
        case _:
            raise AssertionError(f"no handler for {type(fact).__name__}")


# --- messages --------------------------------------------------------------------------------------------------------


def text(d: Draft, node: Node, fact: AgentText) -> None:
    part = node.state.part
    if part is None or part.role != fact.role or (fact.agent_id and fact.agent_id != part.agent_id):
        at = place(d, node, fact.role, fact.agent_id)
        created = d.created(node)
        opened = ev.PartOpened(
            at.part_id,
            at.message_id,
            at.step.id,
            at.step.turn_id,
            fact.role,
            created,
            at.first,
            at.agent_id,
            at.ordinal,
        )
        d.emit(node, opened)
        part = node.state.part
        assert part is not None
    if fact.text:
        d.emit(node, ev.TextDelta(part.part_id, part.message_id, part.step_id, part.role, fact.text, fact.source))


def block(d: Draft, node: Node, role: Role, value: Block, agent_id: str, fact: AgentFact) -> None:
    at = place(d, node, role, agent_id)
    created = d.created(node)
    event = ev.BlockAdded(
        at.part_id,
        at.message_id,
        at.step.id,
        at.step.turn_id,
        role,
        created,
        value,
        at.first,
        at.agent_id,
        fact.source,
        at.ordinal,
    )
    d.emit(node, event)


class Place(msgspec.Struct, frozen=True):
    """Where a new stretch of a message goes. ``first``: it is the message's first part."""

    message_id: str
    step: Step
    part_id: PartId
    first: bool
    agent_id: str
    ordinal: int


def place(d: Draft, node: Node, role: Role, agent_id: str) -> Place:
    """Find the message and the step of a new stretch.

    The agent's id is the message's id. One that was last seen before the previous turn is another message's (some
    agents' counters restart), so it gets a minted id. Without an id the message goes on until another role speaks or
    the step ends. A step takes the id of the message that opens it, if that has the right form and nothing in the
    session has it.
    """
    flow.close_part(d, node)
    state = node.state
    opens = state.step is None or state.after_tool
    message_id: str | None = None
    ordinal = 1
    fresh = False  # the agent's own id, for the first time
    speaking = state.speaking
    if not agent_id and speaking is not None and speaking.role == role:
        agent_id = speaking.agent_id
        if not agent_id:
            message_id, ordinal = speaking.message_id, speaking.ordinal + 1
    if agent_id:
        recent = state.recent.get(message_key(role, agent_id))
        if recent is not None and recent.turn_no >= state.turn_no - 1:
            message_id, ordinal = recent.message_id, recent.count + 1
        elif message_key(role, agent_id) not in node.used:
            message_id, fresh = agent_id, True
    if opens:
        usable = fresh and agent_id.startswith("msg_") and agent_id not in node.used and agent_id not in d.taken
        step_id = flow.start_step(d, node, StepId(agent_id) if usable else None)
        if message_id is None:
            message_id = step_id
    step = state.step
    assert step is not None
    if message_id is None:
        message_id = d.message_id(node)
    return Place(message_id, step, d.part_id(node), ordinal == 1, agent_id, ordinal)


def message(d: Draft, node: Node, role: Role, agent_id: str, content: Content, fact: AgentFact) -> None:
    """A message's whole content (ACP v2): what it had is replaced."""
    recent = node.state.recent.get(message_key(role, agent_id))
    if recent is None or recent.turn_no < node.state.turn_no - 1 or not recent.parts:
        for each in content:
            if isinstance(each, Text):
                text(d, node, AgentText(role=role, text=each.text, agent_id=agent_id, source=fact.source))
                flow.close_part(d, node)
            else:
                block(d, node, role, each, agent_id, fact)
        return
    part = node.state.part
    if part is not None and part.role == role and part.message_id == recent.message_id:
        flow.close_part(d, node)
    first_id, step_id, created = recent.parts[0]
    parts: list[ev.ReplacedPart] = []
    last = node.last_of(step_id)
    for index, each in enumerate(content):
        part_id = first_id if index == 0 else d.part_id(node, last=last)
        last = max(last, part_id)
        if isinstance(each, Text):
            parts.append(ev.ReplacedPart(part_id, step_id, created, each.text))
        else:
            parts.append(ev.ReplacedPart(part_id, step_id, created, block=each))
    dropped = tuple(part_id for part_id, _, _ in recent.parts)
    steps = tuple(step_id for _, step_id, _ in recent.parts)
    d.emit(node, ev.MessageReplaced(recent.message_id, role, dropped, tuple(parts), fact.source, steps))


def user(d: Draft, node: Node, fact: AgentUser) -> None:
    """A user's message as the agent tells it: ours (its id becomes an alias), or one that came in elsewhere."""
    if fact.agent_id and "user " + fact.agent_id in node.used:
        return
    if fact.offer_id is not None:  # of the prompt that the agent just took, whatever it made of its words
        if fact.offer_id == node.state.prompt_offer and node.state.unnamed:
            d.emit(node, ev.MessageAliased(node.state.unnamed[0], fact.agent_id))
        return
    if fact.content and all(block in node.state.context for block in fact.content):
        return  # an echo of what we told it beside the message
    for ours in node.state.unnamed:
        if node.user(ours)[: len(fact.content)] == fact.content:  # perhaps a block at a time: the first names it
            if fact.agent_id:
                d.emit(node, ev.MessageAliased(ours, fact.agent_id))
            return
    imported(d, node, fact)


def imported(d: Draft, node: Node, fact: AgentUser) -> None:
    flow.end_step(d, node)
    usable = fact.agent_id and fact.agent_id not in node.used and fact.agent_id not in d.taken
    own = MessageId(fact.agent_id) if usable else d.message_id(node)
    ascending = own if own.startswith("msg_") else d.message_id(node)
    parts = flow.parts_for(d, node, len(fact.content))
    turn_id = flow.turn_of(node)
    d.emit(
        node,
        ev.MessageDelivered(UserMessage(own, fact.content, parts, ascending, d.created(node), turn_id, "imported")),
    )
    if fact.agent_id:
        d.emit(node, ev.MessageAliased(own, fact.agent_id))
    flow.place_pending(d, node)


def refs(d: Draft, node: Node, fact: AgentRefs) -> None:
    known = node.refs.get(fact.agent_id, Refs())
    told = {k: v for k, v in msgspec.structs.asdict(fact.refs).items() if v}
    d.emit(node, ev.MessageRefs(fact.agent_id, msgspec.structs.replace(known, **told), fact.source))
    if fact.content is not UNSET and not isinstance(fact.content, msgspec.UnsetType):
        message(d, node, "session", fact.agent_id, fact.content, fact)


# --- children --------------------------------------------------------------------------------------------------------


def child(d: Draft, parent: Node, fact: AgentChild) -> None:
    session_id = d.by_agent.get(fact.child)
    first = session_id is None
    told = {
        name: getattr(fact, name)
        for name in ("title", "description", "state", "can_cancel", "cwd", "error", "raw")
        if getattr(fact, name) is not UNSET
    }
    if session_id is None:
        session_id = d.session_id(parent)
        node = d.new_node(session_id)
        node.clock = parent.clock
        info = SessionInfo(
            session_id,
            d.root_id,
            told.get("cwd") or parent.info.cwd,
            d.now,
            d.now,
            title=told.get("title") or "",
            agent=parent.info.agent,
            agent_session=fact.child,
            parent_id=parent.id,
            mode=parent.info.mode,
            model=parent.info.model,
            description=told.get("description") or "",
        )
        d.emit(node, ev.SessionCreated(info))
        before = Child(session_id, fact.child)
    else:
        node = d.node(session_id)
        before = parent.children.get(session_id) or Child(session_id, fact.child)
    now = msgspec.structs.replace(before, **told)
    d.emit(parent, ev.ChildUpdated(now, first, fact.source))
    if not first:
        changes = {k: told[k] or "" for k in ("title", "description") if k in told}
        flow.replace_info(d, node, **changes)
    running = node.state.turn is not TurnState.IDLE
    if now.state in ("running", "requires_action") and not running:
        flow.end_step(d, node, "end_turn")
        d.emit(node, ev.TurnStarted(d.turn_id(node), "agent"))
    elif now.state == "idle" and running:
        outcome = fact.outcome if not isinstance(fact.outcome, msgspec.UnsetType) else "end_turn"
        flow.end_turn(d, node, outcome, now.error)


# --- a replay --------------------------------------------------------------------------------------------------------


def replayed(d: Draft, node: Node, fact: Replayed) -> None:
    """The store is the truth: history of ours is not written again, only the agent's ids of user messages are learnt.

    A session without history is filled.
    """
    facts = _merged(fact.facts)
    if node.base.transcript.items or node.state.turn is not TurnState.IDLE:
        ours = list(node.base.transcript.users())
        at = 0
        for item in facts:
            if isinstance(item, AgentUser) and not item.agent_session:
                found = next((i for i in range(at, len(ours)) if ours[i].content == item.content), None)
                if found is not None:
                    at = found + 1
                    if item.agent_id and "user " + item.agent_id not in node.used:
                        d.emit(node, ev.MessageAliased(ours[found].id, item.agent_id))
            elif isinstance(item, AgentChild):
                _retold(d, msgspec.structs.replace(item, state=UNSET, outcome=UNSET, error=UNSET))
            elif isinstance(item, AgentMode | AgentConfig | AgentCommands):
                _retold(d, item)
        return
    for item in facts:
        if isinstance(item, AgentUser) and not item.agent_session:
            _end_replayed(d, node)
            d.emit(node, ev.TurnStarted(d.turn_id(node), "replay"))
            imported(d, node, item)
        else:
            _retold(d, item)
    _end_replayed(d, node)
    for each in d.all_nodes():  # what it told of children is history: live ones are announced again after the replay
        if each is not node and each.base.state.turn is TurnState.IDLE:
            if each.state.turn is not TurnState.IDLE and each.info.parent_id is not None:
                parent = d.node(each.info.parent_id)
                told = msgspec.structs.replace(parent.children[each.id], state="unknown")
                d.emit(parent, ev.ChildUpdated(told))
            flow.end_turn(d, each, "end_turn")
            flow.end_step(d, each, "end_turn")


def _retold(d: Draft, fact: AgentFact) -> None:
    """One fact of a replay. One of a session that was never announced is left out, and not the whole replay."""
    if not fact.agent_session or fact.agent_session in d.by_agent:
        handle(d, fact)


def _end_replayed(d: Draft, node: Node) -> None:
    if node.state.cause == "replay":
        flow.end_turn(d, node, "end_turn")
    else:
        flow.end_step(d, node, "end_turn")


def _merged(facts: Sequence[AgentFact]) -> list[AgentFact]:
    """Adjacent chunks of one user message as one."""
    merged: list[AgentFact] = []
    for fact in facts:
        last = merged[-1] if merged else None
        if (
            isinstance(fact, AgentUser)
            and isinstance(last, AgentUser)
            and last.agent_id == fact.agent_id
            and last.agent_session == fact.agent_session
        ):
            merged[-1] = msgspec.structs.replace(last, content=_joined((*last.content, *fact.content)))
        else:
            merged.append(fact)
    return merged


def _joined(content: Content) -> Content:
    joined: list[Block] = []
    for each in content:
        last = joined[-1] if joined else None
        if isinstance(each, Text) and isinstance(last, Text) and each.meta is None and last.meta is None:
            joined[-1] = Text(last.text + each.text)
        else:
            joined.append(each)
    return tuple(joined)
