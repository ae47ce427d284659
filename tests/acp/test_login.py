"""Logging in to an agent from a client in front, and what every protocol says of a login that is missing."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acp.clients.raw import RpcError, client
from tests.opencode.terminal import attached
from tests.served import Served, serve

pytestmark = pytest.mark.usefixtures("npm_clients")

ASKER = [sys.executable, str(Path(__file__).parent / "clients" / "asker.py")]
MISSING = "Gemini API key is missing or not configured."
KEY = "sk-very-secret-key"
VERSIONS = pytest.mark.parametrize("version", [1, 2])
LOGIN, LOGOUT = {1: "authenticate", 2: "auth/login"}, {1: "logout", 2: "auth/logout"}
Json = dict[str, Any]
Start = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A gateway; by its default agent's flags, and by other agents' (``other="…"``)."""

    @asynccontextmanager
    async def started(flags: str, log: str = "info", **others: str) -> AsyncIterator[Served]:
        lines = [f'log_level = "{log}"']
        for name, each in {"asker": flags, **others}.items():
            lines += [f"[agents.{name}]", f"command = {json.dumps([*ASKER, *each.split()])}"]
            lines += ["protocol = 2"] if "--v2" in each else []
        config = tmp_path / "trunkline.toml"
        config.write_text("\n".join(lines))
        async with serve(tmp_path, "--config", str(config)) as one:
            yield one

    return started


def described(version: int, *names: str) -> list[Json]:
    said = [{"name": name.title(), "description": f"By {name}"} for name in names]
    if version == 1:
        return [{"id": name, **each} for name, each in zip(names, said, strict=True)]
    return [{"type": "agent", "methodId": name, **each} for name, each in zip(names, said, strict=True)]


