"""Ours: messages that the agent does not have yet. They are listed, revoked, replaced, and moved between lanes."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode.api.common import V2, data, no_message
from adapters.opencode.api.prompt import content_from
from adapters.opencode.translate_v2_messages import pending as shown
from adapters.opencode.wire_v2 import PendingPatch
from gateway.core.errors import Conflict
from gateway.core.ids import MessageId, SessionId
from gateway.core.replies import Verdict

_patch = msgspec.json.Decoder(PendingPatch)
PATH = "/api/session/{sessionID}/pending"


def routes(v2: V2) -> None:
    router = v2.api.router
    api, controller = v2.api, v2.controller

    def names(sessionID: str, messageID: str) -> tuple[SessionId, MessageId]:
        return v2.session_id(sessionID), MessageId(v2.message_id(messageID))

    def told(session_id: SessionId, verdict: Verdict, message_id: str) -> Response:
        """``result``: revoked, replaced, promoted or demoted; what was not done is 404 or 409."""
        if verdict.kind == "unknown":
            raise no_message(session_id, message_id)
        if verdict.kind == "already_delivered":
            raise Conflict(f"{message_id} was delivered to the agent already", resource=message_id, result=verdict.kind)
        return data({"messageID": message_id, "result": verdict.kind, "uncertain": verdict.uncertain})

    @router.get(PATH, response_model=None)
    async def listed(sessionID: str) -> Response:
        """In the order of their delivery."""
        return data([shown(message) for message in (await v2.view(sessionID)).pending])

    @router.delete(PATH + "/{messageID}", response_model=None)
    async def revoke(request: Request, sessionID: str, messageID: str) -> Response:
        """Take it back. Twice is a success. ``uncertain``: the agent may have seen it."""
        session_id, message_id = names(sessionID, messageID)
        return told(session_id, await controller.revoke(session_id, message_id, by=api.by(request)), messageID)

    @router.patch(PATH + "/{messageID}", response_model=None)
    async def replace(request: Request, sessionID: str, messageID: str) -> Response:
        """Another content, in the same place."""
        session_id, message_id = names(sessionID, messageID)
        await controller.view(session_id)
        content = content_from(api, (await api.body(request, _patch)).prompt)
        verdict = await controller.replace(session_id, message_id, content, by=api.by(request))
        return told(session_id, verdict, messageID)

    @router.post(PATH + "/{messageID}/steer", response_model=None)
    async def promote(request: Request, sessionID: str, messageID: str) -> Response:
        """As soon as the agent can take it."""
        session_id, message_id = names(sessionID, messageID)
        return told(session_id, await controller.promote(session_id, message_id, by=api.by(request)), messageID)

    @router.post(PATH + "/{messageID}/queue", response_model=None)
    async def demote(request: Request, sessionID: str, messageID: str) -> Response:
        """After the running turn."""
        session_id, message_id = names(sessionID, messageID)
        return told(session_id, await controller.demote(session_id, message_id, by=api.by(request)), messageID)
