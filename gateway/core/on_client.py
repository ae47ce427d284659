"""One handler for each input of a client. A handler checks first and then emits: a refused input changes nothing."""

from typing import Literal, assert_never

import msgspec

from gateway.core import events as ev
from gateway.core import flow, inbox, on_command
from gateway.core.content import Content, Text, digest
from gateway.core.effects import CancelChild, CancelTurn, ConfigureAgent, StopCommand
from gateway.core.effects import CancelWork as CancelWorkNow
from gateway.core.errors import Busy, ClientError, Conflict, Limit, NotFound, NotRunning, NotSupported
from gateway.core.ids import MessageId, SessionId
from gateway.core.inputs import (
    UNSET,
    Abort,
    Answer,
    CancelWork,
    ClientInput,
    Create,
    Delete,
    Demote,
    Promote,
    Reconcile,
    Replace,
    Revoke,
    RunCommand,
    Submit,
    Update,
    Wake,
)
from gateway.core.model import (
    TOOL_DONE,
    Accepted,
    Answered,
    By,
    Cancelled,
    Declined,
    Delivery,
    OnAbort,
    Pending,
    Question,
    Selected,
)
from gateway.core.replies import Admission, Reconciled, Reply, Settled, Verdict, Wait
from gateway.core.session import Draft, Node
from gateway.core.turn import TurnState


def handle(d: Draft, session_id: SessionId, item: ClientInput) -> Reply:
    node = d.node(session_id)
    if node.info.parent_id is not None and not isinstance(item, Abort | Answer | CancelWork | Update):
        raise ClientError(f"{session_id} is a session of a subagent: send to its parent {node.info.parent_id}")
    match item:
        case Submit():
            message_id, duplicate = submit(d, node, item)
            flow.move(d)
            return admission(node, message_id, duplicate)
        case Reconcile():
            new, edited = reconcile(d, node, item)
            flow.move(d)
            return Reconciled(tuple(admission(node, m, False) for m in new), edited)
        case RunCommand():
            message_id, duplicate = on_command.run(d, node, item)
            return admission(node, message_id, duplicate)
        case Revoke():
            reply: Reply = revoke(d, node, item)
        case Replace():
            reply = replace(d, node, item)
        case Promote():
            reply = promote(d, node, item)
        case Demote():
            reply = demote(d, node, item)
        case Abort():
            abort(d, node)
            reply = None
        case Answer():
            reply = answer(d, node, item)
        case CancelWork():
            cancel_work(d, node, item)
            return None
        case Update():
            update(d, node, item)
            reply = node.info
        case Delete():
            for each in d.all_nodes():
                flow.cancel_requests(d, each, "deleted")
            for each in reversed(d.all_nodes()):
                d.emit(each, ev.SessionDeleted(each.info))
            return None
        case Wake():
            if d.root.state.agent == "absent":
                flow.start_agent(d)
            return None
        case Create():
            raise ClientError("a session is created once")
        case _:
            raise AssertionError(f"no handler for {type(item).__name__}")
    flow.move(d)
    return reply


# --- admission -------------------------------------------------------------------------------------------------------


def busy(node: Node) -> bool:
    """In a turn, or about to be: something will go by itself."""
    return node.state.turn is not TurnState.IDLE or any(not m.held for m in node.state.inbox.values())


def admission(node: Node, message_id: MessageId, duplicate: bool) -> Admission:
    known = node.known[message_id]
    entry = node.state.inbox.get(known.id)
    if entry is None:
        fate: Literal["revoked", "delivered"] = "revoked" if known.state == "revoked" else "delivered"
        return Admission(known.id, known.ascending_id, fate, duplicate, known.uncertain)
    where: Literal["pending", "offered", "held"] = "held" if entry.held else entry.state
    return Admission(known.id, known.ascending_id, where, duplicate, entry.uncertain)


