"""The routes of the OpenCode v1 API, split by resource. They decode, ask the controller, and encode."""

from fastapi import APIRouter

from adapters.opencode.routes import event, message, permission, session, startup
from adapters.opencode.routes.api import Api
from gateway.controller import SessionController
from gateway.settings import Settings

__all__ = ["router"]


def router(controller: SessionController, settings: Settings) -> APIRouter:
    """All routes, at the root."""
    api = Api(controller, settings)
    whole = APIRouter(tags=["opencode"])
    for part in (startup, event, session, message, permission):
        whole.include_router(part.routes(api))
    return whole
