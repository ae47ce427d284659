"""What agents ask of people: permissions (both reply routes that clients use) and questions."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode import translate_requests as requests
from adapters.opencode.errors import Tagged, cut, json
from adapters.opencode.routes.api import Api, prefixed
from adapters.opencode.wire import LegacyPermissionReply, PermissionReply, QuestionReply
from gateway.core.ids import RequestId, SessionId
from gateway.core.model import Answered, Declined, RequestKind
from gateway.core.model import Request as Asked

_permission = msgspec.json.Decoder(PermissionReply)
_legacy = msgspec.json.Decoder(LegacyPermissionReply)
_question = msgspec.json.Decoder(QuestionReply)


def routes(api: Api) -> None:
    router = api.router
    controller = api.controller

    def listed(request: Request, kind: RequestKind) -> list[object]:
        directory = api.asked_directory(request)
        shape = requests.permission if kind == "permission" else requests.question
        return [
            shape(asked, view.info.id)
            for view in controller.recent()
            if directory in (None, view.info.cwd)
            for asked in view.requests
            if asked.kind == kind
        ]

    async def find(request_id: str, kind: RequestKind, session_id: str = "") -> tuple[SessionId, Asked]:
        found = await controller.find_request(RequestId(request_id))
        if found is None or found[1].kind != kind or (session_id and found[0] != session_id):
            raise missing(request_id, kind, controller.settled_in(RequestId(request_id)) is not None)
        return found

    async def answer(request: Request, session_id: SessionId, asked: Asked, outcome: Answered) -> Response:
        settled = await controller.answer(session_id, asked.id, outcome, by=api.by(request))
        if not settled.first:
            raise missing(asked.id, asked.kind, True)
        return json(True)

    @router.get("/permission", response_model=None)
    async def permissions(request: Request) -> Response:
        return json(listed(request, "permission"))

    @router.get("/question", response_model=None)
    async def questions(request: Request) -> Response:
        return json(listed(request, "elicitation"))

    @router.post("/permission/{requestID}/reply", response_model=None)
    async def reply(request: Request, requestID: str) -> Response:
        """``once``, ``always`` or ``reject``; the first answer wins."""
        prefixed(requestID, "per", "requestID")
        body = await api.body(request, _permission)
        session_id, asked = await find(requestID, "permission")
        return await answer(request, session_id, asked, requests.outcome(asked, body.reply, body.message or ""))

    @router.post("/session/{sessionID}/permissions/{permissionID}", response_model=None)
    async def legacy(request: Request, sessionID: str, permissionID: str) -> Response:
        """The same, as the web app says it."""
        session_id = api.session_id(sessionID)
        prefixed(permissionID, "per", "permissionID")
        body = await api.body(request, _legacy)
        _, asked = await find(permissionID, "permission", session_id)
        return await answer(request, session_id, asked, requests.outcome(asked, body.response, ""))

    @router.post("/question/{requestID}/reply", response_model=None)
    async def question_reply(request: Request, requestID: str) -> Response:
        """One list of labels a question, in their order."""
        prefixed(requestID, "que", "requestID")
        body = await api.body(request, _question)
        session_id, asked = await find(requestID, "elicitation")
        return await answer(request, session_id, asked, requests.answers(asked, body.answers))

    @router.post("/question/{requestID}/reject", response_model=None)
    async def question_reject(request: Request, requestID: str) -> Response:
        prefixed(requestID, "que", "requestID")
        session_id, asked = await find(requestID, "elicitation")
        return await answer(request, session_id, asked, Declined())


def missing(request_id: str, kind: RequestKind, answered: bool) -> Tagged:
    word = "Permission" if kind == "permission" else "Question"
    why = "was answered already" if answered else "not found"
    return Tagged(f"{word}NotFoundError", f"{word} request {why}: {cut(request_id)}", requestID=cut(request_id))
