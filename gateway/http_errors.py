"""From an error to an HTTP answer: always JSON that says what and where, in the manner of the protocol asked.

A protocol that has its own form of errors registers a ``Renderer`` for its paths; everything else gets
``{"error": {"code", "message", "data"}}``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from gateway.core.errors import (
    ClientError,
    Conflict,
    Forbidden,
    GatewayError,
    Limit,
    NotFound,
    StoreError,
    TooLarge,
    Unauthorized,
)

_log = structlog.get_logger("http")


class MethodNotAllowed(ClientError):
    code = "method_not_allowed"
    status = 405


class UnsupportedMediaType(ClientError):
    code = "unsupported_media_type"
    status = 415


class MisdirectedRequest(ClientError):
    code = "misdirected_request"
    status = 421


class Renderer(Protocol):
    """One protocol's form of an error. Keeps ``error.status`` unless the protocol decides otherwise."""

    def __call__(self, request: Request, error: GatewayError, /) -> Response: ...


def render_default(request: Request, error: GatewayError) -> Response:
    body = {"code": error.code, "message": error.message, "data": error.data}
    return JSONResponse({"error": body}, status_code=error.status)


class Errors:
    """Which renderer is for which path: the longest registered prefix wins."""

    def __init__(self) -> None:
        self._renderers: list[tuple[str, Renderer]] = []

    def register(self, prefix: str, renderer: Renderer) -> None:
        """``prefix``: whole path segments, as ``/acp``; ``/`` is for every path that no other has."""
        self._renderers.append((prefix.rstrip("/"), renderer))
        self._renderers.sort(key=lambda entry: -len(entry[0]))

    def render(self, request: Request, error: GatewayError, headers: Mapping[str, str] | None = None) -> Response:
        path = request.scope["path"]
        response: Response | None = None
        for prefix, renderer in self._renderers:
            if path == prefix or path.startswith(prefix + "/"):
                response = renderer(request, error)
                break
        response = response if response is not None else render_default(request, error)
        response.headers.update(headers or {})
        return response


def install(app: FastAPI, errors: Errors) -> None:
    """Foreign errors are mapped to ours here, once."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, GatewayError)
        return errors.render(request, error)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return errors.render(request, from_http(request, error), error.headers)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return errors.render(request, from_validation(error.errors()))

    async def unexpected(request: Request, error: Exception) -> Response:
        # The text of a foreign error may hold anything; it goes to the log (by the server), not to the client.
        return errors.render(request, GatewayError("internal error; the gateway's log has the details"))

    async def left(request: Request, error: Exception) -> Response:
        """The client went away while it wrote its request: nobody reads this, and nothing is wrong here."""
        _log.debug("client left", method=request.method, path=request.scope["path"])
        return Response(status_code=400)

    default = app.router.default

    async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket to a path that there is not: 404, where the framework would say 403."""
        if scope["type"] == "websocket" and "websocket.http.response" in scope.get("extensions", {}):
            socket = WebSocket(scope, receive, send)
            request = Request({**scope, "type": "http", "method": "GET"})
            await socket.send_denial_response(errors.render(request, NotFound(f"there is no {scope['path']}")))
        else:
            await default(scope, receive, send)

    app.router.default = nowhere
    app.add_exception_handler(ClientDisconnect, left)
    app.add_exception_handler(GatewayError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, unexpected)


_BY_STATUS: Mapping[int, type[GatewayError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    413: TooLarge,
    415: UnsupportedMediaType,
    421: MisdirectedRequest,
    429: Limit,
    503: StoreError,
}


def from_http(request: Request, error: HTTPException) -> GatewayError:
    """Starlette's and FastAPI's own errors. Their texts for 404 and 405 do not say what was asked for."""
    place = f"{request.method} {request.scope['path']}"
    if error.status_code == 404 and error.detail == "Not Found":
        return NotFound(f"there is no {place}")
    if error.status_code == 405 and error.detail == "Method Not Allowed":
        allowed = (error.headers or {}).get("allow") or (error.headers or {}).get("Allow") or "none"
        return MethodNotAllowed(f"{place} is not possible; allowed: {allowed}")
    kind = _BY_STATUS.get(error.status_code, ClientError if error.status_code < 500 else GatewayError)
    mapped = kind(str(error.detail))
    if mapped.status != error.status_code:
        mapped.status = error.status_code
    return mapped


def from_validation(details: Sequence[Any]) -> ClientError:
    """FastAPI's list of what is wrong in a request, as one sentence that names each place."""
    problems = []
    for detail in details:
        place = list(detail["loc"])
        if detail["type"] == "json_invalid":
            why = (detail.get("ctx") or {}).get("error", "")
            return ClientError(f"the body is not valid JSON (character {place[-1]}): {why}".rstrip(": "))
        problems.append({"where": ".".join(str(part) for part in place), "what": detail["msg"]})
    text = "; ".join(f"{problem['where']}: {problem['what']}" for problem in problems)
    return ClientError(text or "the request is not valid", problems=problems)
