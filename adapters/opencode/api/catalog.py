"""What there is: agents, models, providers, commands; and what is empty here, because it is the agents' own."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode.api.common import V2
from adapters.opencode.errors import Tagged, cut, json
from adapters.opencode.routes import catalog

REQUEST: dict[str, Any] = {"headers": {}, "body": {}}


def routes(v2: V2) -> None:
    router = v2.api.router
    controller = v2.controller

    @router.get("/api/health", response_model=None)
    async def health() -> Response:
        return json({"healthy": True})

    @router.get("/api/location", response_model=None)
    async def location(request: Request) -> Response:
        """A directory is its own project."""
        return json(v2.location(request))

    @router.get("/api/agent", response_model=None)
    async def agents(request: Request) -> Response:
        """The modes as OpenCode agents."""
        return v2.located(request, [agent(one) for one in catalog.agents(controller)])

    @router.get("/api/provider", response_model=None)
    async def providers(request: Request) -> Response:
        """The agents as providers."""
        return v2.located(request, [provider(one) for one in catalog.providers(controller)])

    @router.get("/api/provider/{providerID}", response_model=None)
    async def one_provider(request: Request, providerID: str) -> Response:
        for one in catalog.providers(controller):
            if one["id"] == providerID:
                return v2.located(request, provider(one))
        said = cut(providerID)
        raise Tagged("ProviderNotFoundError", f"Provider not found: {said}", providerID=said)

    @router.get("/api/model", response_model=None)
    async def models(request: Request) -> Response:
        """The agents' model options."""
        found = [model(one) for each in catalog.providers(controller) for one in each["models"].values()]
        return v2.located(request, found)

    @router.get("/api/command", response_model=None)
    async def commands(request: Request) -> Response:
        """The slash commands of the agents in memory."""
        keys = ("name", "template", "description")
        return v2.located(request, [{key: one[key] for key in keys} for one in catalog.commands(controller)])

    @router.get("/api/integration/{integrationID}", response_model=None)
    async def integration(request: Request, integrationID: str) -> Response:
        """``null``, as for every unknown one."""
        return v2.located(request, None)

    for path in ("/api/integration", "/api/skill", "/api/reference"):
        router.add_api_route(path, _empty(v2), methods=["GET"], response_model=None, name=path)


def _empty(v2: V2) -> Any:
    async def empty(request: Request) -> Response:
        """Always empty: the agents have their own."""
        return v2.located(request, [])

    return empty


def agent(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": one["name"],
        "description": one["description"],
        "mode": one["mode"],
        "hidden": False,
        "request": REQUEST,
        "permissions": [],
    }


def provider(one: dict[str, Any]) -> dict[str, Any]:
    return {"id": one["id"], "name": one["name"], "api": {"type": "native", "settings": {}}, "request": REQUEST}


def model(one: dict[str, Any]) -> dict[str, Any]:
    can = one["capabilities"]
    media = {way: [kind for kind, able in can[way].items() if able] for way in ("input", "output")}
    return {
        "id": one["id"],
        "providerID": one["providerID"],
        "name": one["name"],
        "api": {"id": one["id"], "type": "native", "settings": {}},
        "capabilities": {"tools": can["toolcall"], **media},
        "request": REQUEST,
        "variants": [],
        "time": {"released": 0},
        "cost": [],
        "status": one["status"],
        "enabled": True,
        "limit": one["limit"],
    }
