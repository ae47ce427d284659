"""Version 2 of the OpenCode API, under ``/api``: the same sessions, messages and requests as version 1."""

from fastapi import APIRouter

from adapters.opencode.api import absent, catalog, event, file, message, pending, prompt, request, session
from adapters.opencode.api.common import V2
from adapters.opencode.routes.api import Api

__all__ = ["routers"]


def routers(api: Api) -> list[APIRouter]:
    """One a resource."""
    v2 = V2(api)
    parts = (session, prompt, message, pending, event, request, catalog, file, absent)
    return [part.routes(v2) for part in parts]
