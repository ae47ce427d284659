"""Errors in the forms that OpenCode's clients know. What was observed of the real server is kept where it says what is
wrong and where; its 500s for a client's mistake are 400s here.
"""

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.core.errors import ClientError, GatewayError, NotFound

NAMED = 80  # characters of what a client sent
_WHERE = re.compile(r"^(?P<what>.*?) - at `(?P<where>\$.*|key.*)`$", re.DOTALL)
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(_HIGH + rb"(?!" + _LOW + rb")|(?<!" + _HIGH + rb")" + _LOW)
_OF_LONE = re.compile("truncated|surrogate")  # what msgspec says of one
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


class Invalid(ClientError):
    """A request that is not of the form it should have. ``kind`` is Payload, Query or Params."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message, kind=kind)


class Tagged(NotFound):
    """The errors that are ``{"_tag", …}`` on this wire."""

    def __init__(self, tag: str, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.body = {"_tag": tag, **fields, "message": message}


class BadCursor(ClientError):
    """``before`` of the message list: the real server says no more than this; we say what is wrong as well."""


class InvalidCursor(ClientError):
    """A page's cursor of version 2."""


def cut(value: str) -> str:
    """What a client sent, as it is named in a message."""
    return value if len(value) <= NAMED else value[:NAMED] + "…"


def json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def error_response(request: Request, error: GatewayError) -> Response:
    """Any error of the gateway, for a path of this API."""
    if isinstance(error, Tagged):
        return json(error.body, error.status)
    if request.url.path.startswith("/api/"):
        return json({**_tagged(error), "message": error.message}, error.status)
    if isinstance(error, BadCursor):
        return json({"_tag": "BadRequest", "message": error.message}, 400)
    data: dict[str, Any] = {"message": error.message}
    if error.status == 400:
        data["kind"] = error.data.get("kind", "Payload")
        return json({"name": "BadRequest", "data": data}, 400)
    if error.status == 404:
        return json({"name": "NotFoundError", "data": data}, 404)
    name = {"conflict": "ConflictError", "session_busy": "SessionBusyError"}.get(error.code, _name(error.code))
    return json({"name": name, "data": data | {"code": error.code}}, error.status)


def _tagged(error: GatewayError) -> dict[str, Any]:
    """An error in the form of version 2, without its message."""
    data = error.data
    if isinstance(error, InvalidCursor):
        return {"_tag": "InvalidCursorError"}
    if error.status == 400:
        where = {"field": data["field"]} if "field" in data else {"kind": data.get("kind", "Payload")}
        return {"_tag": "InvalidRequestError", **where}
    if error.status == 404 and "session_id" in data:
        return {"_tag": "SessionNotFoundError", "sessionID": cut(str(data["session_id"]))}
    if error.status == 409:
        more: dict[str, Any] = {key: data[key] for key in ("resource", "result") if key in data}
        return {"_tag": "ConflictError", **more}
    if error.status == 503:
        return {"_tag": "ServiceUnavailableError", "service": data.get("service", "store")}
    return {"_tag": _name(error.code)}


def _name(code: str) -> str:
    if code == "internal":
        return "UnknownError"
    return "".join(word.capitalize() for word in code.split("_")) + "Error"


def decode(body: bytes, decoder: "msgspec.json.Decoder[Any]", default: Any = None) -> Any:
    """A request's body. ``default`` is for an empty one (None: it must not be empty). Raises Invalid."""
    if not body.strip():
        if default is None:
            raise Invalid("Expected object, got undefined", "Payload")
        return default
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Invalid(told(str(error)), "Payload") from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        lone = _LONE.search(body)
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        if lone is not None and _OF_LONE.search(why):
            why = f"{lone[0].decode()} is half of a surrogate pair, which is no character"
        raise Invalid(f"The body is not valid JSON: {why}", "Payload") from None


def told(message: str) -> str:
    """msgspec's words as the real server puts them: what, then ``at`` and the path of the field."""
    match = _WHERE.match(message)
    what, path = (match["what"], match["where"]) if match else (message, "$")
    steps = [f'["{name}"]' if name else f"[{index}]" for name, index in _STEP.findall(path)]
    missing = re.fullmatch(r"Object missing required field `(.+)`", what)
    if missing:
        what = "Missing key"
        steps.append(f'["{missing[1]}"]')
    return f"{what}\n  at {''.join(steps)}" if steps else what
