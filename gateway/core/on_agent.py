"""One handler for each fact: of the agent's delivery and life here, of what it says in ``on_speech.py``.

A fact has no caller to refuse it: what makes no sense any more (a verdict on a forgotten offer, the end of a turn that
is over) is ignored.
"""

import msgspec

from gateway.core import events as ev
from gateway.core import flow, inbox, on_command, on_speech, on_tools
from gateway.core.effects import CancelTurn, KillAgent
from gateway.core.ids import MessageId, OfferId
from gateway.core.inputs import (
    AgentAsk,
    AgentAskWithdrawn,
    AgentFact,
    AgentGone,
    AgentReady,
    CommandEnded,
    CommandSaid,
    GraceOver,
    Input,
    OfferExpired,
    PromptEnded,
    PromptUnwritten,
    PromptWritten,
    Quiet,
    Recover,
    SteerVerdict,
    TurnBegan,
    WithdrawVerdict,
)
from gateway.core.model import Cancelled, Error, How, Pending
from gateway.core.session import Draft, Node
from gateway.core.state import Offer
from gateway.core.turn import TurnState


def handle(d: Draft, fact: AgentFact) -> None:
    match fact:
        case AgentReady():
            ready(d, fact)
        case AgentGone():
            gone(d, fact)
        case PromptWritten():
            prompt_written(d, fact.offer_id)
        case PromptUnwritten():
            prompt_unwritten(d, fact)
        case PromptEnded():
            prompt_ended(d, fact)
        case TurnBegan():
            node = d.of_agent(fact.agent_session)
            if node.state.turn is TurnState.IDLE:
                flow.end_step(d, node, "end_turn")
                d.emit(node, ev.TurnStarted(d.turn_id(node), "agent"))
            elif node.state.cause == "command":
                d.emit(node, ev.AgentWorking(True))
        case SteerVerdict():
            steer_verdict(d, fact)
        case WithdrawVerdict():
            withdraw_verdict(d, fact)
        case AgentAsk():
            on_tools.ask(d, fact)
        case AgentAskWithdrawn():
            for node in d.all_nodes():
                for request in list(node.state.requests.values()):
                    if request.agent_ref == fact.agent_ref:
                        flow.settle(d, node, request, Cancelled("withdrawn"), tell_agent=False)
        case _:
            on_speech.handle(d, fact)
    flow.move(d)


def handle_gateway(d: Draft, fact: Input) -> None:
    match fact:
        case GraceOver(turn_id=turn_id):
            state = d.root.state
            if state.turn is TurnState.CANCELLING and state.turn_id == turn_id:
                d.do(KillAgent("it did not end a cancelled turn in time"))
        case OfferExpired(offer_id=offer_id):
            offer = offered(d.root, offer_id, "injected")  # a prompt is written, or not, or dies with the agent
            if offer is not None and not offer.accepted:
                lose(d, d.root, offer)
        case CommandSaid():
            on_command.said(d, fact)
        case CommandEnded():
            on_command.ended(d, fact)
        case Quiet():
            for node in d.all_nodes():
                if node.state.turn is TurnState.IDLE:
                    flow.end_step(d, node, "end_turn")
        case Recover():
            recover(d, fact)
        case _:
            raise AssertionError(f"no handler for {type(fact).__name__}")
    flow.move(d)


# --- its life --------------------------------------------------------------------------------------------------------


def ready(d: Draft, fact: AgentReady) -> None:
    node = d.root
    rest = inbox.at_rest(node.state)
    can = (fact.can_steer, fact.can_withdraw, fact.can_fork, fact.hears)
    d.emit(node, ev.AgentStateChanged("ready", *can, idle=rest))
    if fact.own_id:
        flow.replace_info(d, node, agent_session=fact.own_id)
    flow.configure(d, node)


def gone(d: Draft, fact: AgentGone) -> None:
    """The agent died, or was stopped while idle. What it held comes back, uncertain; everything pending is held."""
    root = d.root
    error = fact.error
    killed = root.state.turn is TurnState.CANCELLING and root.state.abort_asked and root.state.cause != "command"
    for node in d.all_nodes():
        flow.cancel_requests(d, node, "agent_exit", tell_agent=False)
    stillborn = root.state.turn is TurnState.STILLBORN
    for offer in list(root.state.offers.values()):
        lose(d, root, offer)
    for node in reversed(d.all_nodes()):
        if node.state.turn is TurnState.IDLE:
            flow.end_step(d, node, "end_turn")
        elif node.state.cause == "command":
            pass  # a person's: it goes on without the agent
        elif killed or (stillborn and node is root):
            flow.end_turn(d, node, "cancelled", tell_agent=False)
        else:
            why = error or Error("agent_exit", "the agent ended")
            flow.end_turn(d, node, "error", why, tell_agent=False)
        flow.no_background(d, node)
    d.emit(root, ev.AgentStateChanged("absent", error=error, before=root.state.agent))
    # a death that the abort itself brought about does not hold what was sent after the abort
    if error is not None and not killed:
        flow.hold_all(d, root, "agent_exit")