def submit(d: Draft, node: Node, item: Submit) -> tuple[MessageId, bool]:
    if not item.content:
        raise ClientError("the message is empty: give at least one content block", field="content")
    if item.message_id == "":
        raise ClientError("the message id is empty: leave it out, or give one", field="message_id")
    mark = digest(item.content, item.delivery)
    if item.message_id is not None:
        known = node.known.get(item.message_id)
        if known is not None:
            if known.digest != mark:
                raise Conflict(
                    f"message id {item.message_id} is known with other content or delivery", message_id=item.message_id
                )
            again(d, node, known.id, item)
            return known.id, True
        if item.message_id in node.used or (item.message_id in d.taken and not item.local_id):
            raise Conflict(f"message id {item.message_id} is in use", message_id=item.message_id)
    state = node.state
    if state.turn is TurnState.IDLE and item.if_idle == "refuse":
        raise NotRunning("no turn is running: there is nothing to steer")
    if item.if_busy == "refuse" and busy(node):
        raise Busy("the session is busy", session_id=node.id)
    if len(state.inbox) >= d.policy.max_pending:
        raise Limit(f"{d.policy.max_pending} messages are pending already: wait, or revoke some")
    held = "stored" if state.turn is TurnState.IDLE and item.if_idle == "store" else ""
    lane = item.delivery
    if item.if_idle == "start" and starts(node) and flow.release_all(d, node):
        lane = "steer"  # first in the next turn, ahead of the held queue
    return admit(d, node, item.content, mark, lane, item.message_id, item.part_ids, item.on_abort, held, item.local_id)


def starts(node: Node) -> bool:
    """Whether a submit now begins the next turn: the session is idle, or an abort is ending its turn."""
    return node.state.turn is TurnState.IDLE or node.state.abort_asked


def again(d: Draft, node: Node, message_id: MessageId, item: Submit) -> None:
    """The same message once more. A held one is started by it, also an uncertain one: a person wants it sent."""
    entry = node.state.inbox.get(message_id)
    if entry is None or item.if_idle != "start" or not (entry.held or entry.returning == "hold"):
        return
    d.emit(node, ev.MessageReleased(message_id))
    if starts(node) and flow.release_all(d, node) and entry.lane == "queue":
        d.emit(node, ev.MessagePromoted(message_id, node.state.place + 1))  # as any other that is submitted now


def admit(
    d: Draft,
    node: Node,
    content: Content,
    mark: str,
    lane: Delivery,
    message_id: MessageId | None,
    part_ids: tuple[str, ...],
    on_abort: OnAbort,
    held: str,
    local: bool,
    group: MessageId | None = None,
) -> tuple[MessageId, bool]:
    own = message_id if message_id is not None else d.message_id(node)
    ascending = own if own.startswith("msg") and not local else d.message_id(node)
    message = Pending(
        own,
        content,
        flow.parts_for(d, node, len(content), part_ids),
        ascending,
        lane,
        node.state.place + 1,
        d.created(node),
        group or own,
        on_abort,
        by=d.by or By(),
        held=held,
    )
    d.emit(node, ev.MessageAdmitted(message, mark, local))
    return own, False


def reconcile(d: Draft, node: Node, item: Reconcile) -> tuple[list[MessageId], bool]:
    given = {message_id for message_id, _ in item.messages}
    new = [(message_id, content) for message_id, content in item.messages if message_id not in node.known]
    edited = any(k.state == "delivered" and k.id not in given for k in node.known.values() if k.digest)
    if not new:
        return [], edited
    if item.if_busy == "refuse" and busy(node):
        raise Busy("the session is busy", session_id=node.id)
    if len(node.state.inbox) + len(new) > d.policy.max_pending:
        raise Limit(f"at most {d.policy.max_pending} messages may be pending")
    if any(not content for _, content in new):
        raise ClientError("a message is empty: give at least one content block", field="messages")
    if any(not message_id for message_id, _ in new):
        raise ClientError("a message has no id", field="messages")
    lane = item.delivery
    if starts(node) and flow.release_all(d, node):
        lane = "steer"
    admitted: list[MessageId] = []
    for message_id, content in new:
        if message_id in node.known:
            continue  # twice in one history
        group = admitted[0] if admitted else None
        mark = digest(content, item.delivery)
        admit(d, node, content, mark, lane, message_id, (), item.on_abort, "", True, group)
        admitted.append(message_id)
    return admitted, edited


# --- while a message is not delivered --------------------------------------------------------------------------------


