"""The shared state of a thread: ``{session, usage, pending}``. Pure.

It is the gateway's: what a client echoes is not read; changes are asked for by the routes. Deltas use ``add`` only
(which replaces too) and ``remove`` only for what a snapshot or a delta of the same stream has put there.
"""

from collections.abc import Sequence
from typing import Protocol

from adapters.agui.translate_content import words
from adapters.agui.wire import Json
from gateway.core import events as ev
from gateway.core.ids import TurnId
from gateway.core.model import Pending, Request, SessionInfo, Tokens
from gateway.core.transcript import Transcript, Usage


class View(Protocol):
    """A session as it stands (``gateway.controller.SessionView``)."""

    @property
    def info(self) -> SessionInfo: ...
    @property
    def transcript(self) -> Transcript: ...
    @property
    def pending(self) -> list[Pending]: ...
    @property
    def requests(self) -> list[Request]: ...
    @property
    def turn_id(self) -> TurnId | None: ...
    @property
    def last_turn_id(self) -> TurnId | None: ...


def snapshot(view: View) -> dict[str, Json]:
    info, transcript = view.info, view.transcript
    session = session_of(info)
    session |= {"modes": transcript.modes or [], "config": transcript.config or [], "commands": view_commands(view)}
    return {"session": session, "usage": usage_of(transcript.usage), "pending": pending_of(view.pending)}


def view_commands(view: View) -> Json:
    return view.transcript.commands or []


def session_of(info: SessionInfo) -> dict[str, Json]:
    return {
        "id": info.id,
        "title": info.title,
        "agent": info.agent,
        "cwd": info.cwd,
        "mode": info.mode or info.asked_mode,
        "model": info.model or info.asked_model,
    }


def usage_of(usage: Usage | None) -> dict[str, Json]:
    if usage is None:
        return {}
    return {"used": usage.used, "size": usage.size} | ({} if usage.cost is None else {"cost": usage.cost})


def pending_of(pending: Sequence[Pending]) -> dict[str, Json]:
    return {message.id: entry(message) for message in pending}


def entry(message: Pending) -> dict[str, Json]:
    """A message that is admitted and not delivered, as every route and the state show it."""
    return {
        "id": message.id,
        "text": words(message.content),
        "delivery": message.lane,
        "place": message.place,
        "state": "held" if message.held and message.state == "pending" else message.state,
        "held": message.held,
        "uncertain": message.uncertain,
        "created": message.created,
    }


def delta(event: ev.Event, info: SessionInfo, pending: Pending | None) -> list[dict[str, Json]]:
    """What an event changes in the state; ``pending`` is the message that it is about, as it is now."""
    match event:
        case ev.SessionUpdated():
            return [add(f"/session/{key}", value) for key, value in session_of(event.info).items()]
        case ev.ModesUpdated():
            return [add("/session/mode", event.mode)] + (
                [] if event.modes is None else [add("/session/modes", event.modes)]
            )
        case ev.ConfigUpdated():
            return [add("/session/config", event.options or [])]
        case ev.CommandsUpdated():
            return [add("/session/commands", event.commands or [])]
        case ev.UsageUpdated():
            return [add("/usage", usage_of(Usage(event.used, event.size, event.cost)))]
        case ev.MessageAdmitted():
            return [add(_of(event.message.id), entry(event.message))]
        case ev.MessageRevoked():
            return [remove(_of(event.message_id))]
        case ev.MessageDelivered():
            return [] if event.message.how in ("imported", "command") else [remove(_of(event.message.id))]
        case (
            ev.PendingReplaced()
            | ev.MessagePromoted()
            | ev.MessageDemoted()
            | ev.MessageHeld()
            | ev.MessageReleased()
            | ev.MessageReturned()
        ):
            return [] if pending is None else [add(_of(event.message_id), entry(pending))]
        case ev.MessagesOffered():
            return [add(f"{_of(message_id)}/state", "offered") for message_id in event.message_ids]
        case _:
            return []


def _of(message_id: str) -> str:
    return "/pending/" + message_id.replace("~", "~0").replace("/", "~1")


def add(path: str, value: Json) -> dict[str, Json]:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> dict[str, Json]:
    return {"op": "remove", "path": path}


def tokens_of(tokens: Tokens | None, info: SessionInfo) -> list[dict[str, Json]] | None:
    """One entry, for this run. AG-UI's totals include their parts; where an agent's do not, its own total tells."""
    if tokens is None or not (tokens.input or tokens.output or tokens.total):
        return None
    cached = tokens.cache_read + tokens.cache_write
    given, made = tokens.input, tokens.output
    if tokens.total in (given + made + cached, given + made + cached + tokens.reasoning):
        if tokens.total == given + made + cached + tokens.reasoning:
            made += tokens.reasoning
        given += cached
    elif tokens.total == given + made + tokens.reasoning:
        made += tokens.reasoning
    found: dict[str, Json] = {"provider": info.agent} if info.agent else {}
    if info.model:
        found["model"] = info.model
    found |= {"inputTokens": given, "outputTokens": made, "totalTokens": given + made}
    parts = {
        "reasoningTokens": tokens.reasoning,
        "cachedInputTokens": tokens.cache_read,
        "cacheWriteInputTokens": tokens.cache_write,
    }
    return [found | {name: count for name, count in parts.items() if count}]
