"""What real agents and clients do that breaks a gateway which only read the documents. One test, one habit."""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.acp import strays
from adapters.acp.agent import AcpAgents
from gateway.agents import AgentConfig
from gateway.core import effects, inputs
from gateway.core.model import Selected
from tests.acp.clients.raw import V1, Client, RpcError, client
from tests.acp.support import Driver
from tests.served import Served, serve

HEAD = """
import json, sys
def write(line): sys.stdout.write(line + "\\n"); sys.stdout.flush()
def send(**m): write(json.dumps({"jsonrpc": "2.0", **m}))
def update(sid, **u): send(method="session/update", params={"sessionId": sid, "update": u})
def chunk(sid, text, **more):
    update(sid, sessionUpdate="agent_message_chunk", content={"type": "text", "text": text}, **more)
CAN, NEW = {}, {"sessionId": "s1"}
def read():
    line = sys.stdin.readline()
    if not line: sys.exit()
    return json.loads(line)
"""
LOOP = """
while True:
    m = read()
    i, method, params = m.get("id"), m.get("method"), m.get("params")
    if method == "initialize": send(id=i, result={"protocolVersion": 1, "agentCapabilities": CAN})
    elif method == "session/new" and NEW: send(id=i, result=NEW)
    else: handle(m, i, method, params)
"""
Json = dict[str, Any]
OPTIONS = [{"optionId": "once", "name": "Allow", "kind": "allow_once"}]


def command(folder: Path, script: str) -> list[str]:
    path = folder / "agent.py"
    path.write_text(HEAD + script + LOOP)
    return [sys.executable, str(path)]


@asynccontextmanager
async def agent(folder: Path, script: str, start: bool = True, **fields: Any) -> AsyncIterator[Driver]:
    config = AgentConfig(name="odd", command=command(folder, script), **fields)
    driver = Driver(config, folder)
    try:
        if start:
            await driver.start()
        yield driver
    finally:
        await driver.port.close()
        await driver.pool.close()


@asynccontextmanager
async def attached(folder: Path, script: str, hello: Json = V1) -> AsyncIterator[Client]:
    """A client in front of a whole gateway with this agent, its session made."""
    async with gateway(folder, script) as served, client(served.url, hello=hello) as one:
        await one.new(served.workspace)
        yield one


@asynccontextmanager
async def gateway(folder: Path, script: str) -> AsyncIterator[Served]:
    async with serve(folder, "--agent", f"odd={' '.join(command(folder, script))}") as served:
        yield served


def said(driver: Driver, after: int = 0) -> list[str]:
    return [f.text for f in driver.sink.facts[after:] if isinstance(f, inputs.AgentText)]


# --- of agents -------------------------------------------------------------------------------------------------------


async def test_updates_come_whenever_they_like(tmp_path: Path) -> None:
    """Before a session is opened, after it was loaded, after a turn's end and while nothing runs: none is lost."""
    script = """
CAN, NEW = {"loadSession": True}, None
def handle(m, i, method, params):
    if method == "session/new":
        chunk("s1", "before new"); send(id=i, result={"sessionId": "s1"}); chunk("s1", "after new")
    elif method == "session/load":
        update("s1", sessionUpdate="user_message_chunk", content={"type": "text", "text": "old"})
        send(id=i, result=None)
        update("s1", sessionUpdate="subagent_update", sessionId="kid", state={"state": "running"})
        chunk("kid", "after load")
    elif method == "session/prompt":
        chunk("s1", "in the turn"); send(id=i, result={"stopReason": "end_turn"}); chunk("s1", "after the turn")
"""
    async with agent(tmp_path, script) as d:
        await d.sink.one(inputs.AgentText, text="after new")
        assert said(d) == ["before new", "after new"]
        await d.turn("x")
        await d.sink.one(inputs.AgentText, text="after the turn")
        await d.port.close()
        at = len(d.sink.facts)
        await d.start("s1", has_history=True)
        late = await d.sink.one(inputs.AgentText, at, text="after load")
        assert late.agent_session == "kid"
        kinds = [type(f).__name__ for f in d.sink.facts[at:]]
        assert kinds == ["Replayed", "AgentReady", "AgentChild", "AgentText"]  # and not as a part of the replay


