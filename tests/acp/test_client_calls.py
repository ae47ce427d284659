"""Files and terminals of the attached client (settings ``fs``, ``terminal`` = ``client``), through a whole gateway."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.acp.clients.raw import V1, V2, Client, client
from tests.served import Served, serve

pytestmark = pytest.mark.usefixtures("npm_clients")

ASKER = [sys.executable, str(Path(__file__).parent / "clients" / "asker.py")]
Json = dict[str, Any]


def offering(**can: Any) -> Json:
    return {**V1, "clientCapabilities": {**V1["clientCapabilities"], **can}}


BOTH = offering(fs={"readTextFile": True, "writeTextFile": True}, terminal=True)
READER = offering(fs={"readTextFile": True})


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    config = tmp_path / "trunkline.toml"
    config.write_text(f'[agents.asker]\ncommand = {json.dumps(ASKER)}\nfs = "client"\nterminal = "client"\n')
    async with serve(tmp_path, "--config", str(config)) as one:
        yield one


def ask(method: str, **params: Any) -> Json:
    return {"ask": method, "params": params}


def steps(*all_of: Json) -> str:
    return json.dumps(all_of)


def spoken(one: Client, after: int = 0) -> list[Any]:
    return [json.loads(line) for line in one.text(after=after).splitlines()]


def answering(one: Client, **results: Any) -> list[Json]:
    """Let a client answer by method (``fs_read_text_file``); returns the list of what it was asked."""
    asked: list[Json] = []

    def answer(message: Json) -> Json | None:
        asked.append(message)
        found = results.get(message["method"].replace("/", "_"))
        return found(message) if callable(found) else found

    one.answer = answer
    return asked


async def test_to_the_client_and_back(served: Served) -> None:
    """Paths, ids and unknown fields as they are; only the session is called by the client's name for it."""
    async with client(served.url, hello=BOTH) as one:
        await one.new(served.workspace)
        asked = answering(
            one,
            fs_read_text_file={"content": "of an unsaved buffer", "_meta": {"dirty": True}},
            fs_write_text_file={},
            terminal_create={"terminalId": "its own"},
            terminal_output={"output": "hi", "truncated": False, "exitStatus": None},
            terminal_wait_for_exit={"exitCode": 3},
            terminal_kill={},
            terminal_release={},
        )
        number = {"terminalId": "$"}
        await one.turn(
            steps(
                ask("fs/read_text_file", path="C:\\elsewhere", line=3, _meta={"x": 1}),
                ask("fs/write_text_file", path="/not/here", content="ü"),
                ask("terminal/create", command="make", args=["all"], cwd="/not/here"),
                ask("terminal/output", **number),
                ask("terminal/wait_for_exit", **number),
                ask("terminal/kill", **number),
                ask("terminal/release", **number),
                ask("terminal/output", **number),
            )
        )
        answers = spoken(one)
    assert answers[:-1] == [
        {"content": "of an unsaved buffer", "_meta": {"dirty": True}},
        {},
        {"terminalId": "its own"},
        {"output": "hi", "truncated": False, "exitStatus": None},
        {"exitCode": 3},
        {},
        {},
    ]
    assert answers[-1]["code"] == -32002  # it was released: the client is not asked
    assert [m["method"] for m in asked] == [
        "fs/read_text_file",
        "fs/write_text_file",
        *(f"terminal/{word}" for word in ("create", "output", "wait_for_exit", "kill", "release")),
    ]
    assert {m["params"].pop("sessionId") for m in asked} == {one.session}
    assert asked[0]["params"] == {"path": "C:\\elsewhere", "line": 3, "_meta": {"x": 1}}
    assert asked[2]["params"] == {"command": "make", "args": ["all"], "cwd": "/not/here"}


async def test_nobody_can(served: Served) -> None:
    """At once, with a word why: also where a client is attached that offers something else, or speaks version 2."""
    async with client(served.url, hello=READER) as one, client(served.url, 2, hello=V2) as two:
        await one.new(served.workspace)
        await two.call("session/resume", sessionId=one.session, cwd="/")
        await one.turn(steps(ask("fs/write_text_file", path="/a", content=""), ask("terminal/create", command="pwd")))
        write, create = spoken(one)
    assert write["code"] == create["code"] == -32601
    assert write["data"] == {"reason": "no_client"} and "fs.writeTextFile" in write["message"]
    session_id = await served.session()
    answer = await served.post(session_id, steps(ask("fs/read_text_file", path="/a")))
    assert answer.status_code == 200
    assert "no client" in (await served.told(session_id))[-1]


async def test_the_first_that_can_is_asked_and_the_next_one_after_it(served: Served) -> None:
    plain = offering()
    async with (
        client(served.url, hello=plain) as none,
        client(served.url, hello=READER) as first,
        client(served.url, hello=READER) as second,
    ):
        await none.new(served.workspace)
        for each in (second, first):  # whoever connected first, not whoever loaded first
            each.session = none.session
            await each.call("session/load", sessionId=none.session, cwd="/", mcpServers=[])
        asked = [
            answering(each, fs_read_text_file={"content": name})
            for each, name in ((none, "none"), (first, "first"), (second, "second"))
        ]
        read = ask("fs/read_text_file", path="/a")
        await none.turn(steps(read))
        assert spoken(none) == [{"content": "first"}]
        await first.call("session/close", sessionId=none.session)
        after = len(none.got)
        await none.turn(steps(read))
        assert spoken(none, after) == [{"content": "second"}]
        assert [len(each) for each in asked] == [0, 1, 1]


