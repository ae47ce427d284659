"""Sessions: list, create, read, change, delete; their children, plan, state; abort."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode import snapshot, translate_diff
from adapters.opencode.errors import Invalid, json
from adapters.opencode.routes import catalog
from adapters.opencode.routes.api import Api, prefixed, query
from adapters.opencode.translate import todos
from adapters.opencode.wire import DEFAULT_MODE, NewSession, Session, SessionPatch
from gateway.core.errors import NotSupported

Count = Annotated[int, Meta(ge=0, le=2**53)]

_new = msgspec.json.Decoder(NewSession)
_patch = msgspec.json.Decoder(SessionPatch)


class Listed(msgspec.Struct, frozen=True):
    """Query of the list. ``path`` and ``scope`` are taken and change nothing: a project is one directory here."""

    roots: bool = False
    start: Count | None = None
    search: str | None = None
    limit: Count | None = None
    archived: bool = False


class Diff(msgspec.Struct, frozen=True):
    messageID: str | None = None


def routes(api: Api) -> None:
    router = api.router
    controller = api.controller

    async def found(request: Request) -> list[Session]:
        asked = query(request, Listed)
        infos = await controller.sessions(
            roots=asked.roots,
            cwd=api.asked_directory(request),
            search=asked.search or None,
            start=asked.start,
            archived=None if asked.archived else False,
            limit=asked.limit or None,
        )
        return [api.messages.session(info) for info in infos]

    @router.get("/session", response_model=None)
    async def listed(request: Request) -> Response:
        """Sessions, newest first: of the directory that is asked for, else of the whole workspace."""
        return json(await found(request))

    @router.get("/experimental/session", response_model=None)
    async def everywhere(request: Request) -> Response:
        """The same list, each session with its project."""
        told = await found(request)
        projects = [{"id": one.projectID, "worktree": one.directory} for one in told]
        return json([{**msgspec.to_builtins(s), "project": p} for s, p in zip(told, projects, strict=True)])

    @router.post("/session", response_model=None)
    async def create(request: Request) -> Response:
        """A new session in a directory of the workspace."""
        asked = await api.body(request, _new, NewSession())
        directory = api.directory(request)
        if not Path(directory).is_dir():
            raise Invalid(f'Not a folder: {directory}\n  at ["directory"]', "Query")
        if asked.parentID is not None:
            await api.view(asked.parentID)
            raise NotSupported('Only agents start child sessions here\n  at ["parentID"]')
        agent, model, mode = "", "", ""
        if asked.model is not None:
            agent = catalog.agent_named(controller, asked.model.providerID)
            model = catalog.model_named(catalog.models_known(controller, agent), asked.model.id, "id")
        if asked.agent is not None and asked.agent != DEFAULT_MODE:
            mode, known = asked.agent, list(catalog.all_modes(controller))
            if mode not in known:
                raise catalog.no_mode(mode, known)
        meta = {"opencode": {"permission": asked.permission}} if asked.permission else None
        info = await controller.create(
            cwd=directory, agent=agent, title=asked.title or "", mode=mode, model=model, meta=meta, by=api.by(request)
        )
        return json(api.messages.session(info))

    @router.get("/session/status", response_model=None)
    async def states(request: Request) -> Response:
        """The sessions that are in a turn."""
        directory = api.asked_directory(request)
        busy = controller.busy()
        views = [v for v in controller.recent() if v.info.id in busy and directory in (None, v.info.cwd)]
        return json({view.info.id: {"type": "busy"} for view in views})

    @router.get("/session/{sessionID}", response_model=None)
    async def get(sessionID: str) -> Response:
        return json(api.messages.session((await api.view(sessionID)).info))

    @router.patch("/session/{sessionID}", response_model=None)
    async def patch(request: Request, sessionID: str) -> Response:
        """Change ``title`` and ``time.archived``."""
        session_id = api.session_id(sessionID)
        asked = await api.body(request, _patch)
        changes: dict[str, Any] = {}
        if not isinstance(asked.title, UnsetType):
            changes["title"] = asked.title
        if not isinstance(asked.time, UnsetType) and asked.time.archived is not UNSET:
            changes["archived"] = asked.time.archived
        if not changes:
            return json(api.messages.session((await api.view(session_id)).info))
        return json(api.messages.session(await controller.update(session_id, **changes, by=api.by(request))))

    @router.delete("/session/{sessionID}", response_model=None)
    async def delete(request: Request, sessionID: str) -> Response:
        """The session and its children are gone."""
        await controller.delete(api.session_id(sessionID), by=api.by(request))
        return json(True)

    @router.get("/session/{sessionID}/children", response_model=None)
    async def children(sessionID: str) -> Response:
        """Sessions of the agent's own subagents."""
        info = (await api.view(sessionID)).info
        infos = await controller.sessions(parent_id=info.id)
        return json([api.messages.session(child) for child in infos])

    @router.get("/session/{sessionID}/todo", response_model=None)
    async def todo(sessionID: str) -> Response:
        """The agent's plan."""
        return json(todos(snapshot.plan(await api.view(sessionID))))

    @router.get("/session/{sessionID}/diff", response_model=None)
    async def diff(request: Request, sessionID: str) -> Response:
        """What the agent's tool calls changed in files, as far as it told; ``messageID``: in answer to that message."""
        asked = query(request, Diff)
        view = await api.view(sessionID)
        if asked.messageID is not None:
            prefixed(asked.messageID, "msg", "messageID", "Query")
        found = translate_diff.of_items(view.transcript.items, asked.messageID or "")
        return json([translate_diff.shown(one, view.info.cwd) for one in found])

    @router.post("/session/{sessionID}/abort", response_model=None)
    async def abort(request: Request, sessionID: str) -> Response:
        """Cancel the running turn; without one nothing happens. Pending messages are held."""
        await controller.abort(api.session_id(sessionID), by=api.by(request))
        return json(True)
