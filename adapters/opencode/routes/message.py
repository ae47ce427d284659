"""Messages: prompts, with and without waiting for the answer; the list; a slash command; revoking a pending one."""

import base64
import binascii
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode import snapshot
from adapters.opencode.errors import BadCursor, Invalid, cut, json
from adapters.opencode.routes import catalog
from adapters.opencode.routes.api import Api, prefixed, query
from adapters.opencode.routes.session import Count
from adapters.opencode.translate_content import content_of
from adapters.opencode.translate_messages import BROKEN
from adapters.opencode.wire import (
    DEFAULT_MODE,
    MessageIdText,
    ModelInput,
    Name,
    PartInput,
    Prompt,
    TextInput,
    WithParts,
)
from gateway.core.errors import Conflict, NotFound, of_agent
from gateway.core.ids import MessageId, SessionId
from gateway.core.replies import Admission, Settlement
from gateway.core.transcript import StepItem
from gateway.views import SessionView

_prompt = msgspec.json.Decoder(Prompt)


class SlashCommand(msgspec.Struct, frozen=True):
    command: Annotated[str, Meta(min_length=1, max_length=256)]
    arguments: str = ""
    messageID: MessageIdText | None = None
    agent: Name | None = None
    model: Name | None = None  # provider/model
    parts: list[PartInput] = []


class Page(msgspec.Struct, frozen=True):
    limit: Count | None = None
    before: str | None = None


class Place(msgspec.Struct, frozen=True):
    """What a page's cursor says: the oldest message of the page."""

    id: str
    time: int


_command = msgspec.json.Decoder(SlashCommand)
_place = msgspec.json.Decoder(Place)