async def test_updates_of_strangers_wait_within_bounds(tmp_path: Path) -> None:
    """A child's updates may come before it is announced; what is never announced is dropped, and said in the log."""
    script = f"""
def handle(m, i, method, params):
    for n in range({strays.MESSAGES + 5}): chunk("kid", str(n) + " ", messageId=str(n))
    for n in range({strays.SESSIONS + 5}): chunk("nobody" + str(n), "never")
    update("s1", sessionUpdate="subagent_update", sessionId="kid", state={{"state": "running"}})
    chunk("kid", "live")
    send(id=i, result={{"stopReason": "end_turn"}})
"""
    with capture_logs() as logs:
        async with agent(tmp_path, script) as d:
            await d.turn("x")
            text = "".join(said(d))
    assert text == "".join(f"{n} " for n in range(strays.MESSAGES)) + "live"
    dropped = [name for line in logs if "unknown sessions" in line["event"] for name in line["sessions"]]
    assert dropped.count("kid") == 1 and f"nobody{strays.SESSIONS + 4}" in dropped


def test_strangers_are_forgotten_after_a_while() -> None:
    kept = strays.Strays()
    assert kept.add("a", 1, now=0.0) == []
    assert kept.add("b", 2, now=strays.SECONDS + 1) == ["a"]
    assert (kept.take("a"), kept.take("b"), kept.take("b")) == ([], [2], [])


async def test_requests_of_strangers_are_refused_at_once(tmp_path: Path) -> None:
    script = """
def handle(m, i, method, params):
    if method == "session/prompt":
        for n, (what, sid) in enumerate([("session/request_permission", "nobody"), ("elicitation/create", "nobody"),
                                         ("elicitation/create", None), ("fs/read_text_file", "nobody"),
                                         ("session/unheard_of", "s1"), ("nonsense", "nobody")]):
            send(id=n, method=what, params={"sessionId": sid} if sid else {})
        answers = {}
        while len(answers) < 6:
            found = read()
            answers[found["id"]] = found["error"]["code"]
        chunk("s1", json.dumps([answers[n] for n in range(6)]))
        send(method="session/nonsense", params={"sessionId": "s1"}); send(method="nonsense")
        send(id=i, result={"stopReason": "end_turn"})
"""
    async with agent(tmp_path, script) as d:
        assert (await d.turn("x")).outcome == "end_turn"
        assert said(d) == ["[-32002, -32002, -32002, -32601, -32601, -32601]"]
        assert d.sink.of(inputs.AgentAsk) == []


async def test_ids_differ_by_their_type_and_go_back_as_they_came(tmp_path: Path) -> None:
    """0, "0" and 1e0 are three requests; the answers come in another order than the questions."""
    script = """
def handle(m, i, method, params):
    if method != "session/prompt": return
    for raw in ('0', '"0"', '1e0', '"\\\\u0061"', '-7'):
        write('{"id":%s,"jsonrpc":"2.0","method":"session/request_permission","params":{"sessionId":"s1",'
              '"toolCall":{"toolCallId":"c"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}}' % raw)
    lines = [sys.stdin.readline() for _ in range(5)]
    chunk("s1", json.dumps([line[line.index('"id":') + 5:].split(",")[0] for line in lines]))
    send(id=str(i), result={"stopReason": "refusal"}); send(id=float(i) + 0.5, result={"stopReason": "refusal"})
    send(id=i, result={"stopReason": "end_turn"})
"""
    async with agent(tmp_path, script) as d:
        offer = d.offer("x")
        await d.sink.until(lambda _: len(d.sink.of(inputs.AgentAsk)) == 5)
        asks = d.sink.of(inputs.AgentAsk)
        assert len({ask.agent_ref for ask in asks}) == 5
        for ask in reversed(asks):
            d.port.perform(effects.AnswerAgent(ask.agent_ref, Selected("o")))
        end = await d.sink.one(inputs.PromptEnded, offer_id=offer)
        assert end.outcome == "end_turn"
        assert json.loads(said(d)[0]) == ["-7", '"\\u0061"', "1e0", '"0"', "0"]


