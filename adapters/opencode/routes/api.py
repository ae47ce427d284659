"""What every route of this API needs: the controller, the translation, the open streams, and reading a request."""

import os
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.requests import Request

from adapters.opencode.errors import Invalid, decode, told
from adapters.opencode.streams import Streams
from adapters.opencode.translate import Translator
from gateway.controller import SessionController, SessionView
from gateway.core.ids import SessionId
from gateway.core.model import By
from gateway.paths import confine
from gateway.settings import Settings

T = TypeVar("T")
HEADER = "x-opencode-directory"


class Api:
    def __init__(self, controller: SessionController, settings: Settings) -> None:
        self.controller = controller
        self.settings = settings
        self.roots = [Path(os.path.realpath(root)) for root in settings.workspace]
        self.translator = Translator(controller.default_agent)
        self.streams = Streams(controller, self.translator, settings.max_subscribers)

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
        return str(confine(given, self.roots)) if given else None

    def directory(self, request: Request) -> str:
        """The same; the first workspace root where none is named."""
        return self.asked_directory(request) or str(self.roots[0])

    # --- what ------------------------------------------------------------------------------------------------------

    async def body(self, request: Request, decoder: "msgspec.json.Decoder[T]", default: T | None = None) -> T:
        """The decoded body; ``default`` for an empty one. Raises Invalid, saying what is wrong and where."""
        found: T = decode(await request.body(), decoder, default)
        return found

    async def view(self, session_id: str) -> SessionView:
        """Raises Invalid for what is no session id, NotFound for an unknown one."""
        return await self.controller.view(self.session_id(session_id))

    def session_id(self, value: str) -> SessionId:
        return SessionId(prefixed(value, "ses", "sessionID"))


def prefixed(value: str, prefix: str, name: str, kind: str = "Params") -> str:
    if not value.startswith(prefix):
        raise Invalid(f'Expected a string starting with "{prefix}", got "{value[:200]}"\n  at ["{name}"]', kind)
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
