"""The routes of the OpenCode API, split by resource. They decode, ask the controller, and encode."""

from fastapi import APIRouter

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
    prompting = Prompting(api)
    for part in (startup, event, session, permission, file, find, vcs, absent):
        part.routes(api)
    for of_prompts in (message, action):
        of_prompts.routes(api, prompting)
    v2.routes(api)
    doc.routes(api.router)
    return api.router