async def test_answers_come_in_another_order(tmp_path: Path) -> None:
    """Two sessions of one process: the second prompt is answered first, each with its own."""
    script = """
NEW, prompts, count = None, [], 0
def handle(m, i, method, params):
    global count
    if method == "session/new":
        count += 1
        send(id=i, result={"sessionId": "s" + str(count)})
    elif method == "session/prompt":
        prompts.append((i, params["sessionId"]))
        if len(prompts) == 2:
            for number, sid in reversed(prompts):
                chunk(sid, "for " + sid)
                send(id=number, result={"stopReason": "end_turn" if sid == "s1" else "max_tokens"})
"""
    pool = AcpAgents()
    config = AgentConfig(name="odd", command=command(tmp_path, script), process="shared")
    one, two = Driver(config, tmp_path, pool), Driver(config, tmp_path, pool)
    try:
        await one.start()
        await two.start()
        first, second = one.offer("x"), two.offer("y")
        assert (await one.sink.one(inputs.PromptEnded, offer_id=first)).outcome == "end_turn"
        assert (await two.sink.one(inputs.PromptEnded, offer_id=second)).outcome == "max_tokens"
        assert (said(one), said(two)) == (["for s1"], ["for s2"])
    finally:
        await one.port.close()
        await two.port.close()
        await pool.close()


async def test_an_elicitation_about_a_request_of_ours(tmp_path: Path) -> None:
    """Its scope is our request's id, which is ours: the client sees its session, and no id that it never gave."""
    script = """
def handle(m, i, method, params):
    if method != "session/prompt": return
    form = {"message": "Which?", "mode": "form", "requestedSchema": {"type": "object", "properties": {}}}
    send(id=1, method="elicitation/create", params={**form, "requestId": i})
    send(id=2, method="elicitation/create", params={**form, "requestId": str(i)})
    send(id=3, method="elicitation/create", params={**form, "requestId": i + 1000})
    answers = {}
    while len(answers) < 3:
        found = read()
        answers[found["id"]] = found.get("result") or found["error"]["code"]
    chunk("s1", json.dumps([answers[n] for n in (1, 2, 3)]))
    send(id=i, result={"stopReason": "end_turn"})
"""
    async with attached(tmp_path, script) as one:
        one.answer = lambda message: {"action": "accept", "content": {}}
        await one.turn("x")
        [asked] = [m for m in one.got if m.get("method") == "elicitation/create"]
        assert asked["params"]["sessionId"] == one.session and "requestId" not in asked["params"]
        assert json.loads(one.text()) == [{"action": "accept", "content": {}}, -32002, -32002]


async def test_keys_come_in_any_order(tmp_path: Path) -> None:
    """Nobody may guess from how a line begins what it is."""
    update = [
        '"sessionUpdate":"agent_message_chunk"',
        '"messageId":"m"',
        '"content":{"text":"%d ","type":"text"}',
    ]
    lines = []
    for inner in itertools.permutations(update):
        for params in (["s", "u"], ["u", "s"]):
            for outer in itertools.permutations(["j", "m", "p"]):
                body = {"s": '"sessionId":"s1"', "u": '"update":{' + ",".join(inner) + "}"}
                whole = {"j": '"jsonrpc":"2.0"', "m": '"method":"session/update"'}
                whole["p"] = '"params":{' + ",".join(body[k] for k in params) + "}"
                lines.append("{" + ",".join(whole[k] for k in outer) + "}")
    (tmp_path / "lines").write_text("\n".join(line % n for n, line in enumerate(lines)))
    script = f"""
def handle(m, i, method, params):
    if method == "session/prompt":
        for line in open({str(tmp_path / "lines")!r}): write(line.strip())
        write(json.dumps({{"result": {{"stopReason": "end_turn"}}, "id": i, "jsonrpc": "2.0"}}))
"""
    async with agent(tmp_path, script) as d:
        await d.turn("x")
        assert "".join(said(d)) == "".join(f"{n} " for n in range(72))
        assert d.port._connection and d.port._connection.peer.noise == 0


