"""A person's own command: a turn of the gateway's, with one tool call, in which the agent has no part.

It is told to the agent with the next prompt: the agent would else not know of what it changed.
"""

import msgspec

from gateway.core import events as ev
from gateway.core import flow
from gateway.core.content import Json, Text, digest
from gateway.core.context import NOTE
from gateway.core.effects import StartCommand
from gateway.core.errors import Busy, ClientError, Conflict
from gateway.core.ids import MessageId, TurnId
from gateway.core.inputs import CommandEnded, CommandSaid, RunCommand
from gateway.core.model import By, Outcome, ToolCall, ToolStatus, UserMessage
from gateway.core.session import Draft, Node
from gateway.core.turn import TurnState


def run(d: Draft, node: Node, item: RunCommand) -> tuple[MessageId, bool]:
    """Begin it. The message's id, and whether it is the same command with the same id once more."""
    if not item.command.strip():
        raise ClientError("the command is empty", field="command")
    if "\0" in item.command:
        raise ClientError("the command holds a NUL character", field="command")
    mark = digest((Text(item.command),), "command")
    own = item.message_id
    if own is not None:
        known = node.known.get(own)
        if known is not None and known.digest == mark:
            return known.id, True
        if known is not None or own in node.used or own in d.taken:
            raise Conflict(f"message id {own} is in use", message_id=own)
    state = node.state
    if state.turn is not TurnState.IDLE or any(not m.held for m in state.inbox.values()):
        raise Busy("the session is busy: run the command when its turn is over", session_id=node.id)
    own = own or d.message_id(node)
    content = (Text(NOTE),)
    by = d.by or By()
    created = d.created(node)
    flow.end_step(d, node, "end_turn")
    turn_id = d.turn_id(node)
    d.emit(node, ev.TurnStarted(turn_id, "command"))
    parts = flow.parts_for(d, node, 1)
    ascending = own if own.startswith("msg") else d.message_id(node)
    said = UserMessage(own, content, parts, ascending, created, turn_id, "command", "queue", by)
    d.emit(node, ev.MessageDelivered(said, digest=mark))
    flow.start_step(d, node)
    step = node.state.step
    assert step is not None
    call = ToolCall(
        d.mint(node, "call"),
        d.part_id(node),
        step.id,
        turn_id,
        d.created(node),
        status="in_progress",
        title=item.command,
        kind="execute",
        name="bash",
        input={"command": item.command},
        started=max(d.now, created),
        called=True,
        by_person=True,
    )
    d.emit(node, ev.ToolUpdated(call, first=True, called=True))
    d.do(StartCommand(turn_id, item.command, node.info.cwd))
    return own, False


def said(d: Draft, fact: CommandSaid) -> None:
    call = _running(d.root, fact.turn_id)
    if call is not None:
        d.emit(d.root, ev.ToolUpdated(msgspec.structs.replace(call, content=_shown(fact.output))))


def ended(d: Draft, fact: CommandEnded) -> None:
    node = d.root
    call = _running(node, fact.turn_id)
    if call is None:
        return
    stopped = node.state.turn is TurnState.CANCELLING
    status: ToolStatus = "cancelled" if stopped else "failed" if fact.error else "completed"
    over = msgspec.structs.replace(
        call,
        status=status,
        content=_shown(fact.output or fact.error),
        # where agents that run terminals tell it too
        meta={"terminal_exit": {"exit_code": fact.exit_code, "signal": fact.signal}} if not fact.error else None,
        ended=max(d.now, call.created),
        told=True,
    )
    d.emit(node, ev.ToolUpdated(over, result=True))
    outcome: Outcome = "cancelled" if stopped else "end_turn"
    works = node.state.agent_works
    flow.end_turn(d, node, outcome)
    if works:
        d.emit(node, ev.TurnStarted(d.turn_id(node), "agent"))


def _running(node: Node, turn_id: TurnId) -> ToolCall | None:
    """The command of this turn, if it is the open one."""
    return node.state.tools.get(node.state.command) if node.state.turn_id == turn_id else None


def _shown(output: str) -> Json:
    return [{"type": "content", "content": {"type": "text", "text": output}}] if output else []
