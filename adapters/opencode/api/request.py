"""What agents ask of people, and their answers."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode import translate_requests as requests
from adapters.opencode.api.common import V2, data
from adapters.opencode.routes.api import prefixed
from adapters.opencode.routes.permission import missing
from adapters.opencode.translate_v2 import permission as permission_shape
from adapters.opencode.translate_v2 import question as question_shape
from adapters.opencode.wire_v2 import PermissionReply, QuestionReply
from gateway.core.errors import NotSupported
from gateway.core.ids import RequestId
from gateway.core.model import Answered, Declined, RequestKind
from gateway.core.model import Request as Asked
from gateway.views import SessionView

_permission = msgspec.json.Decoder(PermissionReply)
_question = msgspec.json.Decoder(QuestionReply)


def routes(v2: V2) -> None:
    router = v2.api.router
    api, controller = v2.api, v2.controller

    def of_view(view: SessionView, kind: RequestKind) -> list[object]:
        shape = permission_shape if kind == "permission" else question_shape
        return [shape(view.info.id, asked) for asked in view.requests if asked.kind == kind]

    def everywhere(request: Request, kind: RequestKind) -> Response:
        directory = v2.directory(request)
        views = [view for view in controller.recent() if view.info.cwd == directory]
        return v2.located(request, [one for view in views for one in of_view(view, kind)])

    async def find(sessionID: str, requestID: str, kind: RequestKind) -> tuple[SessionView, Asked]:
        prefixed(requestID, "per" if kind == "permission" else "que", "requestID")
        view = await v2.view(sessionID)
        for asked in view.requests:
            if asked.id == requestID and asked.kind == kind:
                return view, asked
        raise missing(requestID, kind, controller.settled_in(RequestId(requestID)) == view.info.id)

    async def answer(request: Request, view: SessionView, asked: Asked, outcome: Answered) -> Response:
        settled = await controller.answer(view.info.id, asked.id, outcome, by=api.by(request))
        if not settled.first:
            raise missing(asked.id, asked.kind, True)
        return Response(status_code=204)

    # --- permissions -----------------------------------------------------------------------------------------------

    @router.get("/api/permission/request", response_model=None)
    async def permissions(request: Request) -> Response:
        """Open ones of a directory."""
        return everywhere(request, "permission")

    @router.get("/api/permission/saved", response_model=None)
    async def saved() -> Response:
        """Always empty: "always" is kept by the agent that asked, and it does not tell."""
        return data([])

    @router.delete("/api/permission/saved/{id}", response_model=None)
    async def forget(id: str) -> Response:
        """There is none to delete."""
        return Response(status_code=204)

    @router.get("/api/session/{sessionID}/permission", response_model=None)
    async def permissions_of(sessionID: str) -> Response:
        return data(of_view(await v2.view(sessionID), "permission"))

    @router.post("/api/session/{sessionID}/permission", response_model=None)
    async def ask(sessionID: str) -> Response:
        await v2.view(sessionID)
        raise NotSupported("Only agents ask for permission here; clients answer")

    @router.get("/api/session/{sessionID}/permission/{requestID}", response_model=None)
    async def permission(sessionID: str, requestID: str) -> Response:
        view, asked = await find(sessionID, requestID, "permission")
        return data(permission_shape(view.info.id, asked))

    @router.post("/api/session/{sessionID}/permission/{requestID}/reply", response_model=None)
    async def reply(request: Request, sessionID: str, requestID: str) -> Response:
        """``once``, ``always`` or ``reject``; the first answer wins."""
        v2.session_id(sessionID)
        body = await api.body(request, _permission)
        view, asked = await find(sessionID, requestID, "permission")
        return await answer(request, view, asked, requests.outcome(asked, body.reply, body.message or ""))

    # --- questions -------------------------------------------------------------------------------------------------

    @router.get("/api/question/request", response_model=None)
    async def questions(request: Request) -> Response:
        return everywhere(request, "elicitation")

    @router.get("/api/session/{sessionID}/question", response_model=None)
    async def questions_of(sessionID: str) -> Response:
        return data(of_view(await v2.view(sessionID), "elicitation"))

    @router.post("/api/session/{sessionID}/question/{requestID}/reply", response_model=None)
    async def question_reply(request: Request, sessionID: str, requestID: str) -> Response:
        """One list of labels a question, in their order."""
        v2.session_id(sessionID)
        body = await api.body(request, _question)
        view, asked = await find(sessionID, requestID, "elicitation")
        return await answer(request, view, asked, requests.answers(asked, body.answers))

    @router.post("/api/session/{sessionID}/question/{requestID}/reject", response_model=None)
    async def question_reject(request: Request, sessionID: str, requestID: str) -> Response:
        view, asked = await find(sessionID, requestID, "elicitation")
        return await answer(request, view, asked, Declined())
