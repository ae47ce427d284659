"""Messages: prompts, with and without waiting for the answer; the list; a slash command; revoking a pending one."""

import base64
import binascii
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode import snapshot
from adapters.opencode.errors import BadCursor, Invalid, cut, json
from adapters.opencode.routes.api import Api, prefixed, query
from adapters.opencode.routes.prompting import Prompting
from adapters.opencode.routes.session import Count
from adapters.opencode.wire import (
    MessageIdText,
    ModelInput,
    Name,
    PartInput,
    Prompt,
    Shell,
    TextInput,
)
from gateway.core.errors import Conflict, NotFound
from gateway.core.ids import MessageId

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
_shell = msgspec.json.Decoder(Shell)
_place = msgspec.json.Decoder(Place)


def routes(api: Api, prompting: Prompting) -> None:
    router = api.router
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
        return json(prompting.one(await api.view(sessionID), messageID))

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
        admission = await prompting.admit(request, session_id, body)
        if body.noReply:
            return json(prompting.one(await api.view(session_id), admission.ascending_id))
        return json(await prompting.answer(session_id, admission))

    @router.post("/session/{sessionID}/prompt_async", response_model=None)
    async def prompt_async(request: Request, sessionID: str) -> Response:
        """Send a prompt: 204 when it is stored."""
        session_id = api.session_id(sessionID)
        admission = await prompting.admit(request, session_id, await api.body(request, _prompt))
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
        return json(await prompting.answer(session_id, await prompting.admit(request, session_id, prompted)))

    @router.post("/session/{sessionID}/shell", response_model=None)
    async def shell(request: Request, sessionID: str) -> Response:
        """Run a person's command in the session's folder; answered at its end, with the message that shows it."""
        session_id = api.session_id(sessionID)
        body = await api.body(request, _shell)
        return json(await prompting.answer(session_id, await prompting.run(request, session_id, body)))


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
