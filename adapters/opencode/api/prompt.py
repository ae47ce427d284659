"""A prompt: admitted once, however often it is sent."""

import mimetypes
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode.api.common import V2, data
from adapters.opencode.routes.api import Api
from adapters.opencode.translate_content import content_of
from adapters.opencode.translate_v2 import STRIDE
from adapters.opencode.translate_v2_messages import noted
from adapters.opencode.translate_v2_messages import prompt as shown
from adapters.opencode.wire import FileInput, TextInput
from adapters.opencode.wire_v2 import NewPrompt, PromptInput
from gateway.core.content import Content
from gateway.core.errors import ClientError, Conflict
from gateway.core.ids import MessageId, SessionId
from gateway.core.state import Known

UNKNOWN = "application/octet-stream"

_prompt = msgspec.json.Decoder(NewPrompt)


def routes(v2: V2) -> None:
    router = v2.api.router
    api, controller = v2.api, v2.controller

    @router.post("/api/session/{sessionID}/prompt", response_model=None)
    async def prompt(request: Request, sessionID: str) -> Response:
        """Answered when it is stored. ``resume`` false starts nothing; the same ``id``, content and ``delivery``
        again is the first admission.
        """
        session_id = v2.session_id(sessionID)
        await controller.view(session_id)  # an unknown session is said first
        body = await api.body(request, _prompt)
        content = content_from(api, body.prompt)
        admission = await controller.submit(
            session_id,
            content,
            delivery=body.delivery,
            message_id=MessageId(body.id) if body.id is not None else None,
            if_idle="start" if body.resume else "store",
            by=api.by(request),
        )
        if admission.state == "revoked":
            raise Conflict(f"{admission.ascending_id} was revoked", resource=admission.ascending_id)
        known = (await controller.view(session_id)).known[admission.message_id]
        return data(record(session_id, known, content, body.delivery))


def record(session_id: SessionId, known: Known, content: Content, delivery: str) -> dict[str, Any]:
    """An admission, as it was asked for."""
    found = {
        "admittedSeq": known.admitted_seq * STRIDE,
        "id": known.ascending_id,
        "sessionID": session_id,
        "prompt": shown(content),
        "delivery": delivery,
        "timeCreated": known.admitted_at,
    }
    if known.delivered_seq:
        found["promotedSeq"] = known.delivered_seq * STRIDE
    return found


def content_from(api: Api, asked: PromptInput) -> Content:
    """The blocks of a prompt. Raises ClientError or Forbidden that names the file."""
    text, _ = content_of([TextInput(asked.text)], api.confined)
    mentions = [{k: v for k, v in (("name", a.name), ("source", a.source)) if v} for a in asked.agents]
    blocks = [noted(text[0], agents=mentions)]
    for index, file in enumerate(asked.files):
        part = FileInput(mime_of(file.uri, file.name or ""), file.uri, filename=file.name, source=file.source)
        try:
            found, _ = content_of([part], api.confined)
        except ClientError as error:
            error.message = error.message.replace('["parts"][0]["url"]', f'["prompt"]["files"][{index}]["uri"]')
            raise
        blocks.append(noted(found[0], description=file.description))
    return tuple(blocks)


def mime_of(uri: str, name: str) -> str:
    """A file comes without its type on this wire."""
    if uri[:5].lower() == "data:":
        return uri[5:].partition(",")[0].partition(";")[0] or "text/plain"
    path = uri.partition("?")[0].partition("#")[0]
    return mimetypes.guess_type(name)[0] or mimetypes.guess_type(path)[0] or UNKNOWN
