"""Who may come in: no web page without a token, nobody without one elsewhere; and paths stay inside the roots."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import Message, Scope
from starlette.websockets import WebSocket

from gateway.core.errors import Forbidden, GatewayError
from gateway.http_errors import Errors
from gateway.security import Guard, check_bind, confine
from gateway.settings import Settings

HERE = "http://127.0.0.1:4096"


async def echo(request: Request) -> Response:
    body = await request.body()
    return JSONResponse({"by": request.scope["state"]["by_name"], "size": len(body)})


async def health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def talk(socket: WebSocket) -> None:
    await socket.accept()
    await socket.close()


def guarded(errors: Errors | None = None, **settings: Any) -> Guard:
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    app = Starlette(routes=[Route("/health", health), Route("/x", echo, methods=methods), WebSocketRoute("/ws", talk)])
    return Guard(app, Settings(**settings), errors or Errors())


async def ask(guard: Guard, method: str = "GET", path: str = "/x", **request: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=HERE) as client:
        return await client.request(method, path, **request)


# Where it may listen.


def test_elsewhere_needs_a_token() -> None:
    said = check_bind(Settings(host="0.0.0.0"))
    assert "TRUNKLINE_TOKEN" in said and "--host 0.0.0.0" in said
    assert check_bind(Settings(host="0.0.0.0", token=SecretStr("t"))) == ""
    assert check_bind(Settings(host="0.0.0.0", tokens={"ann": SecretStr("t")})) == ""
    assert check_bind(Settings(host="localhost")) == ""


# Without a token: Host.


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:4096", "LocalHost:80", "[::1]:4096", "[::1]", "127.0.0.9:1"])
async def test_own_hosts(host: str) -> None:
    assert (await ask(guarded(), headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:4096", "127.0.0.1.evil.example", "localhost.evil.example", "localhost@evil",
             "", "10.0.0.1", "0.0.0.0", "localhost:4096:1", "[::2]"],
)  # fmt: skip
async def test_foreign_hosts(host: str) -> None:
    answer = await ask(guarded(), headers={"Host": host})
    assert answer.status_code == 421
    assert answer.json()["error"]["code"] == "misdirected_request"


async def test_allowed_hosts() -> None:
    assert (await ask(guarded(allow_hosts=["box.example"]), headers={"Host": "Box.Example:9"})).status_code == 200


async def test_two_hosts_are_none() -> None:
    answer = await ask(guarded(), headers=[("Host", "localhost"), ("Host", "evil.example")])
    assert answer.status_code == 421


# Without a token: Origin.


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:4096", 200),
        ("HTTP://127.0.0.1:4096", 200),
        ("https://127.0.0.1:4096", 200),  # TLS may end in front of us
        ("http://127.0.0.1:3000", 403),
        ("http://localhost:4096", 403),  # loopback too, but another origin
        ("http://127.0.0.1", 403),
        ("http://evil.example", 403),
        ("http://127.0.0.1:4096.evil.example", 403),
        ("file://", 403),
        ("null", 403),
        ("", 403),
        ("chrome-extension://abcdef", 403),
        ("http://[", 403),
    ],
)
async def test_origins(origin: str, status: int) -> None:
    answer = await ask(guarded(), "POST", headers={"Origin": origin})
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


async def test_default_ports_are_the_same_origin() -> None:
    assert (await ask(guarded(), headers={"Host": "localhost", "Origin": "http://localhost:80"})).status_code == 200
    assert (await ask(guarded(), headers={"Host": "localhost:80", "Origin": "http://localhost"})).status_code == 200


@pytest.mark.parametrize(
    ("site", "mode", "method", "status"),
    [
        ("cross-site", "no-cors", "GET", 403),  # an <img> of another page
        ("same-site", "no-cors", "GET", 403),  # of another port of this machine
        ("cross-site", "navigate", "GET", 200),  # a link
        ("cross-site", "navigate", "POST", 403),  # a form
        ("same-origin", "cors", "GET", 200),
        ("none", "navigate", "GET", 200),
    ],
)
async def test_what_only_embeds(site: str, mode: str, method: str, status: int) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
    assert (await ask(guarded(), method, headers=headers)).status_code == status


# CORS.

APP = "https://app.example"


async def test_an_allowed_web_app() -> None:
    guard = guarded(allow_origins=[APP])
    answer = await ask(guard, "POST", json={}, headers={"Origin": APP})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == APP
    assert "x-next-cursor" in answer.headers["access-control-expose-headers"]
    assert answer.headers["vary"] == "Origin"
    other = await ask(guard, headers={"Origin": "https://app.example.evil"})
    assert other.status_code == 403
    assert other.headers["vary"] == "Origin" and "access-control-allow-origin" not in other.headers


async def test_preflight() -> None:
    headers = {
        "Origin": APP,
        "Access-Control-Request-Method": "PATCH",
        "Access-Control-Request-Headers": "x-anything",
        "Access-Control-Request-Private-Network": "true",
    }
    each: list[dict[str, Any]] = [{}, {"token": "secret"}]
    for settings in each:  # a browser sends no credentials with it
        answer = await ask(guarded(allow_origins=[APP], **settings), "OPTIONS", headers=headers)
        assert answer.status_code == 204 and not answer.content
        assert answer.headers["access-control-allow-origin"] == APP
        assert "PATCH" in answer.headers["access-control-allow-methods"]
        allowed = answer.headers["access-control-allow-headers"]
        assert all(name in allowed for name in ("x-opencode-directory", "authorization", "content-type", "x-anything"))
        assert answer.headers["access-control-allow-private-network"] == "true"
        assert answer.headers["vary"] == "Origin"


async def test_preflight_of_another_page() -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = await ask(guarded(allow_origins=[APP]), "OPTIONS", headers=headers)
    assert answer.status_code == 403 and "access-control-allow-methods" not in answer.headers


# With a token.


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("headers", "by"),
    [
        ({"Authorization": "Bearer ann-secret"}, "ann"),
        ({"Authorization": "bearer bob-secret"}, "bob"),
        ({"Authorization": basic("opencode:ann-secret")}, "ann"),
        ({"Authorization": basic(":ann-secret")}, "ann"),
        ({"Cookie": "a=b; trunkline_token=bob-secret"}, "bob"),
        ({"Cookie": 'odd={"json": 1}; trunkline_token=bob-secret'}, "bob"),
    ],
)
async def test_tokens(headers: dict[str, str], by: str) -> None:
    guard = guarded(tokens={"ann": "ann-secret", "bob": "bob-secret"})
    answer = await ask(guard, headers={**headers, "Host": "any.example"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["by"] == by


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer sécret".encode().decode("latin-1")},
        {"Authorization": "secret"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic sécret".encode().decode("latin-1")},
        {"Authorization": basic("secret")},
        {"Authorization": basic("secret:")},
        {"Authorization": "Digest secret"},
        {"Cookie": "trunkline_token=wrong"},
        {"Cookie": "trunkline_token="},
        {"Host": "127.0.0.1"},
    ],
)
async def test_no_token(headers: dict[str, str]) -> None:
    answer = await ask(guarded(token="secret"), headers={k: v.encode("latin-1") for k, v in headers.items()})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Basic realm="trunkline"'
    assert answer.json()["error"]["code"] == "unauthorized"
    assert "secret" not in answer.text


async def test_a_token_in_a_url_is_none() -> None:
    both = base64.b64encode(b"opencode:secret").decode()
    for query in ("token=secret", f"auth_token={both}", "trunkline_token=secret"):
        assert (await ask(guarded(token="secret"), path=f"/x?{query}")).status_code == 401


async def test_what_a_browser_adds_by_itself_is_checked_for_its_page() -> None:
    guard = guarded(token="secret", allow_origins=[APP])
    for ambient in ({"Authorization": basic("u:secret")}, {"Cookie": "trunkline_token=secret"}):
        assert (await ask(guard, headers={**ambient, "Origin": "http://evil.example"})).status_code == 403
        assert (await ask(guard, headers={**ambient, "Sec-Fetch-Site": "cross-site"})).status_code == 403
        assert (await ask(guard, headers={**ambient, "Origin": APP})).status_code == 200
    bearer = {"Authorization": "Bearer secret", "Origin": "http://evil.example"}
    assert (await ask(guard, headers=bearer)).status_code == 200  # no page can make a browser add it


async def test_health_is_open_and_says_nothing() -> None:
    answer = await ask(guarded(token="secret"), path="/health", headers={"Host": "any.example"})
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert (await ask(guarded(token="secret"), path="/health/x")).status_code == 401


async def test_nobody_is_local() -> None:
    assert (await ask(guarded())).json()["by"] == "local"


async def test_every_answer_forbids_sniffing() -> None:
    assert (await ask(guarded())).headers["x-content-type-options"] == "nosniff"


# Bodies.


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200), ("application/json; charset=utf-8", 200), ("Application/JSON", 200),
        ("application/merge-patch+json", 200), ("text/plain", 415), ("text/plain;application/json", 415),
        ("application/x-www-form-urlencoded", 415), ("multipart/form-data; boundary=x", 415), ("", 415),
        ("text/json", 415),
    ],
)  # fmt: skip
async def test_content_types(kind: str, status: int) -> None:
    for method in ("POST", "PUT", "PATCH"):
        answer = await ask(guarded(), method, content=b"{}", headers={"Content-Type": kind} if kind else {})
        assert answer.status_code == status


async def test_an_empty_body_needs_no_type() -> None:
    assert (await ask(guarded(), "POST")).status_code == 200


async def test_a_large_body_is_refused_with_the_limit() -> None:
    guard = guarded(max_body=2048)
    assert (await ask(guard, "POST", json="x" * 2046)).status_code == 200
    answer = await ask(guard, "POST", json="x" * 2047)
    assert answer.status_code == 413
    assert "2048" in answer.json()["error"]["message"]


async def test_a_large_body_of_unknown_length_too() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * 1000

    headers = {"Content-Type": "application/json"}
    assert (await ask(guarded(max_body=5000), "POST", content=chunks(), headers=headers)).json()["size"] == 5000
    answer = await ask(guarded(max_body=4999), "POST", content=chunks(), headers=headers)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"


async def test_reading_a_large_body_ends_in_the_end() -> None:
    """A body without end is not read to its end."""
    read = 0

    async def receive() -> Message:
        nonlocal read
        read += 1000
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
    await guarded(max_body=10_000)(scope("http", "/x", headers), receive, send)
    assert sent[0]["status"] == 413
    assert read < 60_000


async def test_a_stream_passes_frame_by_frame() -> None:
    """Nothing is held back: each frame is sent before the next is asked for."""
    sent: list[bytes] = []

    async def frames() -> AsyncIterator[bytes]:
        for number in range(3):
            assert len(sent) == number
            yield b"data: %d\n\n" % number

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        await StreamingResponse(frames())(scope, receive, send)

    async def send(message: Message) -> None:
        if message.get("body"):
            sent.append(message["body"])

    async def receive() -> Message:
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    await Guard(app, Settings(), Errors())(scope("http", "/x", [(b"host", b"localhost")]), receive, send)
    assert len(sent) == 3


# WebSockets.


def scope(kind: str, path: str, headers: list[tuple[bytes, bytes]], **more: Any) -> dict[str, Any]:
    base = {"type": kind, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers, **more}
    return {**base, "method": "POST"} if kind == "http" else {**base, "subprotocols": []}


@pytest.mark.parametrize(
    ("headers", "settings", "first"),
    [
        ([(b"host", b"localhost")], {}, "websocket.accept"),
        ([(b"host", b"localhost"), (b"origin", b"http://evil.example")], {}, "websocket.close"),
        ([(b"host", b"evil.example")], {}, "websocket.close"),
        ([(b"host", b"localhost")], {"token": "secret"}, "websocket.close"),
        ([(b"host", b"x"), (b"authorization", b"Bearer secret")], {"token": "secret"}, "websocket.accept"),
    ],
)
async def test_web_sockets(headers: list[tuple[bytes, bytes]], settings: dict[str, Any], first: str) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await guarded(**settings)(scope("websocket", "/ws", headers), receive, send)
    assert sent[0]["type"] == first


async def test_a_refused_web_socket_is_told_why_where_the_server_can() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    able = scope("websocket", "/ws", [(b"host", b"localhost")], extensions={"websocket.http.response": {}})
    await guarded(token="secret")(able, receive, send)
    assert sent[0]["type"] == "websocket.http.response.start" and sent[0]["status"] == 401


# The form of errors.


async def test_each_protocol_has_its_form_of_an_error() -> None:
    def own(request: Request, error: GatewayError) -> Response:
        return JSONResponse({"_tag": error.code}, status_code=error.status)

    errors = Errors()
    errors.register("/x", own)
    answer = await ask(guarded(errors, token="secret"))
    assert answer.status_code == 401
    assert answer.json() == {"_tag": "unauthorized"}
    assert "www-authenticate" in answer.headers
    assert "error" in (await ask(guarded(errors, token="secret"), path="/xyz")).json()


# Paths.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret").write_text("x")
    (tmp_path / "rootless").mkdir()
    (root / "out").symlink_to(tmp_path / "other")
    (root / "dangling").symlink_to(tmp_path / "other" / "new")
    (root / "dangling_inside").symlink_to(root / "new")
    (root / "loop").symlink_to(root / "loop")
    (root / "in").symlink_to(root / "sub")
    return root


@pytest.mark.parametrize("name", [".", "file", "sub", "in", "new", "sub/new/deep", "in/new", "...", "a..b"])
def test_inside(root: Path, name: str) -> None:
    assert confine(f"{root}/{name}", [root]).is_relative_to(root.resolve())


@pytest.mark.parametrize(
    "name",
    ["out", "out/secret", "out/new", "dangling", "dangling/new", "dangling_inside", "loop", "loop/x", "..",
     "sub/../file", "../other/secret", "sub/../../other", "file/x", "nul\0"],
)  # fmt: skip
def test_outside(root: Path, name: str) -> None:
    with pytest.raises(Forbidden, match="allowed are") as caught:
        confine(f"{root}/{name}", [root])
    assert str(root) in caught.value.message


@pytest.mark.parametrize("path", ["", "file", "./file", "~/file", "/", "/etc/passwd"])
def test_elsewhere(root: Path, path: str) -> None:
    with pytest.raises(Forbidden):
        confine(path, [root])


def test_another_root_and_a_name_that_only_begins_alike(root: Path) -> None:
    for path in (root.parent / "other" / "secret", root.parent / "rootless"):
        with pytest.raises(Forbidden):
            confine(str(path), [root])
    assert confine(str(root.parent / "other" / "secret"), [root, root.parent / "other"])


def test_a_root_that_is_a_symlink(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    assert confine(f"{link}/file", [link]) == (root / "file").resolve()
    assert confine(f"{root}/file", [link]) == (root / "file").resolve()
    with pytest.raises(Forbidden):
        confine(f"{link}/out/secret", [link])


def test_the_answer_is_real(root: Path) -> None:
    assert confine(f"{root}/in/new", [root]) == Path(os.path.realpath(root)) / "sub" / "new"
