"""ACP over Streamable HTTP by hand: status codes, streams that go on after a cut, limits."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.acp.outbox import HIGH, KEPT, Lost, Outbox
from tests.acp.clients.raw import V1
from tests.served import Served, serve

DEMO = f"demo={sys.executable} -m adapters.acp.demo --steer"
JSON = {"content-type": "application/json"}
PATIENCE = 30  # seconds
Json = dict[str, Any]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serve(tmp_path, "--agent", DEMO) as one:
        yield one


def message(method: str, number: Any = 1, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Http:
    """One connection. ``frames`` are (id, message) of a stream that was read."""

    def __init__(self, http: httpx.AsyncClient, connection: str) -> None:
        self.http = http
        self.connection = connection
        self.head = {"acp-connection-id": connection}

    async def post(self, body: Json | str, **headers: str) -> httpx.Response:
        data = body if isinstance(body, str) else json.dumps(body)
        return await self.http.post("/acp", content=data, headers={**JSON, **self.head, **headers})

    @asynccontextmanager
    async def stream(self, session_id: str = "", last: str = "") -> AsyncIterator["Stream"]:
        headers = {**self.head, "accept": "text/event-stream"}
        if session_id:
            headers["acp-session-id"] = session_id
        if last:
            headers["last-event-id"] = last
        async with self.http.stream("GET", "/acp", headers=headers) as answer:
            if answer.status_code != 200:
                await answer.aread()
            yield Stream(answer)


class Stream:
    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.lines = answer.aiter_lines()
        self.last = ""

    async def next(self) -> Json:
        async with asyncio.timeout(PATIENCE):
            async for line in self.lines:
                if line.startswith("id:"):
                    self.last = line[3:].strip()
                elif line.startswith("data:"):
                    found: Json = json.loads(line[5:])
                    return found
        raise EOFError

    async def answer_to(self, number: Any) -> Json:
        while (found := await self.next()).get("id") != number or "method" in found:
            pass
        return found


async def connect(served: Served) -> Http:
    answer = await served.http.post("/acp", json=message("initialize", **V1))
    assert answer.status_code == 200 and answer.json()["result"]["protocolVersion"] == 1
    return Http(served.http, answer.headers["acp-connection-id"])


async def opened(served: Served) -> tuple[Http, str]:
    one = await connect(served)
    assert (await one.post(message("session/new", 2, cwd=str(served.workspace), mcpServers=[]))).status_code == 202
    async with one.stream() as stream:
        created = await stream.answer_to(2)
    return one, created["result"]["sessionId"]


def prompt(session_id: str, text: str, number: int = 3) -> Json:
    return message("session/prompt", number, sessionId=session_id, prompt=[{"type": "text", "text": text}])


async def test_status_codes(served: Served) -> None:
    """Where the two SDKs' servers differ, ours is as lenient as both."""
    http = served.http
    hello = message("initialize", **V1)
    one, session_id = await opened(served)

    async def code(method: str, headers: dict[str, str], body: Any = None) -> int:
        content = body if isinstance(body, str | None) else json.dumps(body)
        answer = await http.request(method, "/acp", headers=headers, content=content)
        if answer.status_code >= 400:
            assert answer.json()["error"]["message"] and answer.json()["id"] is None
        return answer.status_code

    listed = message("session/list")
    connected = {**JSON, **one.head}
    assert await code("POST", {"content-type": "text/plain"}, "x") == 415
    assert await code("POST", JSON, "{") == 400
    assert await code("POST", connected, "{") == 400
    assert await code("POST", connected, "3") == 400
    assert await code("POST", connected, [listed]) == 501
    assert await code("POST", JSON, listed) == 400
    assert await code("POST", {**JSON, "acp-connection-id": "nobody"}, listed) == 404
    assert await code("POST", connected, hello) == 400
    assert await code("POST", connected, listed) == 202
    assert await code("POST", {**connected, "acp-session-id": "other"}, prompt(session_id, "say x")) == 400
    assert await code("POST", {**connected, "acp-session-id": "x" * 1025}, listed) == 400
    assert await code("POST", connected, prompt("ses_nobody", "say x")) == 202
    stream = {**one.head, "accept": "text/event-stream"}
    assert await code("GET", {**one.head, "accept": "application/json"}) == 406
    assert await code("GET", {"accept": "text/event-stream"}) == 400
    assert await code("GET", {**stream, "acp-connection-id": "nobody"}) == 404
    assert await code("GET", {**stream, "last-event-id": "what"}) == 400
    assert await code("GET", {**stream, "last-event-id": "999999"}) == 410
    assert await code("GET", {**stream, "acp-session-id": session_id, "last-event-id": "999999"}) == 409
    async with one.stream("ses_nobody") as found, one.stream("ses_nobody") as second:
        assert found.answer.status_code == 200 and second.answer.status_code == 409
        assert found.answer.headers["cache-control"] == "no-cache, no-transform"
        assert found.answer.headers["x-accel-buffering"] == "no"
    assert await code("PUT", JSON, "{}") == 405
    upgrade = {"connection": "upgrade", "upgrade": "websocket"}
    assert (await http.get("/acp", headers=upgrade)).status_code in (400, 426)
    assert await code("POST", JSON, {**hello, "params": {"protocolVersion": 0}}) == 200
    assert (await http.post("/acp/nobody", json=hello)).status_code == 404
    assert await code("DELETE", {}) == 400
    assert await code("DELETE", {"acp-connection-id": "nobody"}) == 404
    assert await code("DELETE", one.head) == 202
    assert await code("DELETE", one.head) == 404
    assert await code("POST", connected, listed) == 404


