"""Sessions: create, list in pages, read; which are in a turn; their mode and model; wait, interrupt, compact."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode.api.common import LARGEST, V2, data, number, order, pack, unpack
from adapters.opencode.errors import Invalid, cut, json
from adapters.opencode.routes import catalog
from adapters.opencode.routes.api import query
from adapters.opencode.translate_messages import project_id
from adapters.opencode.wire import DEFAULT_MODE
from adapters.opencode.wire_v2 import AgentChoice, ModelChoice, ModelRef, NewSession
from gateway.core.content import Text
from gateway.core.errors import Conflict, Forbidden, StoreError
from gateway.core.ids import SessionId
from gateway.core.model import SessionInfo
from gateway.store_writer import Taken
from gateway.views import SessionView

PAGE = 50
COMPACT = ("compact", "compress", "summarize")  # what agents call it

_new = msgspec.json.Decoder(NewSession)
_agent = msgspec.json.Decoder(AgentChoice)
_model = msgspec.json.Decoder(ModelChoice)


class Anchor(msgspec.Struct, frozen=True):
    id: Annotated[str, Meta(max_length=256)]
    time: Annotated[int, Meta(ge=0, le=LARGEST)]
    direction: Literal["next", "previous"]


class Listed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a list is of. A cursor says it all again: where there is one, the rest of the query changes nothing."""

    order: Literal["asc", "desc"] = "desc"
    search: Annotated[str, Meta(max_length=1024)] = ""
    directory: Annotated[str, Meta(max_length=4096)] = ""
    project: Annotated[str, Meta(max_length=256)] = ""
    anchor: Anchor | None = None