async def test_a_client_that_leaves(served: Served) -> None:
    """By its socket or by session/close: the agent is told at once, and its terminals are with it."""
    async with client(served.url, hello=offering()) as watcher, client(served.url, hello=BOTH) as other:
        await watcher.new(served.workspace)
        async with client(served.url, hello=BOTH) as one:
            await one.call("session/load", sessionId=watcher.session, cwd="/", mcpServers=[])
            await other.call("session/load", sessionId=watcher.session, cwd="/", mcpServers=[])
            asked = answering(other, terminal_create={"terminalId": "t"})
            answering(one, terminal_create={"terminalId": "t"})
            # ``other`` connected first: it has the terminal
            turn = watcher.prompt(
                steps(
                    ask("terminal/create", command="pwd"),
                    ask("terminal/wait_for_exit", terminalId="$"),
                    ask("terminal/output", terminalId="$"),
                    ask("fs/read_text_file", path="/a"),
                )
            )
            await other.asked("terminal/wait_for_exit")
            await other.call("session/close", sessionId=watcher.session)
            await one.asked("fs/read_text_file")
        await turn
        answers = spoken(watcher)
    assert [a.get("data", a) for a in answers[1:]] == [{"reason": "client_left"}] * 3
    assert all(a["code"] == -32603 and "left" in a["message"] for a in answers[1:])
    assert [m["method"] for m in asked] == ["terminal/create", "terminal/wait_for_exit"]


async def test_an_error_of_the_client_is_the_agents_answer(served: Served) -> None:
    async with client(served.url, hello=BOTH) as one:
        await one.new(served.workspace)
        one.answer = lambda message: None
        turn = one.prompt(steps(ask("fs/read_text_file", path="/a"), ask("terminal/create", command="x")))
        asked = await one.asked("fs/read_text_file")
        error = {"code": 429, "message": "Not now", "data": {"again": 5}}
        await one.write({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        asked = await one.asked("terminal/create")
        await one.write({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
        await turn
        told, made = spoken(one)
    assert told == error
    assert made["code"] == -32603 and "without an id" in made["message"]


async def test_a_withdrawal_travels(served: Served) -> None:
    async with client(served.url, hello=BOTH) as one:
        await one.new(served.workspace)
        one.answer = lambda message: None
        read = {"ask": "fs/read_text_file", "params": {"path": "/a"}}
        gate = ask("session/request_permission", toolCall={"toolCallId": "c"}, options=[])
        turn = one.prompt(steps({"start": "r", **read}, gate, {"cancel": "r"}, {"answer": "r"}))
        asked = await one.asked("fs/read_text_file")
        permission = await one.asked("session/request_permission")
        await one.write({"jsonrpc": "2.0", "id": permission["id"], "result": {"outcome": {"outcome": "cancelled"}}})
        withdrawn = await one.until(
            lambda m: m.get("method") == "$/cancel_request" and m["params"]["requestId"] == asked["id"]
        )
        await turn
        assert spoken(one)[-1]["code"] == -32800
        await one.write({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": "late"}})  # goes nowhere
        assert withdrawn and (await one.call("session/list"))["sessions"]


async def test_over_http_the_answer_finds_its_request(served: Served) -> None:
    """Streamable HTTP: the request comes on the session's stream, and is answered by a POST."""
    head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def message(number: int, method: str, **params: Any) -> Json:
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    opened = await served.http.post("/acp", json=message(0, "initialize", **BOTH), headers=head)
    head["Acp-Connection-Id"] = opened.headers["acp-connection-id"]

    async def frames(answer: Any) -> AsyncIterator[Json]:
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                yield json.loads(line[5:])

    async with asyncio.timeout(60), served.http.stream("GET", "/acp", headers=head) as connection:
        await served.http.post(
            "/acp", json=message(1, "session/new", cwd=str(served.workspace), mcpServers=[]), headers=head
        )
        session_id = ""
        async for frame in frames(connection):
            if frame.get("id") == 1:
                session_id = frame["result"]["sessionId"]
                break
        async with served.http.stream("GET", "/acp", headers={**head, "Acp-Session-Id": session_id}) as stream:
            prompt = [{"type": "text", "text": steps(ask("fs/read_text_file", path="/a"))}]
            await served.http.post(
                "/acp", json=message(2, "session/prompt", sessionId=session_id, prompt=prompt), headers=head
            )
            said = ""
            async for frame in frames(stream):
                if frame.get("method") == "fs/read_text_file":
                    body = {"jsonrpc": "2.0", "id": frame["id"], "result": {"content": "over http"}}
                    assert (await served.http.post("/acp", json=body, headers=head)).status_code == 202
                elif frame.get("method") == "session/update":
                    said += frame["params"]["update"].get("content", {}).get("text", "")
                elif frame.get("id") == 2:
                    assert frame["result"]["stopReason"] == "end_turn"
                    break
    assert json.loads(said) == {"content": "over http"}