async def test_a_refused_initialize_may_be_sent_again(served: Served) -> None:
    answer = await served.http.post("/acp", json=message("initialize", protocolVersion=0))
    assert answer.status_code == 200 and answer.json()["error"]["code"] == -32022
    head = {"acp-connection-id": answer.headers["acp-connection-id"]}
    answer = await served.http.post("/acp", json=message("initialize", **V1), headers=head)
    assert answer.json()["result"]["protocolVersion"] == 1


async def test_a_body_that_is_too_large(tmp_path: Path) -> None:
    async with serve(tmp_path, "--agent", DEMO, TRUNKLINE_MAX_BODY="65536") as served:
        one, session_id = await opened(served)
        assert (await one.post(prompt(session_id, "x" * 70_000))).status_code == 413
        async with one.stream(session_id) as stream:
            assert (await one.post(prompt(session_id, "say on"))).status_code == 202
            assert (await stream.answer_to(3))["result"]["stopReason"] == "end_turn"


async def test_an_answer_without_a_session_header_finds_its_request(served: Served) -> None:
    """The Python SDK sends none."""
    one, session_id = await opened(served)
    async with one.stream(session_id) as stream:
        await one.post(prompt(session_id, "ask x\nsay done"))
        while (asked := await stream.next()).get("method") != "session/request_permission":
            pass
        outcome = {"outcome": {"outcome": "selected", "optionId": "once"}}
        assert (await one.post({"jsonrpc": "2.0", "id": asked["id"], "result": outcome})).status_code == 202
        assert (await stream.answer_to(3))["result"]["stopReason"] == "end_turn"


async def test_a_stream_goes_on_exactly_after_each_cut(served: Served) -> None:
    """Text, the permission and the answer, over many cuts: every id once, rising; nothing is missing."""
    one, session_id = await opened(served)
    got: list[Json] = []
    ids: list[int] = []
    text = "stream 300 1\nask x\nsay done\nstream 100 1"
    await one.post(prompt(session_id, text))
    last, cuts, over = "", 0, False
    while not over:
        async with one.stream(session_id, last) as stream:
            for _ in range(37):  # then the socket is cut
                frame = await stream.next()
                got.append(frame)
                ids.append(int(stream.last))
                if frame.get("method") == "session/request_permission":
                    outcome = {"outcome": {"outcome": "selected", "optionId": "once"}}
                    await one.post({"jsonrpc": "2.0", "id": frame["id"], "result": outcome})
                if frame.get("id") == 3 and "result" in frame:
                    over = True
                    break
            last = stream.last
            cuts += 1
    assert cuts > 3
    assert ids == list(range(1, len(ids) + 1))
    said = [f["params"]["update"] for f in got if f.get("method") == "session/update"]
    spoken = "".join(u["content"]["text"] for u in said if u["sessionUpdate"] == "agent_message_chunk")
    streamed = ["".join(f"chunk {i} " for i in range(n)) for n in (300, 100)]
    assert spoken == streamed[0] + "done" + streamed[1]
    assert len([f for f in got if f.get("method") == "session/request_permission"]) == 1