def entry_of(node: Node, message_id: MessageId) -> Pending | Verdict:
    """The inbox entry, or what to answer when there is none."""
    known = node.known.get(message_id)
    if known is None:
        return Verdict("unknown", message_id)
    entry = node.state.inbox.get(known.id)
    if entry is not None:
        return entry
    if known.state == "revoked":
        return Verdict("revoked", known.id, known.uncertain)
    return Verdict("already_delivered", known.id, known.uncertain)


def revoke(d: Draft, node: Node, item: Revoke) -> Verdict | Wait:
    entry = entry_of(node, item.message_id)
    if isinstance(entry, Verdict):
        return entry
    if entry.state == "offered":
        return question(d, node, entry, None)
    flow.revoke(d, node, entry)
    return Verdict("revoked", entry.id, entry.uncertain)


def replace(d: Draft, node: Node, item: Replace) -> Verdict | Wait:
    if not item.content:
        raise ClientError("the message is empty: give at least one content block", field="content")
    entry = entry_of(node, item.message_id)
    if isinstance(entry, Verdict):
        return entry
    if entry.state == "offered":
        return question(d, node, entry, item.content)
    parts = flow.parts_for(d, node, len(item.content), entry.part_ids)
    flow.replace_pending(d, node, entry, item.content, parts)
    return Verdict("replaced", entry.id, entry.uncertain)


def question(d: Draft, node: Node, entry: Pending, content: Content | None) -> Wait:
    """Ask the agent, or after the questions before this one: one outstanding question a message."""
    number = node.state.question + 1
    if content is None:
        wish = Question(number, "revoke")
    else:
        wish = Question(number, "replace", content, flow.parts_for(d, node, len(content), entry.part_ids))
    waiting = flow.outstanding(entry) is not None
    d.emit(node, ev.QuestionAsked(entry.id, wish))
    if not waiting:
        flow.ask_withdraw(d, node, entry.id)
    return Wait(entry.id, number)


def promote(d: Draft, node: Node, item: Promote) -> Verdict:
    entry = entry_of(node, item.message_id)
    if isinstance(entry, Verdict):
        return entry
    if entry.lane == "queue":  # an offered one too: should it come back, it is a steer
        d.emit(node, ev.MessagePromoted(entry.id, node.state.place + 1))
    return Verdict("promoted", entry.id, entry.uncertain)


def demote(d: Draft, node: Node, item: Demote) -> Verdict:
    entry = entry_of(node, item.message_id)
    if isinstance(entry, Verdict):
        return entry
    if entry.state == "offered":
        raise Conflict(f"{entry.id} is on its way to the agent: revoke it instead", message_id=entry.id)
    if entry.lane == "steer":
        d.emit(node, ev.MessageDemoted(entry.id, node.state.place + 1))
    return Verdict("demoted", entry.id, entry.uncertain)


# --- the turn --------------------------------------------------------------------------------------------------------


def abort(d: Draft, node: Node) -> None:
    if node.id != d.root_id:
        parent = d.node(node.info.parent_id or d.root_id)
        child = parent.children.get(node.id)
        if child is None or not child.can_cancel:
            raise NotSupported("the agent does not offer to cancel this subagent: abort its parent session")
        flow.cancel_requests(d, node, "abort")
        d.do(CancelChild(node.info.agent_session))
        return
    state = node.state
    entries = inbox.in_order(state)
    loose = [m for m in entries if m.state == "pending" and not m.held and m.on_abort != "keep"]
    offered = tuple(m.id for m in entries if m.state == "offered" and m.on_abort != "keep" and not m.returning)
    running, command = state.turn_id is not None, state.cause == "command"
    asked = any(each.state.requests for each in d.all_nodes())
    # in a turn the agent passes its cancel on; a child that works on after it has to be told itself
    children = [each for each in d.all_nodes() if each is not node and each.state.turn_id is not None]
    alone = [] if running and not command else children
    if not loose and not offered and not asked and not alone and (not running or state.abort_asked):
        return
    d.emit(node, ev.AbortAsked(state.turn_id, offered))
    for each in d.all_nodes():
        flow.cancel_requests(d, each, "abort")
    if running and state.turn_id is not None:
        was = state.turn
        d.emit(node, ev.TurnCancelling(state.turn_id, "abort"))
        if command:
            d.do(StopCommand(state.turn_id))
        elif was is TurnState.RUNNING:
            d.do(CancelTurn(state.turn_id))
    for each in alone:
        parent = d.node(each.info.parent_id or d.root_id)
        if parent.children[each.id].can_cancel:
            d.do(CancelChild(each.info.agent_session))
    for message in loose:
        if message.on_abort == "revoke":
            flow.revoke(d, node, message)
        else:
            d.emit(node, ev.MessageHeld(message.id, "abort"))


