"""The guard in front of every request: who may come in, from where, with what body.

Without a token (loopback only) no web page may drive the gateway: the Host must be one of this machine's names (a page
that rebinds its own name to 127.0.0.1 still sends that name), and an Origin must be the gateway's own or a listed one.
With a token, whoever sends it is in. Pure ASGI: it wraps ``send`` to add headers and buffers nothing.
"""

import base64
import binascii
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.core.errors import ClientError, Forbidden, GatewayError, TooLarge, Unauthorized
from gateway.http_errors import Errors, MisdirectedRequest, UnsupportedMediaType
from gateway.paths import confine
from gateway.settings import Settings

__all__ = ["COOKIE", "HEALTH", "Guard", "check_bind", "confine"]

COOKIE = "trunkline_token"
HEALTH = "/health"
"""Open to everybody, and says nothing but that the process answers."""

NOBODY = "local"
"""``by_name`` of whoever comes in where no token is set."""

WITH_BODY = {"POST", "PUT", "PATCH"}
JSON_TYPE = re.compile(r"application/(json|[\w.+-]+\+json)\s*(;.*)?", re.IGNORECASE)
HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~ ,-]{0,1000}")

CORS_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
CORS_HEADERS = (
    "authorization, content-type, last-event-id, x-opencode-directory, x-opencode-workspace, "
    "acp-connection-id, acp-session-id, acp-protocol-version"
)
CORS_EXPOSED = "link, location, x-next-cursor, acp-connection-id, acp-session-id"


def check_bind(settings: Settings) -> str:
    """Why the gateway must not listen on ``settings.host``, as a sentence for people; empty if it may."""
    if settings.on_loopback() or settings.named_tokens():
        return ""
    return (
        f"--host {settings.host}: other machines could reach this address and no token is set, so anybody on the "
        "network could run commands here. Set TRUNKLINE_TOKEN (or token in trunkline.toml), or use --host 127.0.0.1"
    )