async def test_nulls_and_what_is_left_out(tmp_path: Path) -> None:
    script = """
NEW = {"sessionId": "s1", "modes": None, "configOptions": None, "models": None, "_meta": None}
CAN = {"loadSession": None, "promptCapabilities": None, "mcpCapabilities": None, "sessionCapabilities": None}
def handle(m, i, method, params):
    if method != "session/prompt": return
    chunk("s1", "no id")
    chunk("s1", "null id", messageId=None)
    update("s1", sessionUpdate="tool_call", toolCallId="c", title="t", kind=None, status=None, content=None,
           locations=None, rawInput=None, rawOutput=None, _meta=None)
    update("s1", sessionUpdate="tool_call_update", toolCallId="c", title=None, status="completed", content=None)
    update("s1", sessionUpdate="usage_update", used=1, size=2, cost=None)
    update("s1", sessionUpdate="session_info_update", title=None, updatedAt=None)
    update("s1", sessionUpdate="plan", entries=[])
    update("s1", sessionUpdate=None); update("s1"); send(method="session/update", params=None)
    send(id=i, result={"stopReason": "end_turn", "usage": None, "_meta": None}, error=None)
"""
    async with agent(tmp_path, script) as d:
        end = await d.turn("x")
        assert (end.outcome, end.tokens, end.error) == ("end_turn", None, None)
        assert [(f.text, f.agent_id) for f in d.sink.of(inputs.AgentText)] in (
            [("no id", ""), ("null id", "")],
            [("no idnull id", "")],
        )
        assert d.sink.of(inputs.AgentTool)[-1].status == "completed"
        [usage] = d.sink.of(inputs.AgentUsage)
        assert (usage.used, usage.size, usage.cost) == (1, 2, None)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ('{"code": 429, "message": "Quota", "data": {"retry": 5}}', 429, "Quota"),
        ('{"code": 1001, "message": "app server ended", "data": null}', 1001, "app server ended"),
        ('{"code": "E_ODD", "message": "words"}', -32603, "words"),
        ('{"message": null}', -32603, "The peer gave no reason."),
        ('"just text"', -32603, "just text"),
    ],
)
async def test_error_codes_of_their_own(tmp_path: Path, error: str, code: int, message: str) -> None:
    script = f"""
def handle(m, i, method, params):
    if method == "session/prompt":
        write('{{"jsonrpc":"2.0","id":%d,"error":' % i + {error!r} + '}}')
"""
    async with attached(tmp_path, script) as one:
        with pytest.raises(RpcError) as caught:
            await one.prompt("x")
        assert caught.value.code == code and message in str(caught.value)
        assert (await one.call("session/list"))["sessions"]  # nothing else is disturbed


# --- cancelling ------------------------------------------------------------------------------------------------------

CANCELLED = """
def handle(m, i, method, params):
    if method != "session/prompt": return
    if params["prompt"][0]["text"] != "ask":
        chunk("s1", "next"); send(id=i, result={"stopReason": "end_turn"}); return
    form = {"sessionId": "s1", "message": "?", "mode": "form", "requestedSchema": {"type": "object", "properties": {}}}
    call = {"toolCallId": "c", "title": "t"}
    once = [{"optionId": "once", "name": "Allow", "kind": "allow_once"}]
    send(id=1, method="session/request_permission", params={"sessionId": "s1", "toolCall": call, "options": once})
    send(id=2, method="elicitation/create", params=form)
    seen = []
    while "session/cancel" not in seen:
        found = read()
        seen.append(found["method"] if "method" in found else [found["id"], found["result"]])
    send(id=3, method="session/request_permission", params={"sessionId": "s1", "toolCall": call, "options": once})
    seen.append(read()["result"])
    chunk("s1", json.dumps(seen))
    update("s1", sessionUpdate="tool_call_update", toolCallId="c", status="failed")
    send(id=i, result={"stopReason": "cancelled"})
"""