def recover(d: Draft, fact: Recover) -> None:
    """After a restart: what was open ends; undecided offers are uncertain; nothing runs twice."""
    root = d.root
    for node in d.all_nodes():
        part = node.state.part
        if part is not None:
            text = fact.checkpoints.get(part.part_id, "") or node.text_of(part.part_id)
            flow.end_part(d, node, part, text)
        flow.cancel_requests(d, node, "restart", tell_agent=False)
    for offer in list(root.state.offers.values()):
        lose(d, root, offer)
    for node in reversed(d.all_nodes()):
        if node.state.turn is TurnState.IDLE:
            flow.end_step(d, node, "end_turn")
        else:
            flow.end_turn(d, node, "interrupted", tell_agent=False)
        flow.no_background(d, node)
    if fact.on_restart == "hold":
        flow.hold_all(d, root, "restart")


# --- prompts ---------------------------------------------------------------------------------------------------------


def offered(node: Node, offer_id: OfferId, how: How) -> Offer | None:
    """The undecided offer of this kind; None if it is over, or of the other kind."""
    offer = node.state.offers.get(offer_id)
    return offer if offer is not None and offer.how == how else None


def entries(node: Node, message_ids: tuple[MessageId, ...]) -> list[Pending]:
    return [node.state.inbox[m] for m in message_ids]


def prompt_written(d: Draft, offer_id: OfferId) -> None:
    node = d.root
    offer = offered(node, offer_id, "prompt")
    if offer is None:
        return
    stillborn = node.state.turn is TurnState.STILLBORN
    flow.deliver(d, node, entries(node, offer.message_ids), offer.turn_id, "prompt")
    if stillborn:
        d.do(CancelTurn(offer.turn_id))


def prompt_unwritten(d: Draft, fact: PromptUnwritten) -> None:
    node = d.root
    offer = offered(node, fact.offer_id, "prompt")
    if offer is None:
        return
    for message in entries(node, offer.message_ids):
        flow.give_back(d, node, message, "unwritten", offer.turn_id)
    flow.end_turn(d, node, "unwritten", fact.error)
    flow.hold_all(d, node, "unwritten")


def prompt_ended(d: Draft, fact: PromptEnded) -> None:
    node = d.of_agent(fact.agent_session)
    state = node.state
    if fact.offer_id is not None:
        if fact.offer_id != state.prompt_offer:
            return  # an answer to a prompt whose turn is over
        prompt_written(d, fact.offer_id)  # answered, so it was written
    if state.cause == "command":  # a person's, which the agent does not end
        if state.agent_works:
            d.emit(node, ev.AgentWorking(False))
        return
    if state.turn not in (TurnState.RUNNING, TurnState.CANCELLING):
        return  # over already, or a prompt is on its way: this is the end of nothing
    flow.end_turn(d, node, fact.outcome, fact.error, fact.tokens)


# --- steers ----------------------------------------------------------------------------------------------------------


def lose(d: Draft, node: Node, offer: Offer) -> None:
    """Nobody knows whether the agent has these messages."""
    for message in entries(node, offer.message_ids):
        flow.give_back(d, node, message, "lost", offer.turn_id)


def steer_verdict(d: Draft, fact: SteerVerdict) -> None:
    node = d.root
    offer = offered(node, fact.offer_id, "injected")
    if offer is None:
        late(d, node, fact)
        return
    concerned = [m for m in entries(node, offer.message_ids) if fact.message_id in (None, m.id)]
    match fact.verdict:
        case "accepted":
            if not offer.accepted:
                d.emit(node, ev.OfferAccepted(offer.id))
        case "injected":
            injected(d, node, concerned, fact)
        case "refused":
            for message in concerned:
                flow.give_back(d, node, message, "refused", offer.turn_id)
        case "lost":
            for message in concerned:
                flow.give_back(d, node, message, "lost", offer.turn_id)


def injected(d: Draft, node: Node, messages: list[Pending], fact: SteerVerdict) -> None:
    """The agent has them, in the turn that runs now, or (none does) in the one that just ended."""
    flow.deliver(d, node, messages, flow.turn_of(node), "injected")
    if fact.agent_id:
        for message in messages:
            d.emit(node, ev.MessageAliased(message.id, fact.agent_id))


def late(d: Draft, node: Node, fact: SteerVerdict) -> None:
    """A word on an offer that was given up: an injection still delivers, if the message is still here."""
    found = [
        m
        for m in inbox.in_order(node.state)
        if m.offer_id == fact.offer_id and m.state == "pending" and fact.message_id in (None, m.id)
    ]
    if fact.verdict == "refused":  # a later word on the rest of the offer is not about these
        for m in found:
            d.emit(node, ev.MessageReturned(m.id, "refused", flow.turn_of(node), m.held))
    elif fact.verdict == "injected" and found:
        # it has what was sent, whatever was put in its place since
        sent = [msgspec.structs.replace(m, content=m.sent, part_ids=m.sent_parts) for m in found]
        injected(d, node, sent, fact)


def withdraw_verdict(d: Draft, fact: WithdrawVerdict) -> None:
    node = d.root
    message = node.state.inbox.get(fact.message_id)
    if message is None or message.state != "offered" or message.offer_id != fact.offer_id:
        return
    asked = flow.outstanding(message)
    if asked is None or asked.number != fact.question:
        return
    if not fact.done:
        d.emit(node, ev.QuestionRefused(message.id, asked.number))
    elif asked.kind == "revoke":
        flow.revoke(d, node, message)
        return
    else:
        flow.replace_pending(d, node, message, asked.content, asked.part_ids, asked.number)
    flow.ask_withdraw(d, node, message.id)
