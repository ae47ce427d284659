"""What several handlers do in the same way: parts, steps, deliveries, returns, the end of a turn, the next move.

Every function works on a draft: it emits events and adds effects, and assigns no state itself.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from gateway.core import events as ev
from gateway.core import ids, inbox
from gateway.core.content import Content, text_of
from gateway.core.context import context
from gateway.core.effects import (
    AnswerAgent,
    CancelTurn,
    ConfigureAgent,
    OfferPrompt,
    OfferSteer,
    StartAgent,
    Withdraw,
)
from gateway.core.ids import MessageId, PartId, StepId, TurnId
from gateway.core.model import (
    TOOL_DONE,
    Answered,
    Cancelled,
    Error,
    How,
    Outcome,
    Pending,
    Question,
    Request,
    Selected,
    SessionInfo,
    Source,
    Step,
    Tokens,
    UserMessage,
)
from gateway.core.session import Draft, Node
from gateway.core.state import OpenPart
from gateway.core.turn import TurnState

TITLE_LENGTH = 60  # of the title that a session gets from its first message


def replace_info(d: Draft, node: Node, source: Source | None = None, /, **changes: object) -> None:
    """Emit SessionUpdated if anything but the time is different."""
    info: SessionInfo = msgspec.structs.replace(node.info, **changes)
    if info != node.info:
        d.emit(node, ev.SessionUpdated(msgspec.structs.replace(info, updated=max(d.now, info.updated)), source))


# --- parts and steps -------------------------------------------------------------------------------------------------


def close_part(d: Draft, node: Node) -> None:
    part = node.state.part
    if part is not None:
        text = node.text_of(part.part_id)
        end_part(d, node, part, text)


def end_part(d: Draft, node: Node, part: OpenPart, text: str) -> None:
    ended = max(d.now, part.created)
    d.emit(node, ev.PartEnded(part.part_id, part.message_id, part.step_id, part.role, text, part.created, ended))


def end_step(
    d: Draft,
    node: Node,
    outcome: Outcome | Literal["continued"] = "continued",
    error: Error | None = None,
    tokens: Tokens | None = None,
) -> None:
    """End the open part and the open step, if there are any."""
    close_part(d, node)
    step = node.state.step
    if step is not None:
        if outcome == "continued" and step.turn_id != node.state.turn_id:
            outcome = "end_turn"  # what came late, after its turn: no step of that turn follows
        ended = msgspec.structs.replace(
            step,
            completed=max(d.now, step.created),
            end_part=d.part_id(node),
            outcome=outcome,
            error=error,
            tokens=tokens or step.tokens,
        )
        d.emit(node, ev.StepEnded(ended))


def start_step(d: Draft, node: Node, step_id: StepId | None = None) -> StepId:
    """Begin a step (the one before ends); pending messages move behind it in the list."""
    end_step(d, node)
    info = node.info
    step = Step(
        step_id or d.step_id(node),
        turn_of(node),
        d.created(node),
        d.part_id(node, last=""),
        parent_id=node.state.last_user,
        agent=info.agent,
        mode=info.mode,
        model=info.model,
    )
    d.emit(node, ev.StepStarted(step))
    place_pending(d, node)
    return step.id


def place_pending(d: Draft, node: Node) -> None:
    """Show what is not delivered last in the list, in its order."""
    for message in inbox.in_order(node.state):
        d.emit(node, ev.MessagePlaced(message.id, d.created(node)))


def keep_order(d: Draft, node: Node) -> None:
    """A steer that overtook what waits is shown before it: whoever is behind is placed anew."""
    last = 0
    for message in inbox.in_order(node.state):
        if message.created <= last:
            d.emit(node, ev.MessagePlaced(message.id, d.created(node)))
        last = node.state.inbox[message.id].created


def turn_of(node: Node) -> TurnId:
    """The open turn, or the last one: updates that come when none is open belong to it."""
    return node.state.turn_id or node.state.last_turn_id or TurnId("")


# --- messages --------------------------------------------------------------------------------------------------------


def deliver(d: Draft, node: Node, messages: Iterable[Pending], turn_id: TurnId, how: How) -> None:
    """The agent has these messages. What it said before is another step."""
    end_step(d, node)
    for message in messages:
        user = UserMessage(
            message.id,
            message.content,
            message.part_ids,
            message.ascending_id,
            d.created(node),
            turn_id,
            how,
            message.lane,
            message.by,
        )
        d.emit(node, ev.MessageDelivered(user, message.offer_id))
        if not node.info.title:
            title = " ".join(text_of(message.content).split())
            if title:
                cut = title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 1] + "…"
                replace_info(d, node, title=cut)
    place_pending(d, node)


def give_back(
    d: Draft, node: Node, message: Pending, why: Literal["refused", "unwritten", "lost"], turn_id: TurnId
) -> None:
    """An offered message comes back; what was wished of it meanwhile happens now."""
    held = {"refused": "", "unwritten": "unwritten", "lost": "lost"}[why]
    if message.returning == "hold":
        held = held or message.returning_why or "abort"
    d.emit(node, ev.MessageReturned(message.id, why, turn_id, held, uncertain=why == "lost"))
    now_pending = node.state.inbox[message.id]
    for question in now_pending.questions:
        if question.kind == "replace":
            replace_pending(d, node, node.state.inbox[message.id], question.content, question.part_ids, question.number)
        else:
            revoke(d, node, node.state.inbox[message.id])
            return
    if message.returning == "revoke":
        revoke(d, node, node.state.inbox[message.id])


def replace_pending(
    d: Draft, node: Node, message: Pending, content: Content, part_ids: tuple[PartId, ...], question: int = 0
) -> None:
    """Another content, in the same place."""
    dropped = tuple(p for p in message.part_ids if p not in part_ids)
    d.emit(node, ev.PendingReplaced(message.id, content, part_ids, message.created, question, dropped))


def revoke(d: Draft, node: Node, message: Pending) -> None:
    d.emit(node, ev.MessageRevoked(message.id, message.ascending_id, message.uncertain))


def hold_all(d: Draft, node: Node, why: str) -> None:
    """Hold what would go by itself."""
    for message in inbox.in_order(node.state):
        if message.state == "pending" and not message.held:
            d.emit(node, ev.MessageHeld(message.id, why))


def release_all(d: Draft, node: Node) -> bool:
    """Un-hold everything but the uncertain; offered messages forget that they were to be held. Whether any was held.

    One that is to be revoked if it comes back stays so: whoever sent it is told that it was cancelled.
    """
    released = False
    for message in inbox.in_order(node.state):
        if message.uncertain:
            continue
        if message.held or message.returning == "hold":
            d.emit(node, ev.MessageReleased(message.id))
            released = True
    return released


def ask_withdraw(d: Draft, node: Node, message_id: MessageId) -> None:
    """Ask the agent the first open question about an offered message. A prompt being written cannot be withdrawn."""
    message = node.state.inbox[message_id]
    offer = node.state.offers.get(message.offer_id) if message.offer_id else None
    question = outstanding(message)
    if offer is None or question is None or offer.how == "prompt":
        return
    content = question.content if question.kind == "replace" else None
    d.do(Withdraw(offer.id, message_id, question.number, content))


def outstanding(message: Pending) -> Question | None:
    return next((q for q in message.questions if not q.refused), None)


# --- requests --------------------------------------------------------------------------------------------------------


def settle(d: Draft, node: Node, request: Request, outcome: Answered, tell_agent: bool = True) -> None:
    kind = ""
    if isinstance(outcome, Selected):
        kind = next((o.kind for o in request.options if o.id == outcome.option_id), "")
    d.emit(node, ev.RequestSettled(request.id, outcome, request.kind, kind, request.turn_id))
    if tell_agent:
        d.do(AnswerAgent(request.agent_ref, outcome))


def cancel_requests(d: Draft, node: Node, why: str, tell_agent: bool = True) -> None:
    for request in list(node.state.requests.values()):
        settle(d, node, request, Cancelled(why), tell_agent)


# --- the turn --------------------------------------------------------------------------------------------------------


def end_turn(
    d: Draft,
    node: Node,
    outcome: Outcome,
    error: Error | None = None,
    tokens: Tokens | None = None,
    tell_agent: bool = True,
) -> None:
    """Close what is open and end the turn. A prompt that got no word gets an empty step: clients wait for one."""
    state = node.state
    turn_id = state.turn_id
    if turn_id is None:
        return
    cancel_requests(d, node, "turn_ended", tell_agent)
    close_part(d, node)
    if outcome in ("cancelled", "error", "interrupted"):
        for call in list(state.tools.values()):
            if call.status not in TOOL_DONE:
                ended = max(d.now, call.created)
                over = msgspec.structs.replace(call, status="cancelled", ended=ended, told=True, called=True)
                d.emit(node, ev.ToolUpdated(over, result=not call.told, called=not call.called))
    if state.cause != "replay" and not state.answered:
        start_step(d, node)
    end_step(d, node, outcome, error, tokens)
    more = outcome != "error" and any(m.state == "pending" and not m.held for m in state.inbox.values())
    d.emit(node, ev.TurnEnded(turn_id, outcome, error, tokens, more))
    total = node.info.tokens
    if tokens is not None:
        both = zip(msgspec.structs.astuple(total), msgspec.structs.astuple(tokens), strict=True)
        total = Tokens(*(a + b for a, b in both))
    updated = max(d.now, node.info.updated)
    d.emit(node, ev.SessionUpdated(msgspec.structs.replace(node.info, tokens=total, updated=updated)))
    if outcome == "error":  # an expired login must not burn the whole queue
        hold_all(d, node, error.code if error is not None else "agent_error")


def no_background(d: Draft, node: Node) -> None:
    """The agent is gone, and with it what worked on."""
    if node.state.background:
        d.emit(node, ev.BackgroundUpdated(()))


def move(d: Draft) -> None:
    """Do what the delivery decision says."""
    node = d.root
    asking = any(n.state.requests for n in d.all_nodes()) if node.state.turn is TurnState.RUNNING else False
    match inbox.next_move(node.state, d.policy.steer_fallback, asking):
        case inbox.Start():
            start_agent(d)
        case inbox.Prompt(message_ids):
            turn_id, offer_id = d.turn_id(node), d.offer_id(node)
            d.emit(node, ev.TurnStarted(turn_id, "prompt"))
            messages = tuple(node.state.inbox[m] for m in message_ids)
            told = context(node, messages)
            d.emit(node, ev.MessagesOffered(offer_id, message_ids, "prompt", turn_id, told))
            d.do(OfferPrompt(offer_id, turn_id, messages, told))
        case inbox.Steer(message_ids):
            turn_id, offer_id = turn_of(node), d.offer_id(node)
            d.emit(node, ev.MessagesOffered(offer_id, message_ids, "injected", turn_id))
            d.do(OfferSteer(offer_id, turn_id, tuple(node.state.inbox[m] for m in message_ids)))
        case inbox.Interrupt():
            turn_id = turn_of(node)
            d.emit(node, ev.TurnCancelling(turn_id, "interrupt"))
            d.do(CancelTurn(turn_id))
        case None:
            pass
    keep_order(d, node)


def start_agent(d: Draft) -> None:
    d.emit(d.root, ev.AgentStateChanged("starting"))
    d.do(StartAgent())


def configure(d: Draft, node: Node) -> None:
    """Tell a ready agent what a person chose, where it is something else."""
    info = node.info
    mode = info.asked_mode if info.asked_mode and info.asked_mode != info.mode else None
    model = info.asked_model if info.asked_model and info.asked_model != info.model else None
    if mode or model:
        d.do(ConfigureAgent(mode, model))


def parts_for(d: Draft, node: Node, count: int, given: tuple[str, ...] = ()) -> tuple[PartId, ...]:
    """``count`` rising part ids: the given ones where they have the layout and rise, else minted."""
    found: list[PartId] = []
    last = ""
    for index in range(count):
        value = given[index] if index < len(given) else ""
        if not ids.is_ascending(value, "prt") or value <= last:
            value = d.part_id(node, last=last)
        found.append(PartId(value))
        last = value
    return tuple(found)