class Guard:
    """The outermost ASGI layer."""

    def __init__(self, app: ASGIApp, settings: Settings, errors: Errors) -> None:
        self.app = app
        self._errors = errors
        self._tokens = {name: token.encode() for name, token in settings.named_tokens().items()}
        self._hosts = {"localhost", *settings.allow_hosts}
        self._origins = frozenset(settings.allow_origins)
        self._max_body = settings.max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope.setdefault("state", {})["by_name"] = NOBODY
        send = self._with_headers(headers, send)
        try:
            if self._is_preflight(scope, headers):
                await self._preflight(headers)(scope, receive, send)
                return
            if scope["path"] != HEALTH:
                scope["state"]["by_name"] = self._admit(scope, headers)
            self._check_body(scope, headers)
        except GatewayError as error:
            await self._refuse(scope, receive, send, error)
            return
        if scope["type"] == "http" and _has_body(headers):
            await self._limited(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    # Who comes in.

    def _admit(self, scope: Scope, headers: Headers) -> str:
        """The name of who asks. Raises what keeps them out."""
        if not self._tokens:
            self._check_host(headers)
            self._check_origin(scope, headers)
            return NOBODY
        scheme, _, value = headers.get("authorization", "").partition(" ")
        name = self._known(_tokens_of(scheme.lower(), value.strip(), headers))
        if name is None:
            raise Unauthorized("a token is needed: as Authorization: Bearer TOKEN, or as the password of Basic")
        if scheme.lower() != "bearer":
            # A browser adds a cookie and a Basic password by itself, also to what another site's page asks for.
            self._check_origin(scope, headers)
        return name

    def _known(self, candidates: Iterable[bytes]) -> str | None:
        """Every candidate is compared with every token, so that the time says nothing about which one was near."""
        found: str | None = None
        for candidate in candidates:
            for name, token in self._tokens.items():
                if hmac.compare_digest(candidate, token):
                    found = name
        return found

    def _check_host(self, headers: Headers) -> None:
        named = headers.getlist("host")
        host = _host_of(named[0]) if len(named) == 1 else ""
        if host in self._hosts or _is_loopback(host):
            return
        raise MisdirectedRequest(f"Host {', '.join(named)!r} is not a name of this gateway; allow_hosts adds names")

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is not None:
            if origin.lower() in self._origins or _same_origin(origin.lower(), headers.get("host", "").lower()):
                return
            raise Forbidden(f"a page of {origin!r} may not use this gateway; allow_origins adds web apps")
        # Without an Origin: no browser, or its own page, or a page elsewhere that only embeds (an image, a script).
        site, mode = headers.get("sec-fetch-site", ""), headers.get("sec-fetch-mode", "")
        if site in ("cross-site", "same-site") and (mode != "navigate" or scope.get("method") != "GET"):
            raise Forbidden("a page of another site may not use this gateway")

    # What they bring.

    def _check_body(self, scope: Scope, headers: Headers) -> None:
        """A plain form of another site can post text/plain without asking first; JSON it cannot."""
        if scope["type"] != "http" or not _has_body(headers):
            return
        kind = headers.get("content-type", "")
        if scope["method"] in WITH_BODY and not JSON_TYPE.fullmatch(kind.strip()):
            said = f"not {kind!r}" if kind else "and there is none"
            raise UnsupportedMediaType(f"Content-Type must be application/json, {said}")

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body is larger than max_body, {self._max_body} bytes", limit=self._max_body)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body is counted as it comes. Beyond the limit the answer is 413, in any case."""
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdigit() and int(declared) > self._max_body:
            await self._drain(receive, int(declared))
            await self._refuse(scope, receive, send, self._too_large())
            return
        seen, started, exceeded = 0, False, False

        async def counted() -> Message:
            nonlocal seen, exceeded
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > self._max_body:
                    exceeded = True
                    # An HTTPException is what FastAPI lets through unchanged while it reads a body.
                    raise HTTPException(413)
            return message

        async def guarded(message: Message) -> None:
            nonlocal started
            if exceeded and not started:
                return
            started = True
            await send(message)

        try:
            await self.app(scope, counted, guarded)
        except HTTPException:
            if not exceeded:
                raise
        if exceeded and not started:
            await self._drain(receive, self._max_body)
            await self._refuse(scope, receive, send, self._too_large())

    async def _drain(self, receive: Receive, expected: int) -> None:
        """Read on, so that a client that is still writing gets the answer and no reset; but not without end."""
        seen, limit = 0, min(expected, 4 * self._max_body)
        while seen < limit:
            message = await receive()
            if message["type"] != "http.request" or not message.get("more_body"):
                return
            seen += len(message.get("body", b""))

    # What they get.

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, error: GatewayError) -> None:
        extra = {}
        if isinstance(error, Unauthorized):
            extra["WWW-Authenticate"] = 'Basic realm="trunkline"'
        if isinstance(error, TooLarge):
            extra["Connection"] = "close"
        if scope["type"] == "websocket":
            await receive()  # websocket.connect
            if "websocket.http.response" not in scope.get("extensions", {}):
                await send({"type": "websocket.close", "code": 1008})  # before accepting: the server answers 403
                return
        request = Request({**scope, "type": "http", "method": scope.get("method", "GET")})
        await self._errors.render(request, error, extra)(scope, receive, send)

    def _is_preflight(self, scope: Scope, headers: Headers) -> bool:
        return (
            scope["type"] == "http"
            and scope["method"] == "OPTIONS"
            and "origin" in headers
            and "access-control-request-method" in headers
        )

    def _preflight(self, headers: Headers) -> Response:
        """A browser asks, without credentials, whether a page may. Raises Forbidden for pages that may not."""
        if headers["origin"].lower() not in self._origins:
            raise Forbidden(f"a page of {headers['origin']!r} may not use this gateway; allow_origins adds web apps")
        asked = headers.get("access-control-request-headers", "")
        if not HEADER_NAMES.fullmatch(asked):
            raise ClientError("Access-Control-Request-Headers is not a list of header names")
        allowed = {
            "Access-Control-Allow-Methods": CORS_METHODS,
            "Access-Control-Allow-Headers": ", ".join(filter(None, (CORS_HEADERS, asked))),
            "Access-Control-Max-Age": "600",
        }
        if headers.get("access-control-request-private-network") == "true":
            allowed["Access-Control-Allow-Private-Network"] = "true"
        return Response(status_code=204, headers=allowed)

    def _with_headers(self, headers: Headers, send: Send) -> Send:
        extra = [(b"x-content-type-options", b"nosniff")]
        if self._origins:
            extra.append((b"vary", b"Origin"))
            origin = headers.get("origin", "")
            if origin.lower() in self._origins:
                extra += [
                    (b"access-control-allow-origin", origin.encode("latin-1")),
                    (b"access-control-allow-credentials", b"true"),
                    (b"access-control-expose-headers", CORS_EXPOSED.encode()),
                ]

        async def wrapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        return wrapped


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0").strip() not in ("", "0") or "transfer-encoding" in headers


def _tokens_of(scheme: str, value: str, headers: Headers) -> list[bytes]:
    """What the request offers as a token. A URL's query is no place for one: it ends in logs and histories."""
    if scheme == "bearer":
        return [value.encode("utf-8", "replace")]
    if scheme == "basic":
        try:
            return [base64.b64decode(value, validate=True).partition(b":")[2]]
        except (binascii.Error, ValueError):
            return []
    cookies = cookie_parser(headers.get("cookie", ""))
    return [cookies[COOKIE].encode("utf-8", "replace")] if COOKIE in cookies else []


def _host_of(value: str) -> str:
    """The name in a Host header, without its port, in lower case; empty if it is none."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?", value.strip())
    return match[1].lower() if match else ""


def _is_loopback(host: str) -> bool:
    """An address cannot be rebound by a name server, so any address of this machine itself is good."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


_DEFAULT_PORTS: Mapping[str, str] = {"http": ":80", "https": ":443"}


def _same_origin(origin: str, host: str) -> bool:
    """Whether the page came from the very address that the request goes to. The scheme is not compared: TLS may end
    at a proxy in front of us.
    """
    scheme, _, name = origin.partition("://")
    default = _DEFAULT_PORTS.get(scheme)
    if default is None or not name or not host:
        return False
    return name.removesuffix(default) == host.removesuffix(default)
