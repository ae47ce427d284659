"""Version 2 of the OpenCode API, under ``/api``: the same sessions, messages and requests as version 1."""

from adapters.opencode.api import absent, catalog, event, file, message, pending, prompt, request, session
from adapters.opencode.api.common import V2
from adapters.opencode.routes.api import Api

__all__ = ["routes"]


def routes(api: Api) -> None:
    """All of them, onto the router of the API."""
    v2 = V2(api)
    for part in (session, prompt, message, pending, event, request, catalog, file, absent):
        part.routes(v2)
