"""What every route of this API needs: the controller, the translation, the open streams, and reading a request."""

import os
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from fastapi import APIRouter, Depends
from starlette.requests import Request

from adapters.opencode.errors import NAMED, Invalid, cut, decode, told
from adapters.opencode.lookup import Lookup
from adapters.opencode.routes.catalog import News
from adapters.opencode.streams import Streams
from adapters.opencode.translate import Translator
from gateway.controller import SessionController
from gateway.core.errors import Forbidden, NotFound
from gateway.core.ids import SessionId
from gateway.core.model import By
from gateway.paths import confine
from gateway.settings import Settings
from gateway.views import SessionView

T = TypeVar("T")
HEADER = "x-opencode-directory"
LONGEST = 4096  # characters of a path


class Api:
    def __init__(self, controller: SessionController, settings: Settings) -> None:
        self.controller = controller
        self.settings = settings
        # One for all routes: a router in a router is taken apart and built again by the framework, at every level.
        self.router = APIRouter(tags=["opencode"], dependencies=[Depends(self.check_directory)])
        self.roots = [Path(os.path.realpath(root)) for root in settings.workspace]
        self.translator = Translator(controller.default_agent, Lookup(controller))
        self.streams = Streams(controller, self.translator, settings.max_subscribers, News(controller))

    @property
    def messages(self) -> Any:
        return self.translator.messages

    def by(self, request: Request) -> By:
        return By(getattr(request.state, "by_name", ""), "opencode")

    # --- where -----------------------------------------------------------------------------------------------------

    def asked_directory(self, request: Request) -> str | None:
        """The directory that a request names, real and inside of the workspace; None if it names none.

        Raises Forbidden for one outside.
        """
        given = request.query_params.get("directory") or unquote(request.headers.get(HEADER, ""))
        return self.confined(given) if given else None

    def directory(self, request: Request) -> str:
        """The same; the first workspace root where none is named."""
        return self.asked_directory(request) or str(self.roots[0])

    def folder(self, request: Request) -> str:
        """The same, where files are asked for: it must be there. Raises Invalid."""
        found = self.directory(request)
        if not os.path.isdir(found):
            raise Invalid(f'Not a folder: {cut(found)}\n  at ["directory"]', "Query")
        return found

    async def check_directory(self, request: Request) -> None:
        """For routes that do not ask where, too: a directory outside of the workspace is refused."""
        self.asked_directory(request)

    def confined(self, path: str) -> str:
        """The real path, inside of the workspace. Raises Forbidden."""
        if len(path) > LONGEST:
            raise Forbidden(f"{cut(path)!r} has {len(path)} characters, more than a path has ({LONGEST})")
        real = str(confine(path, self.roots))
        try:
            real.encode()
        except UnicodeEncodeError:  # a symlink to a folder whose name is no text
            raise Forbidden(f"{path!r} leads to a folder whose name is not UTF-8") from None
        return real

    # --- what ------------------------------------------------------------------------------------------------------

    async def body(self, request: Request, decoder: "msgspec.json.Decoder[T]", default: T | None = None) -> T:
        """The decoded body; ``default`` for an empty one. Raises Invalid, saying what is wrong and where."""
        found: T = decode(await request.body(), decoder, default)
        return found

    async def view(self, session_id: str) -> SessionView:
        """Raises Invalid for what is no session id, NotFound for an unknown one."""
        return await self.controller.view(self.session_id(session_id))

    def session_id(self, value: str) -> SessionId:
        if len(prefixed(value, "ses", "sessionID")) > NAMED:  # longer than any of ours
            raise NotFound(f"Session not found: {cut(value)}")
        return SessionId(value)


def prefixed(value: str, prefix: str, name: str, kind: str = "Params") -> str:
    if not value.startswith(prefix):
        raise Invalid(f'Expected a string starting with "{prefix}", got "{cut(value)}"\n  at ["{name}"]', kind)
    return value


def query(request: Request, kind: type[T]) -> T:
    """The query of a request as a struct of texts, numbers and truth values. Raises Invalid."""
    given = dict(request.query_params)
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        message = told(str(error))
        name = message.rpartition('["')[2].rstrip('"]')
        got = f", got {given[name][:80]!r}" if name in given else ""
        raise Invalid(message.replace("\n", got + "\n", 1), "Query") from None
