"""The routes of the OpenCode v1 API, split by resource. They decode, ask the controller, and encode."""

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute

from adapters.opencode.routes import event, message, permission, session, startup
from adapters.opencode.routes.api import Api
from gateway.controller import SessionController
from gateway.settings import Settings

__all__ = ["router"]


def router(controller: SessionController, settings: Settings) -> APIRouter:
    """All routes, at the root."""
    api = Api(controller, settings)
    whole = APIRouter(tags=["opencode"], dependencies=[Depends(api.check_directory)])
    for part in (startup, event, session, message, permission):
        whole.include_router(_with_head(part.routes(api)))
    return whole


def _with_head(router: APIRouter) -> APIRouter:
    """HEAD wherever GET is."""
    for route in list(router.routes):
        if isinstance(route, APIRoute) and "GET" in (route.methods or ()):
            router.add_api_route(
                route.path, route.endpoint, methods=["HEAD"], include_in_schema=False, response_model=None
            )
    return router
