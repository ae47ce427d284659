"""Finding in a folder of the workspace: files by name, lines by a regular expression."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode import files
from adapters.opencode.errors import json
from adapters.opencode.routes.api import Api, query

LINES = 200
NAMES = 100


class Text(msgspec.Struct, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=1000)]


class Name(msgspec.Struct, frozen=True):
    """``dirs`` says whether folders are told too, ``type`` which of the two only."""

    query: Annotated[str, Meta(max_length=1000)]
    dirs: bool | None = None
    type: Literal["file", "directory"] | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = NAMES


class Symbol(msgspec.Struct, frozen=True):
    query: str


def routes(api: Api) -> None:
    router = api.router

    @router.get("/find", response_model=None)
    async def text(request: Request) -> Response:
        """The first lines that a regular expression (Python's) matches, in files that are not ignored."""
        asked = query(request, Text)
        return json(await files.search(api.folder(request), api.roots, asked.pattern, LINES))

    @router.get("/find/file", response_model=None)
    async def names(request: Request) -> Response:
        """Files and folders by name, best first; a folder ends with a slash."""
        asked = query(request, Name)
        kind = asked.type or ("file" if asked.dirs is False else None)
        return json(await files.named(api.folder(request), api.roots, asked.query, kind, asked.limit))

    @router.get("/find/symbol", response_model=None)
    async def symbols(request: Request) -> Response:
        """Always empty: there is no language server."""
        query(request, Symbol)
        api.folder(request)
        return json([])
