"""What ``/acp`` offers to clients elsewhere, as to other gateways: comments that keep streams open, HTTP/1.1."""

import asyncio
from pathlib import Path

import httpx
import pytest

from adapters.acp import routes
from gateway.app import create_app
from gateway.settings import Settings
from tests.acp.support import demo_config
from tests.served import serve
from tests.test_sse import Client

HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


async def test_quiet_streams_are_kept_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment at each interval, on the connection's stream and on a session's."""
    assert routes.KEEP_ALIVE == 15.0
    monkeypatch.setattr(routes, "KEEP_ALIVE", 0.05)
    settings = Settings(data=tmp_path / "data", workspace=[tmp_path], agents={"demo": demo_config(tmp_path)})
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:4096") as http:
            connection = (await http.post("/acp", json=HELLO)).headers["acp-connection-id"]
        for session in (b"", b"ses_any"):
            one = Client()
            one.scope |= {"path": "/acp", "raw_path": b"/acp", "query_string": b"", "http_version": "1.1"}
            one.scope |= {"scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 4096)}
            one.scope["headers"] = [
                *((b"host", b"127.0.0.1:4096"), (b"accept", b"text/event-stream")),
                *((b"acp-connection-id", connection.encode()), (b"acp-session-id", session)),
            ]
            async with asyncio.TaskGroup() as group:
                group.create_task(app(one.scope, one.receive, one.send))
                await one.until(lambda: one.bodies.count(b": keep-alive\n\n") >= 3)  # noqa: B023
                one.gone.set()
            assert set(one.bodies) == {b"id: 0\n\n", b": keep-alive\n\n"}


async def test_http_1_is_what_is_spoken(tmp_path: Path) -> None:
    """Who begins with HTTP/2 is refused at once; who offers it is answered over HTTP/1.1."""
    async with serve(tmp_path, "--agent", "demo") as served:
        port = int(served.url.rsplit(":", 1)[1])

        async def say(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            try:
                return await asyncio.wait_for(reader.read(), 20)
            finally:
                writer.close()

        refused = await say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 400 Bad Request\r\n") and b"connection: close" in refused
        upgrade = b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n"
        answered = await say(b"GET /acp HTTP/1.1\r\nHost: 127.0.0.1\r\n" + upgrade + b"\r\n")
        assert answered.startswith(b"HTTP/1.1 400 Bad Request\r\n") and b"acp-connection-id is missing" in answered