def routes(api: Api) -> APIRouter:
    router = APIRouter()
    controller = api.controller

    @router.get("/session/{sessionID}/message", response_model=None)
    async def listed(request: Request, sessionID: str) -> Response:
        """Messages with their parts, oldest first; with ``limit`` the newest, and ``before`` for those before."""
        page = query(request, Page)
        before = _before(page)
        view = await api.view(sessionID)
        items = snapshot.items(view)
        if before is not None:
            items = [item for item in items if snapshot.place(item) < (before.time, before.id)]
        headers = {}
        if page.limit and len(items) > page.limit:
            items = items[-page.limit :]
            cursor = _cursor(*snapshot.place(items[0]))
            url = request.url.include_query_params(limit=page.limit, before=cursor)
            headers = {"X-Next-Cursor": cursor, "Link": f'<{url}>; rel="next"'}
        return json([api.translator.messages.item(view.info, item) for item in items], headers=headers)

    @router.get("/session/{sessionID}/message/{messageID}", response_model=None)
    async def get(sessionID: str, messageID: str) -> Response:
        prefixed(messageID, "msg", "messageID")
        return json(one(await api.view(sessionID), messageID))

    @router.delete("/session/{sessionID}/message/{messageID}", response_model=None)
    async def delete(request: Request, sessionID: str, messageID: str) -> Response:
        """Revoke a message that is not delivered yet. What the agent has seen stays."""
        session_id = api.session_id(sessionID)
        prefixed(messageID, "msg", "messageID")
        view = await api.view(session_id)
        if view.transcript.step(messageID) is not None:
            raise Conflict(f'{messageID} is the agent\'s: it stays\n  at ["messageID"]')
        verdict = await controller.revoke(session_id, MessageId(messageID), by=api.by(request))
        if verdict.kind == "unknown":
            raise NotFound(f"Message not found: {cut(messageID)}")
        if verdict.kind != "revoked":
            raise Conflict(f'{messageID} was delivered to the agent already: it stays\n  at ["messageID"]')
        return json(True)

    @router.post("/session/{sessionID}/message", response_model=None)
    async def prompt(request: Request, sessionID: str) -> Response:
        """Send a prompt and wait for the answer: the last assistant message of its turn."""
        session_id = api.session_id(sessionID)
        body = await api.body(request, _prompt)
        admission = await admit(request, session_id, body)
        if body.noReply:
            return json(one(await api.view(session_id), admission.ascending_id))
        return json(await answer(session_id, admission))

    @router.post("/session/{sessionID}/prompt_async", response_model=None)
    async def prompt_async(request: Request, sessionID: str) -> Response:
        """Send a prompt: 204 when it is stored."""
        session_id = api.session_id(sessionID)
        admission = await admit(request, session_id, await api.body(request, _prompt))
        if admission.state == "revoked":
            raise Conflict(f"{admission.ascending_id} was revoked", message_id=admission.ascending_id)
        return Response(status_code=204)

    @router.post("/session/{sessionID}/command", response_model=None)
    async def command(request: Request, sessionID: str) -> Response:
        """A slash command of the agent, sent as the text ``/name arguments``."""
        session_id = api.session_id(sessionID)
        body = await api.body(request, _command)
        model = None
        if body.model:
            agent, slash, name = body.model.partition("/")
            if not slash:
                raise Invalid(f'Expected provider/model, got "{cut(body.model)}"\n  at ["model"]', "Payload")
            model = ModelInput(agent, name)
        text = f"/{body.command.removeprefix('/')} {body.arguments}".rstrip()
        prompted = Prompt([TextInput(text), *body.parts], body.messageID, model, body.agent)
        return json(await answer(session_id, await admit(request, session_id, prompted)))

    # --- prompting -------------------------------------------------------------------------------------------------

    async def admit(request: Request, session_id: SessionId, body: Prompt) -> Admission:
        view = await api.view(session_id)
        content, part_ids = content_of(body.parts, api.confined)
        if not content:
            raise Invalid('Expected at least one text or file part\n  at ["parts"]', "Payload")
        changes = chosen(view, body)
        if changes and not _is_known(view, body.messageID):
            await controller.update(session_id, **changes, by=api.by(request))
        return await controller.submit(
            session_id,
            content,
            # what is only kept goes together with the next prompt, before it
            delivery=body.delivery or ("steer" if body.noReply else "queue"),
            message_id=MessageId(body.messageID) if body.messageID else None,
            part_ids=part_ids if any(part_ids) else (),
            if_idle="store" if body.noReply else "start",
            if_busy="refuse" if body.noReply else "accept",
            by=api.by(request),
        )

    def chosen(view: SessionView, body: Prompt) -> dict[str, Any]:
        """What a prompt's ``model`` and ``agent`` change of the session: its agent (once), model and mode."""
        changes: dict[str, Any] = {}
        info = view.info
        if body.model is not None:
            agent = catalog.agent_named(controller, body.model.providerID)
            if info.agent and agent != info.agent:
                raise Conflict(
                    f'This session is bound to the provider "{info.agent}": open another session for "{agent}"\n'
                    '  at ["model"]["providerID"]'
                )
            if not info.agent:
                changes["agent"] = agent
            model = catalog.model_named(catalog.models_of(view), body.model.modelID, "modelID")
            if model not in ("", info.model):
                changes["model"] = model
        if body.agent is not None and body.agent not in (DEFAULT_MODE, info.mode):
            modes = [str(mode["id"]) for mode in catalog.modes_of(view)]
            if body.agent in modes:
                changes["mode"] = body.agent
            elif body.agent not in catalog.all_modes(controller):  # another agent's: the terminal sends it everywhere
                raise catalog.no_mode(body.agent, modes)
        return changes

    async def answer(session_id: SessionId, admission: Admission) -> WithParts:
        """The answer to a prompt, when there is one and every stream has shown it."""
        settlement = await controller.wait(session_id, admission.message_id)
        if settlement.kind == "held" and settlement.why == "abort":
            await controller.wait(session_id)  # the answer is the aborted message: when it has ended
        await api.streams.flushed(controller.log.position)
        return last(await api.view(session_id), admission, settlement)

    def last(view: SessionView, admission: Admission, settlement: Settlement) -> WithParts:
        steps = [item for item in view.transcript.items if isinstance(item, StepItem)]
        if settlement.kind == "ended":
            mine = [s for s in steps if s.step.turn_id == settlement.turn_id] or [
                s for s in steps if s.step.parent_id == admission.ascending_id
            ]
            if mine:
                return api.translator.messages.item(view.info, mine[-1])
        elif steps and steps[-1].step.outcome in BROKEN:
            return api.translator.messages.item(view.info, steps[-1])
        if settlement.error is not None:  # the agent did not even start
            told = f"{settlement.error.message} (the message is kept, held: send it again to try again)"
            raise of_agent(settlement.error.code, told)
        fate = {"held": f"is held ({settlement.why})", "revoked": "was revoked"}.get(settlement.kind, "has no answer")
        raise Conflict(f"{admission.ascending_id} {fate}", message_id=admission.ascending_id)

    def one(view: SessionView, message_id: str) -> WithParts:
        found = view.transcript.step(message_id)
        if found is not None:
            return api.translator.messages.item(view.info, found)
        user = view.transcript.user(message_id)
        pending = next((p for p in view.pending if message_id in (p.id, p.ascending_id)), None)
        message = user or pending
        if message is None:
            raise NotFound(f"Message not found: {cut(message_id)}")
        return WithParts(*api.translator.messages.user(view.info, message))

    return router


def _is_known(view: SessionView, message_id: str | None) -> bool:
    """Whether the message was sent before: then its choices were made before."""
    if message_id is None:
        return False
    return view.transcript.user(message_id) is not None or any(p.id == message_id for p in view.pending)


def _cursor(time: int, message_id: str) -> str:
    place = msgspec.json.encode(Place(message_id, time))
    return base64.urlsafe_b64encode(place).decode().rstrip("=")


def _before(page: Page) -> Place | None:
    if page.before is None:
        return None
    if page.limit is None:
        raise BadCursor('"before" needs a "limit"')
    try:
        padded = page.before.encode("ascii") + b"=" * (-len(page.before) % 4)
        return _place.decode(base64.b64decode(padded, b"-_", validate=True))
    except (binascii.Error, UnicodeError, msgspec.MsgspecError, RecursionError):
        raise BadCursor('"before" is not a cursor of this list') from None
