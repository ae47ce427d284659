"""What clients ask when they start: providers, agents, configuration, paths, projects; and what is empty here."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import structlog
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode.errors import cut, json
from adapters.opencode.routes import catalog
from adapters.opencode.routes.api import Api
from adapters.opencode.translate_messages import project_id
from adapters.opencode.wire import VERSION
from gateway.core.errors import NotFound

CONFIG = {"$schema": "https://opencode.ai/config.json", "share": "disabled", "autoupdate": False}

EMPTY: dict[str, Any] = {
    # no language servers, MCP servers, formatters, terminals … of the gateway's own: agents have theirs
    "/lsp": [],
    "/mcp": {},
    "/formatter": [],
    "/skill": [],
    "/pty": [],
    "/pty/shells": [],
    "/provider/auth": {},
    "/experimental/resource": {},
    "/experimental/tool/ids": [],
    "/experimental/worktree": [],
    "/experimental/workspace": [],
    "/experimental/workspace/adapter": [],
    "/experimental/workspace/status": [],
    "/experimental/capabilities": {"backgroundSubagents": False},
    "/experimental/console": {"consoleManagedProviders": [], "switchableOrgCount": 0},
}

LOGGED = 4096  # characters of what a client wants logged

_client_log = structlog.get_logger("opencode.client")


class LogEntry(msgspec.Struct, frozen=True):
    service: Annotated[str, Meta(max_length=256)]
    level: Literal["debug", "info", "warn", "error"]
    message: str
    extra: dict[str, Any] = {}


_entry = msgspec.json.Decoder(LogEntry)


def routes(api: Api) -> None:
    router = api.router
    controller = api.controller

    def project(directory: str) -> dict[str, Any]:
        return {
            "id": project_id(directory),
            "worktree": directory,
            "time": {"created": 0, "updated": 0},
            "sandboxes": [],
        }

    @router.get("/global/health", response_model=None)
    async def health() -> Response:
        return json({"healthy": True, "version": VERSION})

    @router.get("/config/providers", response_model=None)
    async def config_providers() -> Response:
        """The agents as providers."""
        await catalog.prepare(controller)
        return json({"providers": catalog.providers(controller), "default": catalog.defaults(controller)})

    @router.get("/provider", response_model=None)
    async def provider() -> Response:
        """The agents as providers, all connected."""
        await catalog.prepare(controller)
        found = catalog.providers(controller)
        return json({"all": found, "default": catalog.defaults(controller), "connected": [one["id"] for one in found]})

    @router.get("/agent", response_model=None)
    async def agent() -> Response:
        """The modes as OpenCode agents."""
        await catalog.prepare(controller)
        return json(catalog.agents(controller))

    @router.get("/command", response_model=None)
    async def command() -> Response:
        await catalog.prepare(controller)
        return json(catalog.commands(controller))

    @router.get("/config", response_model=None)
    async def config(request: Request) -> Response:
        api.directory(request)
        return json(CONFIG)

    @router.get("/global/config", response_model=None)
    async def global_config() -> Response:
        return json(CONFIG)

    @router.get("/path", response_model=None)
    async def path(request: Request) -> Response:
        """A directory is its own worktree: each is a project."""
        directory, data = api.directory(request), str(api.settings.data)
        home = str(Path.home())
        if not any(Path(home).is_relative_to(root) for root in api.roots):
            home = str(api.roots[0])  # clients look for folders in it, and outside of the workspace there is nothing
        return json({"home": home, "state": data, "config": data, "worktree": directory, "directory": directory})

    @router.get("/project", response_model=None)
    async def projects() -> Response:
        return json([project(str(root)) for root in api.roots])

    @router.get("/project/current", response_model=None)
    async def current(request: Request) -> Response:
        return json(project(api.directory(request)))

    @router.get("/project/{projectID}/directories", response_model=None)
    async def directories(projectID: str) -> Response:
        found = [str(root) for root in api.roots]
        found += [view.info.cwd for view in controller.recent()]
        for directory in found:
            if project_id(directory) == projectID:
                return json([{"directory": directory}])
        raise NotFound(f"Project not found: {cut(projectID)}")

    @router.post("/log", response_model=None)
    async def log(request: Request) -> Response:
        """A client's line in the gateway's log, with at most 4096 characters of each of its parts."""
        entry = await api.body(request, _entry)
        write = {"warn": _client_log.warning, "error": _client_log.error, "info": _client_log.info}
        extra = msgspec.json.encode(entry.extra).decode()[:LOGGED] if entry.extra else None
        told = {"service": entry.service, "said": entry.message[:LOGGED], **({"extra": extra} if extra else {})}
        write.get(entry.level, _client_log.debug)("a client says", **told)
        return json(True)

    for where, what in EMPTY.items():
        router.add_api_route(where, _constant(what), methods=["GET"], response_model=None, name=where)


def _constant(what: Any) -> Any:
    async def constant() -> Response:
        return json(what)

    return constant
