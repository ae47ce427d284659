"""``adapters/acp/remote*`` and what a server may answer: without an end, too slowly, with our secrets in it."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from adapters.acp import remote_http
from adapters.acp.remote_base import Target
from gateway.core import inputs
from gateway.core.model import Error
from gateway.remotes import RemoteUrl
from tests.acp import remote
from tests.acp.support import session

MIB = 1024 * 1024
TOKEN = "SUPERSECRET123"
SECRET = f"Bearer {TOKEN}"
KINDS = ("ws", "http")
Answer = Callable[[bytes, bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """An HTTP server: a request's head and body, and where its answer goes."""

    open_: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        open_[task] = writer
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                await answer(head, body, writer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/acp"
    finally:
        server.close()
        for task, writer in open_.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*open_, return_exceptions=True)


def whole(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def endless(status: str, writer: asyncio.StreamWriter, sent: list[int]) -> None:
    """64 MiB of a body that says of no end. ``sent``: the bytes that were taken."""
    writer.write(f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    for _ in range(1024):
        writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        await writer.drain()
        sent[0] += 65536
    writer.write(b"0\r\n\r\n")


def opened(body: bytes) -> bytes | None:
    """The answer to initialize; None for another message."""
    message = json.loads(body or b"{}")
    if message.get("method") != "initialize":
        return None
    result = {"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": 1}}
    return whole("200 OK", json.dumps(result).encode(), "Acp-Connection-Id: c1")


async def stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: open\n\n")
    await writer.drain()
    await asyncio.Future()


async def gone(tmp: Path, url: str, **fields: Any) -> Error:
    async with remote.port(tmp, url, **fields) as d:
        d.port.start(session(d.cwd), False)
        told = await d.sink.one(inputs.AgentGone)
        assert told.error
        return told.error


@pytest.mark.parametrize("method", ["initialize", "session/new"])
async def test_an_answer_without_end(method: str, tmp_path: Path) -> None:
    sent = [0]

    async def answer(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if head.startswith(b"GET"):
            await stream(writer)
        elif method != "initialize" and (first := opened(body)):
            writer.write(first)
        else:
            await endless("200 OK", writer, sent)

    async with answering(answer) as url:
        error = await gone(tmp_path, url)
    assert (error.code, "a message over 32 MiB ends the connection" in error.message) == ("agent_exit", True), error
    assert 32 * MIB <= sent[0] < 64 * MIB


@pytest.mark.parametrize("place", ["initialize", "session/new", "stream"])
async def test_a_refusal_without_end(place: str, tmp_path: Path) -> None:
    """Its beginning is enough."""
    sent = [0]

    async def answer(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if place != "initialize" and (first := opened(body)):
            writer.write(first)
        elif head.startswith(b"GET") and place != "stream":
            await stream(writer)
        else:
            await endless("401 Unauthorized", writer, sent)

    async with answering(answer) as url:
        error = await gone(tmp_path, url)
    assert error.code == "auth_required" and "HTTP 401" in error.message
    assert sent[0] < 32 * MIB


async def test_a_body_that_nobody_needs(tmp_path: Path) -> None:
    """What follows a 202 is not read; the message was taken."""
    sent = [0]
    events: list[asyncio.StreamWriter] = []

    async def answer(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if first := opened(body):
            writer.write(first)
        elif head.startswith(b"GET"):
            events.append(writer)
            await stream(writer)
        elif b"session/new" in body:
            result = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": {"sessionId": "s"}}
            events[0].write(f"data: {json.dumps(result)}\n\n".encode())
            await endless("202 Accepted", writer, sent)

    async with answering(answer) as url, remote.port(tmp_path, url) as d:
        await d.start()
        assert d.port.own_id == "s"
    assert sent[0] < 32 * MIB


async def test_an_answer_that_comes_byte_by_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_http, "POST", 0.5)

    async def answer(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if first := opened(body):
            writer.write(first)
        elif head.startswith(b"GET"):
            await stream(writer)
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(200):
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)

    async with answering(answer) as url:
        error = await gone(tmp_path, url)
    assert "whether it has taken session/new: no whole answer within 0.5 s" in error.message


async def test_an_encoded_answer_is_not_decoded(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def answer(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        heads.append(head.lower())
        writer.write(whole("200 OK", gzip.compress(b" " * 64 * MIB), "Content-Encoding: gzip"))

    async with answering(answer) as url:
        error = await gone(tmp_path, url)
    assert "its answer is encoded as gzip, which was not asked for" in error.message
    assert b"\r\naccept-encoding: identity\r\n" in heads[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_never_answers_initialize(kind: str, tmp_path: Path) -> None:
    async def mute(*_: object) -> None:
        await asyncio.Future()

    async def agent(one: ServerConnection) -> None:
        await one.wait_closed()

    async with answering(mute) as url, serve(agent, "127.0.0.1", 0) as sockets:
        where = url if kind == "http" else f"ws://127.0.0.1:{sockets.sockets[0].getsockname()[1]}/"
        error = await gone(tmp_path, where, start_timeout=1)
    assert (error.code, error.message) == ("agent_timeout", "far did not answer initialize within 1 s")


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refusal_that_repeats_our_secret(kind: str, tmp_path: Path) -> None:
    async def answer(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        sent = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"authorization"))
        # The second one is cut off where a refusal's text ends.
        writer.write(whole("401 Unauthorized", b"bad " + sent + b" " + b"x" * 250 + b" " + TOKEN.encode() * 3))

    async with answering(answer) as url:
        error = await gone(tmp_path, url.replace("http", kind, 1), headers={"Authorization": SECRET})
    assert "HTTP 401: bad" in error.message and "***" in error.message
    assert "SUPER" not in f"{error}" and error.code == "auth_required"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_that_repeats_our_secret(kind: str, tmp_path: Path) -> None:
    """Of JSON-RPC, however its JSON is written."""

    def refused(body: bytes | str) -> bytes:
        error = {"code": -32603, "message": f"not {TOKEN}/x", "data": {"sent": [SECRET]}}
        line = json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": error})
        return line.replace("SUPER", "\\u0053UPER").encode()

    async def answer(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(whole("200 OK", refused(body)))

    async def agent(one: ServerConnection) -> None:
        async for raw in one:
            await one.send(refused(raw).decode())

    async with answering(answer) as url, serve(agent, "127.0.0.1", 0) as sockets:
        where = url if kind == "http" else f"ws://127.0.0.1:{sockets.sockets[0].getsockname()[1]}/"
        error = await gone(tmp_path, where, headers={"Authorization": SECRET})
    assert "not ***/x" in error.message and "SUPER" not in f"{error}"


async def test_a_socket_closed_with_our_secret(tmp_path: Path) -> None:
    async def agent(one: ServerConnection) -> None:
        await one.close(1008, f"not {TOKEN}")

    async with serve(agent, "127.0.0.1", 0) as sockets:
        where = f"ws://127.0.0.1:{sockets.sockets[0].getsockname()[1]}/"
        error = await gone(tmp_path, where, headers={"Authorization": SECRET})
    assert "not ***" in error.message and TOKEN not in error.message


def test_only_errors_are_looked_at() -> None:
    headers = {"A": "word here", "B": "on"}
    target = Target("far", RemoteUrl.parse("ws://127.0.0.1/"), headers, 1.0, CookieJar())
    lines = b'{"method":"x","params":{"error":"word here"}}\n{"id":1,"result":"word here \\"error\\""}\n\xff"error"\n'
    assert target.hide_errors(lines) == lines
    failed = b'{ "id":7, "error":{"message":"no word here, on","code":1} }'
    assert json.loads(target.hide_errors(failed)) == {"id": 7, "error": {"message": "no ***, on", "code": 1}}