async def test_the_newer_reader_takes_the_stream_over(served: Served) -> None:
    """A server may not have seen that the old socket is gone: who says where it was gets the stream."""
    one, session_id = await opened(served)
    async with one.stream(session_id) as old:
        await one.post(prompt(session_id, "say a", 3))
        await old.answer_to(3)
        async with one.stream(session_id, old.last) as new:
            with contextlib.suppress(EOFError):
                while True:
                    await old.next()
            await one.post(prompt(session_id, "say b", 4))
            assert (await new.answer_to(4))["result"]["stopReason"] == "end_turn"


async def test_a_client_that_sends_no_id_goes_on_after_what_was_sent(served: Served) -> None:
    one, session_id = await opened(served)
    async with one.stream(session_id) as stream:
        await one.post(prompt(session_id, "say a", 3))
        await stream.answer_to(3)
        while "session_info_update" not in json.dumps(await stream.next()):
            pass
    await one.post(prompt(session_id, "say b", 4))
    async with one.stream(session_id) as stream:
        assert (await stream.answer_to(4))["result"]["stopReason"] == "end_turn"


async def test_a_connection_is_its_owners(tmp_path: Path) -> None:
    tokens = '{"ann": "token-of-ann", "bob": "token-of-bob"}'
    async with serve(tmp_path, "--agent", DEMO, TRUNKLINE_TOKENS=tokens) as served:
        ann = {"authorization": "Bearer token-of-ann"}
        assert (await served.http.post("/acp", json=message("initialize", **V1))).status_code == 401
        answer = await served.http.post("/acp", json=message("initialize", **V1), headers=ann)
        head = {"acp-connection-id": answer.headers["acp-connection-id"]}
        bob = {"authorization": "Bearer token-of-bob", **head}
        assert (await served.http.post("/acp", json=message("session/list"), headers=bob)).status_code == 404
        assert (await served.http.delete("/acp", headers=bob)).status_code == 404
        assert (
            await served.http.post("/acp", json=message("session/list"), headers={**ann, **head})
        ).status_code == 202


async def test_a_shutdown_ends_streams_and_sockets(tmp_path: Path) -> None:
    from websockets.asyncio.client import connect as websocket

    async with serve(tmp_path, "--agent", DEMO) as served:
        one, session_id = await opened(served)
        socket = await websocket(served.url.replace("http", "ws") + "/acp")
        async with one.stream(session_id) as stream:
            assert await served.stop() == 0
            with pytest.raises((EOFError, httpx.HTTPError)):
                while True:
                    await stream.next()
        await socket.wait_closed()


# --- the outbox ------------------------------------------------------------------------------------------------------


async def read(reader: AsyncIterator[bytes], count: int) -> list[int]:
    """The ids of the next frames."""
    found: list[int] = []
    while len(found) < count:
        data = await anext(reader)
        found += [int(line[3:]) for line in data.split(b"\n") if line.startswith(b"id:")]
    return found


async def test_an_outbox_keeps_what_was_sent() -> None:
    box = Outbox()
    for n in range(5):
        box.push(f'"{n}"')
    first = box.read(None)
    assert await read(first, 5) == [1, 2, 3, 4, 5]
    box.push('"5"')
    assert await read(first, 1) == [6]
    again = box.read(2)
    assert await read(again, 4) == [3, 4, 5, 6]
    with pytest.raises(StopAsyncIteration):
        await anext(first)
    assert box.reading
    await again.aclose()
    assert not box.reading
    box.check(None)
    box.check(0)
    with pytest.raises(Lost):
        box.check(7)


async def test_an_outbox_is_bounded() -> None:
    box = Outbox()
    frame = "x" * (HIGH // 4)
    for _ in range(5):
        box.push(frame)
    waiting = asyncio.get_running_loop().create_task(box.room())
    reader = box.read(None)
    sent = 5
    await read(reader, 4)
    await asyncio.wait([waiting], timeout=0)
    assert not waiting.done()
    await read(reader, 1)
    while sent * len(frame) < 2 * KEPT:
        box.push(frame)
        sent += 1
        await read(reader, 1)
    await waiting
    with pytest.raises(Lost):
        box.check(1)
    box.check(sent - 2)
    late = box.read(sent - 2)
    assert await read(late, 2) == [sent - 1, sent]
    box.close()
    with pytest.raises(StopAsyncIteration):
        await anext(late)
