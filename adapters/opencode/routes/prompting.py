"""A prompt on its way: what it chooses, its admission, and the wait for its answer."""

import asyncio
from typing import Any

from starlette.requests import Request

from adapters.opencode import attachments
from adapters.opencode.errors import Invalid, cut
from adapters.opencode.routes import catalog
from adapters.opencode.routes.api import Api
from adapters.opencode.translate_content import content_of
from adapters.opencode.translate_messages import BROKEN
from adapters.opencode.wire import DEFAULT_MODE, FileInput, Prompt, Shell, WithParts
from gateway.core.content import Content
from gateway.core.errors import Conflict, NotFound, of_agent
from gateway.core.ids import MessageId, SessionId
from gateway.core.replies import Admission, Settlement
from gateway.core.transcript import StepItem
from gateway.views import SessionView


class Prompting:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._controller = api.controller

    async def admit(self, request: Request, session_id: SessionId, body: Prompt) -> Admission:
        view = await self._api.view(session_id)
        if any(isinstance(part, FileInput) for part in body.parts):
            load = attachments.loader(self._api.confined, _content(view, body.messageID))
            content, part_ids = await asyncio.to_thread(content_of, body.parts, self._api.confined, load)
            view = await self._api.view(session_id)  # as it is now
        else:
            content, part_ids = content_of(body.parts, self._api.confined)
        if not content:
            raise Invalid('Expected at least one text or file part\n  at ["parts"]', "Payload")
        changes = self.chosen(view, body)
        if changes and not _is_known(view, body.messageID):
            await self._controller.update(session_id, **changes, by=self._api.by(request))
        return await self._controller.submit(
            session_id,
            content,
            # what is only kept goes together with the next prompt, before it
            delivery=body.delivery or ("steer" if body.noReply else "queue"),
            message_id=MessageId(body.messageID) if body.messageID else None,
            part_ids=part_ids if any(part_ids) else (),
            if_idle="store" if body.noReply else "start",
            if_busy="refuse" if body.noReply else "accept",
            by=self._api.by(request),
        )

    async def run(self, request: Request, session_id: SessionId, body: Shell) -> Admission:
        view = await self._api.view(session_id)
        message_id = MessageId(body.messageID) if body.messageID else None
        by = self._api.by(request)
        changes = self.chosen(view, Prompt([], None, body.model, body.agent))
        if "agent" in changes:
            await self._controller.update(session_id, agent=changes.pop("agent"), by=by)
        admission = await self._controller.run_command(session_id, body.command, message_id=message_id, by=by)
        if changes and not admission.duplicate:  # for what comes after it
            await self._controller.update(session_id, **changes, by=by)
        return admission

    def chosen(self, view: SessionView, body: Prompt) -> dict[str, Any]:
        """What a prompt's ``model`` and ``agent`` change of the session: its agent (once), model and mode."""
        changes: dict[str, Any] = {}
        info = view.info
        if body.model is not None:
            agent = catalog.agent_named(self._controller, body.model.providerID)
            if info.agent and agent != info.agent:
                raise Conflict(
                    f'This session is bound to the provider "{info.agent}": open another session for "{agent}"\n'
                    '  at ["model"]["providerID"]'
                )
            if not info.agent:
                changes["agent"] = agent
            known = catalog.models_of(view) or catalog.models_known(self._controller, agent)
            model = catalog.model_named(known, body.model.modelID, "modelID")
            if model not in ("", info.model):
                changes["model"] = model
        if body.agent is not None and body.agent not in (DEFAULT_MODE, info.mode):
            agent = changes.get("agent") or info.agent or self._controller.default_agent
            modes = [str(mode["id"]) for mode in catalog.modes_of(view)] or catalog.modes_known(self._controller, agent)
            if body.agent in modes:
                changes["mode"] = body.agent
            elif body.agent not in (anywhere := catalog.all_modes(self._controller)):
                raise catalog.no_mode(body.agent, modes or list(anywhere))
            # else it is another agent's: the terminal sends it everywhere
        return changes

    async def answer(self, session_id: SessionId, admission: Admission) -> WithParts:
        """The answer to a prompt, when there is one and every stream has shown it."""
        settlement = await self._controller.wait(session_id, admission.message_id)
        if settlement.kind == "held" and settlement.why == "abort":
            await self._controller.wait(session_id)  # the answer is the aborted message: when it has ended
        await self._api.streams.flushed(self._controller.log.position)
        return self.last(await self._api.view(session_id), admission, settlement)

    def last(self, view: SessionView, admission: Admission, settlement: Settlement) -> WithParts:
        steps = [item for item in view.transcript.items if isinstance(item, StepItem)]
        if settlement.kind == "ended":
            mine = [s for s in steps if s.step.turn_id == settlement.turn_id] or [
                s for s in steps if s.step.parent_id == admission.ascending_id
            ]
            if mine:
                return self._api.translator.messages.item(view.info, mine[-1])
        elif steps and steps[-1].step.outcome in BROKEN:
            return self._api.translator.messages.item(view.info, steps[-1])
        if settlement.error is not None:  # the agent did not even start
            told = f"{settlement.error.message} (the message is kept, held: send it again to try again)"
            raise of_agent(settlement.error.code, told)
        fate = {"held": f"is held ({settlement.why})", "revoked": "was revoked"}.get(settlement.kind, "has no answer")
        raise Conflict(f"{admission.ascending_id} {fate}", message_id=admission.ascending_id)

    def one(self, view: SessionView, message_id: str) -> WithParts:
        found = view.transcript.step(message_id)
        if found is not None:
            return self._api.translator.messages.item(view.info, found)
        user = view.transcript.user(message_id)
        pending = next((p for p in view.pending if message_id in (p.id, p.ascending_id)), None)
        message = user or pending
        if message is None:
            raise NotFound(f"Message not found: {cut(message_id)}")
        return WithParts(*self._api.translator.messages.user(view.info, message))


def _content(view: SessionView, message_id: str | None) -> Content:
    """What a message was when it was sent before; empty if it was not."""
    if message_id is None:
        return ()
    found = view.transcript.user(message_id) or next((p for p in view.pending if p.id == message_id), None)
    return () if found is None else found.content


def _is_known(view: SessionView, message_id: str | None) -> bool:
    """Whether the message was sent before: then its choices were made before."""
    return bool(_content(view, message_id))
