"""The routes of the OpenCode API, split by resource. They decode, ask the controller, and encode."""

from fastapi import APIRouter, Depends

from adapters.opencode import api as v2
from adapters.opencode.routes import absent, action, doc, event, file, find, message, permission, session, startup, vcs
from adapters.opencode.routes.api import Api
from adapters.opencode.routes.prompting import Prompting
from gateway.controller import SessionController
from gateway.settings import Settings

__all__ = ["router"]


def router(controller: SessionController, settings: Settings) -> APIRouter:
    """All routes, at the root."""
    api = Api(controller, settings)
    whole = APIRouter(tags=["opencode"], dependencies=[Depends(api.check_directory)])
    prompting = Prompting(api)
    for part in (startup, event, session, permission, file, find, vcs, absent):
        whole.include_router(part.routes(api))
    for of_prompts in (message, action):
        whole.include_router(of_prompts.routes(api, prompting))
    for of_version_2 in v2.routers(api):
        whole.include_router(of_version_2)
    whole.include_router(doc.routes(whole))
    return whole

