"""What this API is, told by itself."""

from fastapi import APIRouter
from starlette.responses import Response

from adapters.opencode.describe import described
from adapters.opencode.errors import json


def routes(whole: APIRouter) -> None:
    """``whole``: the router of all routes of this API, this one included."""

    @whole.get("/doc", response_model=None)
    async def doc() -> Response:
        """This API as OpenAPI."""
        return json(described(whole.routes))