async def refused(code: int, waiting: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await waiting
    assert caught.value.code == code, caught.value
    return caught.value


def hello(one: Any) -> Json:
    result: Json = one.got[0]["result"]
    return result


# --- logging in ------------------------------------------------------------------------------------------------------


@VERSIONS
async def test_a_login_opens_the_way_and_every_later_process_has_it(start: Start, version: int) -> None:
    """The agent keeps it in the process, and each session has a process of its own."""
    async with start("--methods api-key,oauth --needs new") as served, client(served.url, version) as one:
        assert hello(one)["authMethods"] == []  # it was not started, and is not for this
        failed = await refused(-32000, one.new(served.workspace))
        assert str(failed) and failed.data["authMethods"] == described(version, "api-key", "oauth")
        assert await one.call(LOGIN[version], methodId="api-key") == {}
        for _ in range(2):
            await one.new(served.workspace)
            assert one.session
        async with client(served.url, version) as later:
            assert hello(later)["authMethods"] == described(version, "api-key", "oauth")
        answer = await served.post(await served.session(), json.dumps([{"log": 1}]))  # another protocol's session
        assert answer.status_code == 200
        [text] = [part["text"] for part in answer.json()["parts"] if part["type"] == "text"]
        assert json.loads(text)[:3] == ["initialize", "authenticate", "session/new"]


@VERSIONS
async def test_a_process_that_runs_already_is_logged_in_too(start: Start, version: int) -> None:
    """Some agents open sessions without a login, and want one for the first prompt."""
    async with start("--methods api-key --needs prompt") as served, client(served.url, version) as one:
        await one.new(served.workspace)
        if version == 1:
            failed = await refused(-32000, one.prompt("[]"))
            assert failed.data["authMethods"] == described(1, "api-key")
        await one.call(LOGIN[version], methodId="api-key")
        assert (await one.turn("[]"))["stopReason"] == "end_turn"


@VERSIONS
async def test_a_method_that_the_agent_has_not(start: Start, version: int) -> None:
    async with start("--methods api-key,oauth", bare="") as served, client(served.url, version) as one:
        failed = await refused(-32602, one.call(LOGIN[version], methodId="nonsense"))
        assert "api-key, oauth" in str(failed) and failed.data["methods"] == ["api-key", "oauth"]
        await refused(-32602, one.call(LOGIN[version]))
        bare = {"trunkline": {"agent": "bare"}}
        assert "none" in str(await refused(-32602, one.call(LOGIN[version], methodId="api-key", _meta=bare)))
        nobody = {"trunkline": {"agent": "nobody"}}
        assert "nobody" in str(await refused(-32602, one.call(LOGIN[version], methodId="api-key", _meta=nobody)))
        other = 2 if version == 1 else 1
        await refused(-32601, one.call(LOGIN[other], methodId="api-key"))


async def test_the_agent_of_the_path_is_meant(start: Start) -> None:
    async with start("--methods mine", other="--methods theirs --needs new") as served:
        async with client(served.url, path="/acp/other") as one:
            await refused(-32602, one.call("authenticate", methodId="mine"))
            await one.call("authenticate", methodId="theirs")
            await one.new(served.workspace)
        async with client(served.url, path="/acp/asker") as one:
            assert hello(one)["authMethods"] == []
        async with client(served.url, path="/acp/other") as one:
            assert hello(one)["authMethods"] == described(1, "theirs")


async def test_what_the_agent_says_of_a_wrong_key(start: Start) -> None:
    """It is the answer, and the method is not kept."""
    async with start(f"--methods api-key --needs new --key {KEY}") as served, client(served.url) as one:
        failed = await refused(-32603, one.call("authenticate", methodId="api-key", _meta={"key": "wrong"}))
        assert "This key is not right" in str(failed)
        await refused(-32000, one.new(served.workspace))
        await one.call("authenticate", methodId="api-key", _meta={"key": KEY})
        await one.new(served.workspace)


async def test_a_key_is_nowhere_to_be_seen(start: Start) -> None:
    """Not in the log, at its loudest, and not in the store; a restart has forgotten it."""
    async with start(f"--methods api-key --needs new --key {KEY}", log="debug") as served:
        async with client(served.url) as one:
            await one.call("authenticate", methodId="api-key", _meta={"key": KEY})
            await one.new(served.workspace)
            await refused(-32602, one.call("authenticate", methodId="x", _meta={"key": KEY}))
        await served.stop()
        assert KEY not in "".join(served.log)
        stored = b"".join(path.read_bytes() for path in served.data.rglob("*") if path.is_file())
        assert b"asker" in stored and KEY.encode() not in stored
        await served.start()
        async with client(served.url) as one:
            await refused(-32000, one.new(served.workspace))


async def test_an_agent_of_version_2(start: Start) -> None:
    async with start("--methods api-key --v2") as served, client(served.url) as one:
        await one.call("authenticate", methodId="api-key")
        async with client(served.url) as later:
            assert hello(later)["authMethods"] == [{"id": "api-key", "name": "Api-Key"}]
            assert hello(later)["agentCapabilities"]["auth"] == {"logout": {}}
        await one.call("logout")


async def test_an_agent_that_does_not_start(tmp_path: Path) -> None:
    async with serve(tmp_path, "--agent", "gone=/bin/false") as served, client(served.url) as one:
        failed = await refused(-32603, one.call("authenticate", methodId="x"))
        assert failed.data["reason"] == "agent_exit" and "exited with status 1" in str(failed)


# --- logging out -----------------------------------------------------------------------------------------------------


@VERSIONS
async def test_logout(start: Start, version: int) -> None:
    flags = "--methods api-key --needs new --logout"
    async with start(flags, bare="--methods api-key") as served, client(served.url, version) as one:
        await one.call(LOGIN[version], methodId="api-key")
        await one.new(served.workspace)
        async with client(served.url) as later:
            assert hello(later)["agentCapabilities"]["auth"] == {"logout": {}}
        assert await one.call(LOGOUT[version]) == {}
        await refused(-32000, one.new(served.workspace))  # a new process is not logged in any more
        bare = {"trunkline": {"agent": "bare"}}
        assert "no logout" in str(await refused(-32601, one.call(LOGOUT[version], _meta=bare)))
        async with client(served.url, path="/acp/bare") as later:
            assert "auth" not in hello(later)["agentCapabilities"]


# --- a missing login, on every protocol ------------------------------------------------------------------------------

NEEDS = "--methods oauth-personal,gemini-api-key --needs new"


@VERSIONS
async def test_acp_is_told(start: Start, version: int) -> None:
    async with start(NEEDS) as served, client(served.url, version) as one:
        failed = await refused(-32000, one.new(served.workspace))
        assert str(failed).startswith(f"-32000: {MISSING}")
        assert failed.data["reason"] == "auth_required"
        assert failed.data["authMethods"] == described(version, "oauth-personal", "gemini-api-key")
        assert (await one.call("session/list"))["sessions"] == []  # nothing is left behind


async def test_acp_over_http_is_told(start: Start) -> None:
    async with start(NEEDS) as served:
        head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
        opened = await served.http.post("/acp", json=body, headers=head)
        head["Acp-Connection-Id"] = opened.headers["acp-connection-id"]
        async with served.http.stream("GET", "/acp", headers=head) as stream:
            params = {"cwd": str(served.workspace), "mcpServers": []}
            body = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": params}
            await served.http.post("/acp", json=body, headers=head)
            error = await _first(stream)
        assert error["error"]["code"] == -32000 and error["error"]["message"] == MISSING


async def _first(stream: httpx.Response) -> Json:
    async for line in stream.aiter_lines():
        if line.startswith("data:"):
            found: Json = json.loads(line[5:])
            return found
    raise AssertionError("the stream ended")


async def test_opencode_is_told(start: Start) -> None:
    """A POST that waits gets it as its answer, everybody as ``session.error``; the message is kept, held."""
    async with start(NEEDS) as served:
        session = await served.session()
        async with served.events() as frames:
            answer = await served.post(session, "[]")
            assert answer.status_code == 502 and MISSING in answer.text, answer.text
            told = (await frames.until("session.error", sessionID=session))["properties"]["error"]
            assert MISSING in told["data"]["message"], told
            await served.send(session, "[]")
            told = (await frames.until("session.error", sessionID=session))["properties"]["error"]
            assert MISSING in told["data"]["message"]
        assert (await served.http.get("/session/status")).json() == {}  # nobody is shown as busy
        async with client(served.url) as one:  # and it goes on when somebody has logged in
            await one.call("authenticate", methodId="gemini-api-key")
        answer = await served.post(session, "[]")
        assert answer.status_code == 200, answer.text
        assert [line.split(":")[0] for line in await served.told(session)].count("user") == 3


async def test_opencodes_terminal_client_shows_it(start: Start, tmp_path: Path) -> None:
    async with start(NEEDS) as served, attached(served, tmp_path / "home") as terminal:
        await terminal.until("Ask anything")
        await terminal.enter("hello")
        await terminal.until(MISSING[:40])


async def test_agui_is_told(start: Start) -> None:
    async with start(NEEDS) as served:
        body = {
            "threadId": "t1",
            "runId": "r1",
            "messages": [{"id": "m1", "role": "user", "content": "hello"}],
            "tools": [],
            "context": [],
            "state": {},
            "forwardedProps": {},
        }
        events = []
        async with served.http.stream("POST", "/agui/asker", json=body) as stream:
            assert stream.status_code == 200
            async for line in stream.aiter_lines():
                if line.startswith("data:"):
                    events.append(json.loads(line[5:]))
        assert events[0]["type"] == "RUN_STARTED"
        last = events[-1]
        assert last["type"] == "RUN_ERROR" and last["code"] == "auth_required" and MISSING in last["message"]
