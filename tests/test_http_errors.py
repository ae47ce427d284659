"""Every error is JSON that says what and where, in the form of the protocol asked."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.core.errors import AgentTimeout, Conflict, GatewayError
from gateway.http_errors import Errors, install
from tests.served import serve


class Body(BaseModel):
    text: str
    count: int = 0


def app() -> FastAPI:
    made = FastAPI(openapi_url=None, redirect_slashes=False)
    errors = Errors()

    def own(request: Request, error: GatewayError) -> Response:
        return JSONResponse({"_tag": error.code}, status_code=error.status)

    errors.register("/own", own)
    install(made, errors)

    @made.post("/body/{number}")
    async def body(number: int, body: Body) -> str:
        return body.text

    @made.post("/read")
    async def read(request: Request) -> int:
        return len(await request.body())

    @made.get("/raise/{what}")
    @made.get("/own/raise/{what}")
    async def raises(what: str) -> None:
        raise {
            "conflict": Conflict("this id is taken", id="msg_1"),
            "agent": AgentTimeout("no answer"),
            "teapot": HTTPException(418, "short and stout"),
            "bug": LookupError("s3cret"),
        }[what]

    return made


async def ask(method: str, path: str, **request: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.request(method, path, **request)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/raise/conflict", 409, "conflict"),
        ("/raise/agent", 504, "agent_timeout"),
        ("/raise/teapot", 418, "bad_request"),
        ("/raise/bug", 500, "internal"),
        ("/nowhere", 404, "not_found"),
        ("/raise/bug/", 404, "not_found"),
        ("/body/1", 405, "method_not_allowed"),
    ],
)
async def test_errors(path: str, status: int, code: str) -> None:
    answer = await ask("GET", path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] == code
    assert "s3cret" not in answer.text


async def test_the_place_is_named() -> None:
    assert (await ask("GET", "/nowhere")).json()["error"]["message"] == "there is no GET /nowhere"
    wrong = await ask("GET", "/body/1")
    assert wrong.json()["error"]["message"] == "GET /body/1 is not possible; allowed: POST"
    assert wrong.headers["allow"] == "POST"
    assert (await ask("GET", "/raise/conflict")).json()["error"]["data"] == {"id": "msg_1"}


async def test_malformed_json_is_a_clients_fault() -> None:
    answer = await ask("POST", "/body/1", content=b'{"text": ', headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "not valid JSON (character 9)" in answer.json()["error"]["message"]


async def test_wrong_values_are_named_with_their_place() -> None:
    answer = await ask("POST", "/body/one", json={"count": "x"})
    assert answer.status_code == 400
    places = [problem["where"] for problem in answer.json()["error"]["data"]["problems"]]
    assert places == ["path.number", "body.text", "body.count"]


async def test_the_longest_prefix_gives_the_form() -> None:
    assert (await ask("GET", "/own/raise/conflict")).json() == {"_tag": "conflict"}
    assert (await ask("GET", "/own")).json() == {"_tag": "not_found"}
    assert "error" in (await ask("GET", "/owner")).json()


async def test_one_form_for_all_the_rest() -> None:
    errors = Errors()
    errors.register("/", lambda request, error: Response("root"))
    errors.register("/acp", lambda request, error: Response("acp"))
    for path, form in (("/", b"root"), ("/x", b"root"), ("/acp", b"acp"), ("/acp/demo", b"acp"), ("/acpx", b"root")):
        request = Request({"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""})
        assert errors.render(request, Conflict("x")).body == form


@pytest.mark.parametrize("path", ["/read", "/body/1"])
async def test_a_client_that_leaves_while_it_writes_is_no_error(path: str) -> None:
    messages: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return messages.pop(0)

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"100")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    with structlog.testing.capture_logs() as logged:
        await app()(scope, receive, send)  # raises what the server would log
    assert sent[0]["status"] == 400
    assert all(line["log_level"] == "debug" for line in logged)


async def test_a_websocket_to_nowhere_is_404(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        with pytest.raises(InvalidStatus) as caught:
            await connect(served.url.replace("http", "ws", 1) + "/nowhere")
        assert caught.value.response.status_code == 404
        assert b"there is no" in (caught.value.response.body or b"")
