"""``adapters/acp/remote*``: the port against real servers, behind a proxy that cuts, refuses and is late."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from websockets.asyncio.server import ServerConnection, serve

from adapters.acp import remote_base
from adapters.acp.agent import AcpAgents, probe
from adapters.acp.remote_http import RemoteHttp
from gateway.agents import AgentConfig
from gateway.core import effects, inputs
from gateway.core.errors import AgentError, AgentUnavailable, AuthRequired
from gateway.core.model import Error, Selected
from tests.acp import remote
from tests.acp.remote import Program, Proxy
from tests.acp.support import Driver, session
from tests.served import serve as gateway

pytestmark = pytest.mark.usefixtures("npm_clients")
KINDS = ("ws", "http")


def streamed(count: int) -> str:
    return "".join(f"chunk {i} " for i in range(count))


@asynccontextmanager
async def behind(agent: Program, tmp: Path, kind: str, **fields: Any) -> AsyncIterator[tuple[Driver, Proxy]]:
    """A port to ``agent`` through a proxy, not started."""
    async with (
        remote.proxy(agent.url) as proxy,
        remote.port(tmp, f"{kind}://127.0.0.1:{proxy.port}/acp", **fields) as driver,
    ):
        yield driver, proxy


async def gone(driver: Driver) -> inputs.AgentGone:
    driver.port.start(session(driver.cwd), False)
    return await driver.sink.one(inputs.AgentGone)


async def lost_at_once(driver: Driver, proxy: Proxy) -> Error:
    """The error after a cut in a turn; told within 50 ms in one of ten tries: the machine may be busy."""
    times: list[float] = []
    while not times or (min(times) >= 0.05 and len(times) < 10):
        if times:
            await driver.start(driver.port.own_id, has_history=True)
        at = len(driver.sink.facts)
        driver.offer("stream 400 5")
        await driver.sink.one(inputs.AgentText, at)
        began = time.monotonic()
        assert proxy.cut()
        told = await driver.sink.one(inputs.AgentGone, at)
        times.append(time.monotonic() - began)
    assert min(times) < 0.05, times
    assert told.error
    return told.error


# --- cuts ------------------------------------------------------------------------------------------------------------


async def test_a_cut_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    """Trunkline numbers its frames: nothing is lost, nothing comes twice, whatever is cut, and however often."""
    async with remote.trunkline(tmp_path, tmp_path) as agent, behind(agent, tmp_path, "http") as (d, proxy):
        await d.start()
        offer = d.offer("stream 400 5\nask go on\nsay end")
        for number in (5, 100, 200):
            await d.sink.until(lambda _, n=number: f" {n} " in d.sink.text())  # type: ignore[misc]
            assert proxy.cut(only_streams=True)
        ask = await d.sink.one(inputs.AgentAsk)
        proxy.cut()  # also the connections that would carry the answer
        d.port.perform(effects.AnswerAgent(ask.agent_ref, Selected("once")))
        await d.sink.one(inputs.PromptEnded, offer_id=offer, outcome="end_turn")
        assert d.sink.text() == streamed(400) + "end"
        # two streams, cut four times; one that was about to be opened again needs no more than that
        assert sum(line.startswith("GET") for line in proxy.requests) >= 2 + 4
        assert not d.sink.of(inputs.AgentGone)


async def test_a_stream_that_is_cut_while_nothing_is_said(tmp_path: Path) -> None:
    async with remote.trunkline(tmp_path, tmp_path) as agent, behind(agent, tmp_path, "http") as (d, proxy):
        await d.start()
        channel = d.port._connection and d.port._connection.process
        assert isinstance(channel, RemoteHttp)
        offer = d.offer("sleep 1000\nsay woken")
        async with asyncio.timeout(20):
            while d.port.own_id not in channel._streams or channel._streams[d.port.own_id].last is None:
                await asyncio.sleep(0.005)
        assert not d.sink.text()
        assert proxy.cut(only_streams=True) == 2
        await d.sink.one(inputs.PromptEnded, offer_id=offer, outcome="end_turn")
        assert d.sink.text() == "woken"


async def test_a_cut_stream_without_ids_is_lost(tmp_path: Path) -> None:
    async with remote.typescript(tmp_path) as agent, behind(agent, tmp_path, "http") as (d, proxy):
        await d.start()
        error = await lost_at_once(d, proxy)
        assert error.code == "agent_exit"
        assert error.message.startswith(f"far at 127.0.0.1:{proxy.port}: the connection was lost (")
        loads = agent.seen.count("session/load") + agent.seen.count("session/resume")
        await d.start(d.port.own_id, has_history=True)  # connects anew, and loads
        assert (await d.turn("say on")).outcome == "end_turn"
        assert agent.seen.count("session/load") + agent.seen.count("session/resume") == loads + 1


async def test_a_cut_socket_is_lost(tmp_path: Path) -> None:
    async with remote.trunkline(tmp_path, tmp_path) as agent, behind(agent, tmp_path, "ws") as (d, proxy):
        await d.start()
        error = await lost_at_once(d, proxy)
        assert (error.code, error.message) == (
            "agent_exit",
            f"far at 127.0.0.1:{proxy.port}: the connection was lost (the socket was cut)",
        )


@pytest.mark.parametrize("kind", KINDS)
async def test_the_queue_is_held_when_the_connection_is_lost(kind: str, tmp_path: Path) -> None:
    """Through the gateway: a typed error, the queue held, and the next submit connects anew."""
    async with remote.typescript(tmp_path) as agent, remote.proxy(agent.url) as proxy:
        url = f"{kind}://127.0.0.1:{proxy.port}/acp"
        async with gateway(tmp_path / "near", "--agent", f"far={url}") as near:
            one = await near.session()
            async with near.events() as frames:
                await near.send(one, "say going\nsleep 60000")
                await frames.until("message.part.delta", sessionID=one)
                await near.send(one, "say queued")
                proxy.cut()
                error = (await frames.until("session.error", sessionID=one))["properties"]["error"]
                assert "the connection was lost" in error["data"]["message"]
                await frames.until("session.idle", sessionID=one)
            assert (await near.told(one))[-1] == "user: say queued"
            answer = await near.post(one, "say next", delivery="queue")
            assert answer.status_code == 200
            async with asyncio.timeout(30):
                while (await near.told(one))[-1] not in ("assistant: queued", "assistant: nextqueued"):
                    await asyncio.sleep(0.05)
            assert agent.seen.count("session/new") == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_gateway_that_is_started_again(kind: str, tmp_path: Path) -> None:
    """It does not know the old connection any more; the session it has loaded from its store."""
    async with (
        gateway(tmp_path / "far", "--agent", "demo", "--workspace", str(tmp_path)) as far,
        remote.proxy(far.url + "/") as proxy,
        remote.port(tmp_path, f"{kind}://127.0.0.1:{proxy.port}/acp") as d,
    ):
        await d.start()
        await d.turn("say hello")
        await far.kill()
        await far.start()
        proxy.to = int(far.url.rsplit(":", 1)[1])
        told = await d.sink.one(inputs.AgentGone)
        assert told.error and "the connection was lost" in told.error.message
        own = d.port.own_id
        await d.start(own, has_history=True)
        assert d.port.own_id == own and (await d.turn("say on")).outcome == "end_turn"
        assert d.sink.text() == "helloon"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_ends(kind: str, tmp_path: Path) -> None:
    async with remote.python(tmp_path) as agent, remote.port(tmp_path, agent.at(kind)) as d:
        await d.start()
        d.offer("sleep 60000")
        await d.sink.one(inputs.PromptWritten)
        while "WS -" not in agent.seen and "POST far=1" not in agent.seen:
            await asyncio.sleep(0.01)
        agent.kill()
        told = await d.sink.one(inputs.AgentGone)
        assert told.error and "the connection was lost" in told.error.message


async def test_a_prompt_whose_answer_is_lost_is_not_sent_again(tmp_path: Path) -> None:
    async with remote.typescript(tmp_path) as agent, behind(agent, tmp_path, "http") as (d, proxy):
        await d.start()
        proxy.swallow = b'"session/prompt"'
        d.offer("say once")
        told = await d.sink.one(inputs.AgentGone)
        assert told.error and "it is not known whether it has taken session/prompt" in told.error.message
        proxy.swallow = b""
        await d.start(d.port.own_id, has_history=True)
        await d.turn("say on")
        assert agent.seen.count("session/prompt") == 2


# --- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_starts_late(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, then busy, then there: attempts are repeated, at growing distances."""
    waits: list[float] = []
    once = remote_base.Waits.next

    def next_(self: remote_base.Waits) -> float:
        waits.append(once(self))
        return waits[-1]

    monkeypatch.setattr(remote_base.Waits, "next", next_)
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    async with remote.port(tmp_path, f"{kind}://127.0.0.1:{number}/acp") as d:
        starting = asyncio.get_running_loop().create_task(d.start())
        while len(waits) < 2:  # nobody listens
            await asyncio.sleep(0.01)
        async with remote.python(tmp_path) as agent, remote.proxy(agent.url, number) as proxy:
            proxy.busy = 2
            await starting
            assert proxy.requests[0].split()[0] == ("GET" if kind == "ws" else "POST") and proxy.busy == 0
            assert (await d.turn("say hello")).outcome == "end_turn"
            assert len(waits) >= 4 and all(wait < 1.5 * 0.1 * 2**n for n, wait in enumerate(waits))
            await d.port.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_is_there(kind: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    async with remote.port(tmp_path, f"{kind}://127.0.0.1:{number}/acp", start_timeout=1) as d:
        told = await gone(d)
        assert told.error and told.error.code == "agent_exit"
        start = f"far at 127.0.0.1:{number}: cannot be reached: connection refused ("
        assert told.error.message.startswith(start) and " attempts in " in told.error.message


@pytest.mark.parametrize("kind", KINDS)
async def test_the_wrong_token_is_final(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remote.python(tmp_path, TOKEN="s3cret") as agent:
        config = AgentConfig.model_validate(
            {"name": "far", "url": agent.at(kind), "headers": {"Authorization": "Bearer ${FAR_TOKEN}"}}
        )
        monkeypatch.setenv("FAR_TOKEN", "wr0ng")
        with structlog.testing.capture_logs() as logs, pytest.raises(AuthRequired) as refused:
            await probe(config)
        assert "401" in str(refused.value) and "who are you?" in str(refused.value)
        assert len(agent.seen) == 1  # one request, not more
        assert "wr0ng" not in f"{logs}{refused.value}{config!r}"
        monkeypatch.setenv("FAR_TOKEN", "s3cret")
        assert (await probe(config))["name"] == "far"
        monkeypatch.delenv("FAR_TOKEN")
        with pytest.raises(AgentUnavailable) as unset:
            await probe(config)
        assert str(unset.value) == (
            "far cannot be started: the header Authorization needs the variable FAR_TOKEN, which is not set"
        )


@pytest.mark.parametrize(
    ("path", "said"),
    [("/nothing", "it refuses initialize: HTTP 404"), ("/doc", "it refuses initialize: HTTP 405")],
)
async def test_no_agent_at_this_address(path: str, said: str, tmp_path: Path) -> None:
    async with remote.trunkline(tmp_path, tmp_path) as agent:
        url = agent.url.removesuffix("/acp") + path
        began = time.monotonic()
        with pytest.raises(AgentError) as refused:
            await probe(AgentConfig(name="far", url=url))
        assert said in str(refused.value) and refused.value.code == "agent_error" and time.monotonic() - began < 5
        with pytest.raises(AgentError) as refused:
            await probe(AgentConfig(name="far", url=url.replace("http", "ws", 1)))
        assert "the WebSocket: HTTP 40" in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
async def test_redirects_are_not_followed(kind: str, tmp_path: Path) -> None:
    """The headers are meant for the host that was named."""
    reached: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await reader.read(9999))
        writer.close()

    async def here(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        place = f"{kind}://127.0.0.1:{other.sockets[0].getsockname()[1]}/acp"
        writer.write(f"HTTP/1.1 307 Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    one = await asyncio.start_server(here, "127.0.0.1", 0)
    async with other, one:
        with pytest.raises(AgentError) as refused:
            await probe(AgentConfig(name="far", url=f"{kind}://127.0.0.1:{one.sockets[0].getsockname()[1]}/acp"))
        assert "HTTP 307: it points to " in str(refused.value) and refused.value.code == "agent_error"
    assert not reached


# --- cookies, sharing, the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_cookies_are_kept_and_returned(kind: str, tmp_path: Path) -> None:
    """Within a connection, and at the next one of the same agent: a balancer finds the same server."""
    pool = AcpAgents()
    async with remote.python(tmp_path) as agent:
        for _ in range(2):
            async with remote.port(tmp_path, agent.at(kind), pool) as d:
                await d.start()
                await d.turn("say hello")
        await pool.close()
        cookies = [line.split(" ", 1)[1] for line in agent.seen if line.startswith(("WS", "GET", "POST", "DELETE"))]
        assert cookies == ["-"] + ["far=1"] * (len(cookies) - 1) and len(cookies) >= 2
        if kind == "http":
            assert sum(line.startswith("DELETE") for line in agent.seen) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("server", ("trunkline", "typescript"))
async def test_sessions_that_share_a_connection(server: str, kind: str, tmp_path: Path) -> None:
    pool = AcpAgents()
    starting = remote.typescript(tmp_path) if server == "typescript" else remote.trunkline(tmp_path, tmp_path)
    async with (
        starting as agent,
        behind(agent, tmp_path, kind, pool=pool, process="shared") as (a, proxy),
        remote.port(tmp_path, f"{kind}://127.0.0.1:{proxy.port}/acp", pool, process="shared") as b,
    ):
        await asyncio.gather(a.start(), b.start())
        assert a.pid == b.pid and a.port.own_id != b.port.own_id
        await asyncio.gather(a.turn("stream 50 1\nsay A"), b.turn("stream 50 1\nsay B"))
        assert (a.sink.text(), b.sink.text()) == (streamed(50) + "A", streamed(50) + "B")
        await a.port.close()
        assert a.sink.facts[-1] == inputs.AgentGone()
        assert (await b.turn("say on")).outcome == "end_turn"
        proxy.cut()
        proxy.busy = 100
        if kind == "ws" or server == "typescript":
            assert (await b.sink.one(inputs.AgentGone)).error
    await pool.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("server", ("trunkline", "typescript"))
async def test_what_a_child_says_arrives(server: str, kind: str, tmp_path: Path) -> None:
    """The TypeScript SDK's server has a stream for the child; Trunkline tells it on its parent's."""
    starting = remote.typescript(tmp_path) if server == "typescript" else remote.trunkline(tmp_path, tmp_path)
    async with starting as agent, remote.port(tmp_path, agent.at(kind)) as d:
        await d.start()
        await d.turn("child Bob")
        child = d.sink.of(inputs.AgentChild)[0].child
        text = await d.sink.one(inputs.AgentText, agent_session=child)
        assert text.text == "Bob at work"


@pytest.mark.parametrize("kind", KINDS)
async def test_version_2(kind: str, tmp_path: Path) -> None:
    async with remote.trunkline(tmp_path, tmp_path) as agent:
        async with remote.port(tmp_path, agent.at(kind), protocol=2) as d:
            await d.start()
            assert (await d.turn("say hello\ntool ls\nsay again")).outcome == "end_turn"
            assert d.sink.text() == "helloagain"
            own = d.port.own_id
        async with remote.port(tmp_path, agent.at(kind), protocol=2) as d:
            await d.start(own)
            at = len(d.sink.facts)
            [told] = d.sink.of(inputs.Replayed)
            assert "".join(f.text for f in told.facts if isinstance(f, inputs.AgentText) and f.role == "agent") == (
                "helloagain"
            )
            await d.turn("say on")
            assert d.sink.text(after=at) == "on"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("server", ("trunkline", "typescript"))
async def test_a_replay_is_whole_before_the_session_is_ready(server: str, kind: str, tmp_path: Path) -> None:
    """On HTTP the TypeScript SDK's server answers session/load on another stream than the replay's."""
    starting = remote.typescript(tmp_path) if server == "typescript" else remote.trunkline(tmp_path, tmp_path)
    async with starting as agent:
        async with remote.port(tmp_path, agent.at(kind)) as d:
            await d.start()
            for number in range(40):
                await d.turn(f"tool {number}\nsay {number}")
            own = d.port.own_id
        async with remote.port(tmp_path, agent.at(kind)) as d:
            await d.start(own)
            await d.turn("say on")
            at = next(i for i, fact in enumerate(d.sink.facts) if isinstance(fact, inputs.AgentReady))
            [told] = [fact for fact in d.sink.facts[:at] if isinstance(fact, inputs.Replayed)]
            said = [f.text for f in told.facts if isinstance(f, inputs.AgentText) and f.role == "agent"]
            assert said == [str(number) for number in range(40)]
            assert d.sink.text(after=at) == "on"


@pytest.mark.parametrize("kind", KINDS)
async def test_back_pressure_and_a_burst(kind: str, tmp_path: Path) -> None:
    async with remote.typescript(tmp_path) as agent, behind(agent, tmp_path, kind) as (d, _):
        await d.start()
        offer = d.offer("flood 30000")
        await d.sink.one(inputs.AgentText)
        d.sink.is_full = True
        at = len(d.sink.facts)
        await d.sink.until(lambda _: True, at)
        held = len(d.sink.text())
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len(d.sink.text()) == held < 44 * 30000
        d.sink.drain()
        await d.sink.one(inputs.PromptEnded, offer_id=offer)
        assert d.sink.text() == "".join(f"{i:08d} the quick brown fox jumps over it. " for i in range(30000))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_agent_that_has_to_be_killed(kind: str, tmp_path: Path) -> None:
    async with remote.typescript(tmp_path) as agent, remote.port(tmp_path, agent.at(kind)) as d:
        await d.start()
        d.offer("hang")
        await d.sink.one(inputs.PromptWritten)
        d.port.perform(effects.KillAgent("it did not end its turn"))
        told = await d.sink.one(inputs.AgentGone)
        assert told.error and "the connection was closed (it did not end its turn)" in told.error.message
        await d.port.close()
        while kind == "http" and "DELETE 202" not in agent.seen:
            await asyncio.sleep(0.01)


# --- frames ----------------------------------------------------------------------------------------------------------


async def test_frames(tmp_path: Path) -> None:
    """Binary frames are nothing, fragments are one message, newlines in it are space; one too long is the end."""

    async def agent(one: ServerConnection) -> None:
        async for raw in one:
            message = json.loads(raw)
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": 1, "sessionId": "s"}}
            if message["method"] == "session/prompt":
                update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hello there"}}
                note = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}
                text = json.dumps(note, indent=2)
                await one.send(text.replace("hello there", "binary ").encode())
                await one.send([text[:30], text[30:90], text[90:]])
                await one.send("no json")
                answer["result"] = {"stopReason": "end_turn"}
                if "long" in str(message["params"]):
                    await one.send("x" * (remote_base.MAX_MESSAGE + 1))
            await one.send(json.dumps(answer))

    async with serve(agent, "127.0.0.1", 0, max_size=None) as server:
        number = server.sockets[0].getsockname()[1]
        async with remote.port(tmp_path, f"ws://127.0.0.1:{number}/") as d:
            await d.start()
            assert (await d.turn("x")).outcome == "end_turn" and d.sink.text() == "hello there"
            d.offer("long")
            told = await d.sink.one(inputs.AgentGone)
            assert told.error and "1009" in told.error.message