async def test_a_cancel_answers_what_is_asked_first(tmp_path: Path) -> None:
    """Then it tells the agent, takes what still comes, and an answer that comes late goes nowhere."""
    async with attached(tmp_path, CANCELLED) as one:
        one.answer = lambda message: None
        turn = one.prompt("ask")
        permission = await one.asked("session/request_permission")
        form = await one.asked("elicitation/create")
        after = len(one.got)
        await one.notify("session/cancel", sessionId=one.session)
        assert (await turn)["stopReason"] == "cancelled"
        seen = json.loads(one.text(after=after))
        cancelled = {"outcome": {"outcome": "cancelled"}}
        assert sorted(map(str, seen[:2])) == sorted(map(str, ([1, cancelled], [2, {"action": "cancel"}])))
        assert seen[2:] == ["session/cancel", cancelled]
        assert one.updates("tool_call_update", after=after)[-1]["status"] == "failed"
        withdrawn = {m["params"]["requestId"] for m in one.got if m.get("method") == "$/cancel_request"}
        assert withdrawn == {permission["id"], form["id"]}
        for late, result in ((permission, {"outcome": {"outcome": "selected", "optionId": "once"}}), (form, {})):
            await one.write({"jsonrpc": "2.0", "id": late["id"], "result": result})
        assert (await one.turn("next"))["stopReason"] == "end_turn" and one.text().endswith("next")


async def test_a_request_that_is_withdrawn_in_the_next_message_is_answered(tmp_path: Path) -> None:
    """Also one that had not begun. And what is no withdrawal harms nobody."""
    async with attached(tmp_path, CANCELLED) as one:
        for odd in ({}, {"params": {}}, {"params": {"requestId": {}}}, {"params": {"requestId": 1, "sessionId": 5}}):
            await one.write({"jsonrpc": "2.0", "method": "$/cancel_request", **odd})
        waiting: list[asyncio.Future[Json]] = []
        for number in range(1000, 1050):
            future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
            one._pending[number] = future
            waiting.append(future)
            one.checker.request(number, "session/list")
            await one.write({"jsonrpc": "2.0", "id": number, "method": "session/list", "params": {}})
            await one.notify("$/cancel_request", requestId=number)
        async with asyncio.timeout(30):
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(a, dict) or (isinstance(a, RpcError) and a.code == -32800) for a in answers)


# --- what a client owes its agent ------------------------------------------------------------------------------------

ASKS = """
def handle(m, i, method, params):
    if method != "session/prompt": return
    kind = params["prompt"][0]["text"]
    if kind == "permission":
        once = [{"optionId": "once", "name": "Allow", "kind": "allow_once"}]
        more = {"toolCall": {"toolCallId": "c", "title": "t"}, "options": once}
        send(id=1, method="session/request_permission", params={"sessionId": "s1", **more})
    else:
        more = {"mode": "url", "url": kind, "elicitationId": "e", "message": "Log in"}
        send(id=1, method="elicitation/create", params={"sessionId": "s1", **more})
        update("s1", sessionUpdate="agent_thought_chunk", content={"type": "text", "text": "asked"})
    chunk("s1", json.dumps(read().get("result")))
    send(id=i, result={"stopReason": "end_turn"})
"""


@pytest.mark.parametrize(
    "result",
    [
        {"outcome": {"outcome": "granted"}},
        {"outcome": {"outcome": "selected", "optionId": "another"}},
        {"outcome": {"outcome": "selected"}},
        {"outcome": "selected"},
        {"optionId": "once"},
        {},
    ],
)
async def test_what_is_not_plainly_a_yes_is_none(tmp_path: Path, result: Json) -> None:
    async with attached(tmp_path, ASKS) as one:
        one.answer = lambda message: result
        await one.turn("permission")
        assert json.loads(one.text()) == {"outcome": {"outcome": "cancelled"}}


