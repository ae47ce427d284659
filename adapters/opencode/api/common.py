"""What every route of version 2 needs: names, numbers, cursors and places of a request."""

import base64
import binascii
from typing import Any, TypeVar

import msgspec
from msgspec import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode.api.streams import StreamsV2
from adapters.opencode.errors import NAMED, Invalid, InvalidCursor, Tagged, cut, json
from adapters.opencode.routes.api import Api, prefixed
from adapters.opencode.translate_messages import project_id
from adapters.opencode.translate_v2 import TranslatorV2
from gateway.core.errors import ClientError, NotFound
from gateway.core.ids import SessionId
from gateway.views import SessionView

T = TypeVar("T")
LARGEST = 2**53 - 1
DIGITS = 40  # of a number in a query
ORDERS = ("asc", "desc")


class V2:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.controller = api.controller
        self.translator = TranslatorV2(api.messages)
        self.messages = self.translator.messages
        self.streams = StreamsV2(api.controller, self.translator)

    # --- where -----------------------------------------------------------------------------------------------------

    def directory(self, request: Request) -> str:
        """``location[directory]``, else what version 1 asks by, else the first root. Raises Forbidden."""
        given = request.query_params.get("location[directory]")
        return self.api.confined(given) if given else self.api.directory(request)

    def location(self, request: Request) -> dict[str, Any]:
        directory = self.directory(request)
        return {"directory": directory, "project": {"id": project_id(directory), "directory": directory}}

    def located(self, request: Request, data: Any) -> Response:
        return json({"location": self.location(request), "data": data})

    # --- what ------------------------------------------------------------------------------------------------------

    def session_id(self, value: str) -> SessionId:
        if not value.startswith("ses"):
            raise ClientError("Invalid session ID", field="sessionID")
        if len(value) > NAMED:  # longer than any of ours
            raise NotFound(f"Session not found: {cut(value)}", session_id=value)
        return SessionId(value)

    def message_id(self, value: str) -> str:
        return prefixed(value, "msg_", "messageID")

    async def view(self, session_id: str) -> SessionView:
        return await self.controller.view(self.session_id(session_id))


def data(value: Any) -> Response:
    return json({"data": value})


def no_message(session_id: str, message_id: str) -> Tagged:
    said = cut(message_id)
    return Tagged("MessageNotFoundError", f"Message not found: {said}", sessionID=session_id, messageID=said)


# --- queries ---------------------------------------------------------------------------------------------------------


def number(request: Request, name: str, default: int, low: int = 0, high: int = LARGEST) -> int:
    """An integer of the query. Raises Invalid in the real server's words."""
    given = request.query_params.get(name)
    return default if given is None else integer(given, name, low, high)


def integer(given: str, name: str, low: int = 0, high: int = LARGEST, kind: str = "Query") -> int:
    where = f'\n  at ["{name}"]'
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= DIGITS):
        raise Invalid(f"Expected an integer, got {cut(given)!r}{where}", kind)
    value = int(given)
    if value < low:
        raise Invalid(f"Expected a value greater than or equal to {low}, got {value}{where}", kind)
    if value > high:
        raise Invalid(f"Expected a value less than or equal to {high}, got {value}{where}", kind)
    return value


def order(request: Request, default: str = "desc") -> str:
    given = request.query_params.get("order", default)
    if given not in ORDERS:
        raise Invalid(f'Expected "asc" | "desc", got "{cut(given)}"\n  at ["order"]', "Query")
    return given


# --- cursors ---------------------------------------------------------------------------------------------------------


def pack(value: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def unpack(text: str, kind: type[T]) -> T:
    """Raises InvalidCursor."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=kind)
    except (ValidationError, msgspec.DecodeError, binascii.Error, ValueError):
        raise InvalidCursor("Invalid cursor") from None