def cancel_work(d: Draft, node: Node, item: CancelWork) -> None:
    """Pass it on. Of terminals the core knows nothing: the adapter that shows them checks."""
    if d.root.state.agent != "ready":
        raise NotRunning("the agent is not running: there is nothing to cancel")
    if item.kind == "tool_call":
        call = node.tool(item.id)
        if call is None:
            raise NotFound(f"no such tool call: {item.id}", tool_call_id=item.id)
        if not call.can_cancel or call.status in TOOL_DONE:
            raise NotSupported(f"the agent does not offer to cancel {item.id}: abort the turn", tool_call_id=item.id)
    d.do(CancelWorkNow(node.info.agent_session if node.info.parent_id else "", item.kind, item.id))


def answer(d: Draft, node: Node, item: Answer) -> Settled:
    request = node.state.requests.get(item.request_id)
    if request is None:
        before = node.state.settled.get(item.request_id)
        if before is None:
            raise NotFound(f"no such request: {item.request_id}", request_id=item.request_id)
        kind = node.state.settled_kinds.get(item.request_id, "")
        return Settled(item.request_id, before, first=False, option_kind=kind)
    outcome: Answered = item.outcome
    match outcome:
        case Selected(option_id=option_id):
            if request.kind != "permission" or option_id not in [o.id for o in request.options]:
                offered = ", ".join(o.id for o in request.options) or "none"
                raise ClientError(f"{option_id!r} is not an option of this request (options: {offered})")
        case Accepted():
            if request.kind != "elicitation":
                raise ClientError("a permission is answered with one of its options")
        case Declined(message=message) if request.kind == "permission":
            # no word of ACP means "declined" here: the agent's own way to say no, else cancelled
            kinds = {o.kind: o.id for o in reversed(request.options)}
            option = kinds.get("reject_once") or kinds.get("reject_always")
            outcome = Selected(option, message) if option else Cancelled("declined")
        case Declined() | Cancelled():
            pass
        case _:
            assert_never(outcome)
    flow.settle(d, node, request, outcome)
    if isinstance(outcome, Selected) and outcome.message and not d.root.state.hears:
        # the agent is told the option alone: the word goes as a message, as soon as the agent can take it
        said = (Text(outcome.message),)
        admit(d, d.root, said, digest(said, "steer"), "steer", None, (), "hold", "", False)
    return Settled(request.id, outcome, first=True)


# --- the session -----------------------------------------------------------------------------------------------------


def update(d: Draft, node: Node, item: Update) -> None:
    info = node.info
    changes: dict[str, object] = {}
    if item.agent is not UNSET and item.agent != info.agent:
        if info.agent:
            raise Conflict(
                f"this session is bound to the agent {info.agent!r}: open another session for {item.agent!r}",
                agent=info.agent,
            )
        changes["agent"] = item.agent
    if item.title is not UNSET:
        changes.update(title=item.title, named=bool(item.title))
    for name in ("archived", "meta"):
        value = getattr(item, name)
        if value is not UNSET:
            changes[name] = value
    if item.mode is not UNSET:
        changes["asked_mode"] = item.mode
    if item.model is not UNSET:
        changes["asked_model"] = item.model
    ready = node.state.agent == "ready"
    if item.config is not UNSET and not ready:
        raise Conflict("the agent is not running: its options can be set once it is")
    # until the agent says otherwise, what was asked for is shown
    if not ready:
        changes |= {k.removeprefix("asked_"): v for k, v in changes.items() if k.startswith("asked_")}
    flow.replace_info(d, node, **changes)
    if ready:
        flow.configure(d, node)
        if item.config is not UNSET and not isinstance(item.config, msgspec.UnsetType):
            d.do(ConfigureAgent(config=item.config))