async def test_a_page_is_opened_by_people_alone(tmp_path: Path) -> None:
    """Nobody who could be asked: nobody says yes for them, and nobody looks at the page."""
    visits: list[object] = []

    async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(visited, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/login"
    hello = {**V1, "clientCapabilities": {}}
    async with (
        server,
        gateway(tmp_path, ASKS) as served,
        client(served.url, hello=hello) as one,
        client(served.url) as other,
    ):
        await one.new(served.workspace)
        other.answer = lambda message: None
        turn = one.prompt(url)
        await one.update("agent_thought_chunk", content={"type": "text", "text": "asked"})
        await other.call("session/load", sessionId=one.session, cwd="/", mcpServers=[])
        await other.asked("elicitation/create")  # it is open, whoever came
        await one.notify("session/cancel", sessionId=one.session)
        await turn
        assert json.loads(one.text()) == {"action": "cancel"}
    assert visits == []


async def test_secrets_of_mcp_servers_reach_the_agent_and_no_log(tmp_path: Path) -> None:
    """From the client, else from the settings; of a kind that the agent cannot take, none. v1 wants the list even if
    it is empty.
    """
    script = """
NEW, opened = None, []
def handle(m, i, method, params):
    if method == "session/new":
        opened.append(params["mcpServers"]); send(id=i, result={"sessionId": "s1"})
    elif method == "session/prompt":
        chunk("s1", json.dumps(opened)); send(id=i, result={"stopReason": "end_turn"})
"""
    mine = [
        {
            "name": "a",
            "command": "/bin/x",
            "args": ["--key", "arg-secret"],
            "env": [{"name": "K", "value": "env-secret"}],
        },
        {
            "type": "http",
            "name": "b",
            "url": "https://x/?t=url-secret",
            "headers": [{"name": "A", "value": "head-secret"}],
        },
    ]
    config = tmp_path / "trunkline.toml"
    argv = json.dumps(command(tmp_path, script))
    settings = (
        "mcp_servers = [{ name = 'set', command = '/bin/y', args = [], env = [{ name = 'K', value = 'set-secret' }] }]"
    )
    config.write_text(
        f"log_level = 'debug'\n[agents.plain]\ncommand = {argv}\n[agents.set]\ncommand = {argv}\n{settings}\n"
        f"[agents.http]\ncommand = {argv.replace('agent.py', 'http.py')}\n"
    )
    command_http = HEAD + script.replace("NEW, opened", 'CAN = {"mcpCapabilities": {"http": True}}\nNEW, opened') + LOOP
    (tmp_path / "http.py").write_text(command_http)
    async with serve(tmp_path, "--config", str(config)) as served:

        async def opened(name: str, servers: list[Json]) -> list[Any]:
            async with client(served.url, path=f"/acp/{name}") as one:
                created = await one.call("session/new", cwd=str(served.workspace), mcpServers=servers)
                one.session = created["sessionId"]
                await one.turn("x")
                found: list[Any] = json.loads(one.text())[0]
                return found

        assert await opened("plain", []) == []
        assert await opened("plain", mine) == mine[:1]
        assert await opened("http", mine) == mine
        assert [each["name"] for each in await opened("set", [])] == ["set"]
        assert await opened("set", mine) == mine[:1]
        async with client(served.url, path="/acp/plain") as one:
            with pytest.raises(RpcError) as caught:
                await one.call("session/new", cwd=str(served.workspace))
            assert caught.value.code == -32602 and "mcpServers" in str(caught.value)
        session = await served.session()
        model = {"providerID": "set", "modelID": "default"}
        answer = await served.post(session, "x", model=model)
        [text] = [p["text"] for p in answer.json()["parts"] if p["type"] == "text"]
        assert json.loads(text)[0][0]["env"] == [{"name": "K", "value": "set-secret"}]
        listed = (await served.http.get("/session")).text
        await served.stop()
        told = "".join(served.log) + listed
        assert "no such MCP server" in told
        for secret in ("arg-secret", "env-secret", "url-secret", "head-secret", "set-secret"):
            assert secret not in told