def routes(v2: V2) -> None:
    router = v2.api.router
    api, controller = v2.api, v2.controller

    @router.post("/api/session", response_model=None)
    async def create(request: Request) -> Response:
        """A new session. A known ``id`` is the session that has it, as it is."""
        asked = await api.body(request, _new)
        if asked.id is not None:
            known = await controller.info(SessionId(asked.id))
            if known is not None:
                return data(v2.messages.session(known))
        directory = api.confined(asked.location.directory) if asked.location is not None else v2.directory(request)
        if not Path(directory).is_dir():
            raise Invalid(f'Not a folder: {cut(directory)}\n  at ["location"]["directory"]', "Payload")
        agent = model = mode = ""
        if asked.model is not None:
            agent = catalog.agent_named(controller, asked.model.providerID)
            model = catalog.model_named(catalog.models_known(controller, agent), asked.model.id, "id")
        if asked.agent is not None and asked.agent != DEFAULT_MODE:
            mode, modes = asked.agent, list(catalog.all_modes(controller))
            if mode not in modes:
                raise catalog.no_mode(mode, modes)
        own_id = SessionId(asked.id) if asked.id is not None else None
        by = api.by(request)
        try:
            info = await controller.create(cwd=directory, agent=agent, model=model, mode=mode, session_id=own_id, by=by)
        except Taken as taken:
            known = await controller.info(taken.session_id)  # somebody was as fast
            if known is None:
                raise Conflict(f"{asked.id} was a session that is deleted", resource=asked.id) from None
            info = known
        return data(v2.messages.session(info))

    @router.get("/api/session", response_model=None)
    async def listed(request: Request) -> Response:
        """Sessions by the time of their creation. ``cursor`` goes on from a page of the same list."""
        limit = number(request, "limit", PAGE, low=1)
        given = request.query_params.get("cursor")
        if given:
            asked = unpack(given, Listed)
        else:
            order(request)
            asked = query(request, Listed)
        cwd = place(asked)
        anchor = asked.anchor
        back = anchor is not None and anchor.direction == "previous"
        found: list[SessionInfo] = []
        if cwd is not NOWHERE:
            found = await controller.page(
                limit=limit,
                ascending=(asked.order == "asc") != back,
                after=(anchor.time, anchor.id) if anchor is not None else None,
                cwd=cwd or None,
                search=asked.search or None,
            )
        if back:
            found.reverse()
        ends = {"previous": found[:1], "next": found[-1:]}
        cursor = {way: mark(asked, infos[0], way) if infos else None for way, infos in ends.items()}
        return json({"data": [v2.messages.session(info) for info in found], "cursor": cursor})

    def place(asked: Listed) -> str | None:
        """The directory to look in: empty for all, NOWHERE where there is none such. A project is one directory."""
        try:
            cwd = api.confined(asked.directory) if asked.directory else ""
        except Forbidden:
            return NOWHERE
        if not asked.project:
            return cwd
        known = [cwd] if cwd else [*map(str, api.roots), *(view.info.cwd for view in controller.recent())]
        return next((one for one in known if project_id(one) == asked.project), NOWHERE)

    @router.get("/api/session/active", response_model=None)
    async def active() -> Response:
        """The sessions that are in a turn, or about to be."""
        return data({session_id: {"type": "running"} for session_id in controller.busy()})

    @router.get("/api/session/{sessionID}", response_model=None)
    async def get(sessionID: str) -> Response:
        return data(v2.messages.session((await v2.view(sessionID)).info))

    # --- choosing --------------------------------------------------------------------------------------------------

    @router.post("/api/session/{sessionID}/agent", response_model=None)
    async def choose_agent(request: Request, sessionID: str) -> Response:
        """Another mode."""
        view = await v2.view(sessionID)
        asked = await api.body(request, _agent)
        if asked.agent not in (DEFAULT_MODE, view.info.mode):
            modes = [str(mode["id"]) for mode in catalog.modes_of(view)] or list(catalog.all_modes(controller))
            if asked.agent not in modes:
                raise catalog.no_mode(asked.agent, modes)
            await controller.update(view.info.id, mode=asked.agent, by=api.by(request))
        return Response(status_code=204)

    @router.post("/api/session/{sessionID}/model", response_model=None)
    async def choose_model(request: Request, sessionID: str) -> Response:
        """Another model of the session's agent; a session without one is bound to it."""
        view = await v2.view(sessionID)
        asked = await api.body(request, _model)
        changes = model_of(view, asked.model)
        if changes:
            await controller.update(view.info.id, **changes, by=api.by(request))
        return Response(status_code=204)

    def model_of(view: SessionView, asked: ModelRef) -> dict[str, Any]:
        agent = catalog.agent_named(controller, asked.providerID)
        if view.info.agent not in ("", agent):
            raise Conflict(
                f'This session is bound to the provider "{view.info.agent}": open another session for "{agent}"\n'
                '  at ["model"]["providerID"]'
            )
        known = catalog.models_of(view) if view.info.agent else catalog.models_known(controller, agent)
        model = catalog.model_named(known, asked.id, "id")
        changes = {} if view.info.agent else {"agent": agent}
        return changes if model in ("", view.info.model) else {**changes, "model": model}

    # --- the turn --------------------------------------------------------------------------------------------------

    @router.post("/api/session/{sessionID}/wait", response_model=None)
    async def wait(sessionID: str) -> Response:
        """Answered when the session is idle: no turn runs, and nothing will begin one by itself."""
        await controller.wait(v2.session_id(sessionID))
        return Response(status_code=204)

    @router.post("/api/session/{sessionID}/interrupt", response_model=None)
    async def interrupt(request: Request, sessionID: str) -> Response:
        """Cancel the running turn. What is pending stays, and goes with the next prompt."""
        await controller.abort(v2.session_id(sessionID), by=api.by(request))
        return Response(status_code=204)

    @router.post("/api/session/{sessionID}/compact", response_model=None)
    async def compact(request: Request, sessionID: str) -> Response:
        """The agent's own slash command for it, where it has one."""
        view = await v2.view(sessionID)
        if view.commands is None:  # it says so when it runs
            view = await controller.wake(view.info.id, by=api.by(request))
        offered = [str(c.get("name")) for c in view.commands or () if isinstance(c, dict)]
        name = next((name for name in COMPACT if name in offered), None)
        if name is None:
            told = f"The agent {view.info.agent!r} offers no command for it (it offers: {', '.join(offered) or 'none'})"
            raise Unavailable(told, service="session.compact")
        await controller.submit(view.info.id, (Text(f"/{name}"),), delivery="queue", by=api.by(request))
        return Response(status_code=204)


NOWHERE = None


class Unavailable(StoreError):
    """What the real server answers with 503."""

    code = "not_supported"


def mark(asked: Listed, info: SessionInfo, direction: str) -> str:
    anchor = {"id": info.id, "time": info.created, "direction": direction}
    return pack(msgspec.structs.replace(asked, anchor=msgspec.convert(anchor, Anchor)))
