"""``adapters/acp/demo``: the scripted agent, judged by the official Python SDK and driven raw."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import acp.schema as schema
import jsonschema
import pytest

from adapters.acp import demo
from adapters.acp.demo_state import History, Ids
from adapters.acp.demo_turns import NOISE, Agent
from gateway.core.ids import is_ascending
from tests.acp.support import DEMO, ROOT

Json = dict[str, Any]


def environ(tmp: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "TRUNKLINE_DEMO_STATE": str(tmp), "PYTHONPATH": str(ROOT)}


# --- the official SDK as a judge -----------------------------------------------------------------------------------


class Judge(acp.Client):
    """An SDK client that keeps what it is told and allows everything."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[str] = []
        self.changed = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        self.changed.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> acp.RequestPermissionResponse:
        self.asked.append(tool_call.title)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return acp.RequestPermissionResponse(outcome=outcome)

    async def until(self, kind: str) -> Any:
        async with asyncio.timeout(10):
            while True:
                for update in self.updates:
                    if update.session_update == kind:
                        return update
                self.changed.clear()
                await self.changed.wait()


async def test_the_official_sdk_can_drive_it(tmp_path: Path) -> None:
    judge = Judge()
    command, *args = DEMO
    async with acp.spawn_agent_process(judge, command, *args, env=environ(tmp_path), cwd=ROOT) as (agent, _):
        started = await agent.initialize(protocol_version=1)
        assert started.agent_info and started.agent_info.name == "trunkline-demo"
        assert started.agent_capabilities and started.agent_capabilities.load_session
        session = await agent.new_session(cwd="/", mcp_servers=[])
        assert session.modes and session.modes.current_mode_id == "code"
        text = "think hm\nsay hi\ntool ls 5\nask rm\nplan a|b\nstream 3 1\nlate last"
        answer = await agent.prompt(session_id=session.session_id, prompt=[acp.text_block(text)])
        assert answer.stop_reason == "end_turn" and answer.usage and answer.usage.total_tokens > 0
        await judge.until("session_info_update")
        assert judge.asked == ["rm"]
        kinds = {update.session_update for update in judge.updates}
        assert kinds >= {
            *("agent_thought_chunk", "agent_message_chunk", "tool_call", "tool_call_update", "plan"),
            *("available_commands_update", "usage_update", "session_info_update"),
        }
        await agent.set_session_mode(session_id=session.session_id, mode_id="ask")
        assert (await judge.until("current_mode_update")).current_mode_id == "ask"
        options = await agent.set_config_option(session_id=session.session_id, config_id="model", value="careful")
        assert options and options.config_options[0].current_value == "careful"
        with pytest.raises(acp.RequestError):
            await agent.set_session_mode(session_id=session.session_id, mode_id="nonsense")
        judge.updates.clear()
        loaded = await agent.load_session(session_id=session.session_id, cwd="/", mcp_servers=[])
        assert loaded and loaded.modes and loaded.modes.current_mode_id == "ask"
        assert (await judge.until("user_message_chunk")).content.text == text
        running = asyncio.ensure_future(  # noqa: TID251
            agent.prompt(session_id=session.session_id, prompt=[acp.text_block("sleep 60000")])
        )
        await asyncio.sleep(0)
        await agent.cancel(session_id=session.session_id)
        assert (await running).stop_reason == "cancelled"


# --- raw -----------------------------------------------------------------------------------------------------------


class Raw:
    """A client that keeps every line, and checks each message that the demo writes."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.lines: list[bytes] = []
        self.seen: list[Json] = []
        self.calls: dict[int, str] = {}
        self.session = ""

    def send(self, **message: Any) -> None:
        assert self.child.stdin
        self.child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def call(self, method: str, **params: Any) -> int:
        number = len(self.calls)
        self.calls[number] = method
        self.send(id=number, method=method, params=params)
        return number

    async def read(self) -> Json:
        """The next message; noise is kept in ``lines`` only."""
        assert self.child.stdout
        while True:
            async with asyncio.timeout(20):
                line = await self.child.stdout.readline()
            assert line, "the demo agent is gone"
            self.lines.append(line)
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict) and "jsonrpc" in message:
                check(message, self.calls)
                self.seen.append(message)
                return message

    async def answer(self, number: int) -> Json:
        """The answer to a call, whatever comes before it."""
        while True:
            message = await self.read()
            if message.get("id") == number and "method" not in message:
                return message

    async def update(self, kind: str) -> Json:
        while True:
            message = await self.read()
            update: Json = message.get("params", {}).get("update", {})
            if update.get("sessionUpdate") == kind:
                return update

    async def request(self) -> Json:
        while True:
            message = await self.read()
            if "method" in message and "id" in message:
                return message

    async def open(self, **capabilities: Any) -> None:
        await self.answer(self.call("initialize", protocolVersion=1, clientCapabilities=capabilities))
        answer = await self.answer(self.call("session/new", cwd="/", mcpServers=[]))
        self.session = answer["result"]["sessionId"]
        await self.update("available_commands_update")

    def prompt(self, text: str) -> int:
        return self.call("session/prompt", sessionId=self.session, prompt=[{"type": "text", "text": text}])

    async def turn(self, text: str) -> Json:
        result: Json = (await self.answer(self.prompt(text)))["result"]
        return result

    def updates(self, kind: str = "", after: int = 0) -> list[Json]:
        found = [m["params"]["update"] for m in self.seen[after:] if m.get("method") == "session/update"]
        return [update for update in found if kind in ("", update["sessionUpdate"])]

    def text(self, after: int = 0) -> str:
        return "".join(u["content"]["text"] for u in self.updates("agent_message_chunk", after))


STRING = {"type": "string", "minLength": 1}
UNSTABLE = {
    # Of ACP's unstable schema; the SDK does not know them yet.
    "subagent_update": {
        "type": "object",
        "required": ["sessionUpdate", "sessionId"],
        "additionalProperties": False,
        "properties": {
            "sessionUpdate": STRING,
            "sessionId": STRING,
            "title": STRING,
            "description": STRING,
            "capabilities": {"type": "object", "properties": {"cancel": {"type": "object"}}},
            "state": {
                "type": "object",
                "required": ["state"],
                "properties": {"state": {"enum": ["running", "idle", "requires_action"]}, "stopReason": STRING},
            },
        },
    },
    "session_message": {
        "type": "object",
        "required": ["sessionUpdate", "messageId"],
        "additionalProperties": False,
        "properties": {
            **{
                key: STRING
                for key in "sessionUpdate messageId senderSessionId recipientSessionId senderMessageId "
                "recipientMessageId".split()
            },
            "content": {"type": "array", "items": {"type": "object", "required": ["type", "text"]}},
        },
    },
}
RESULTS: dict[str, Any] = {
    "initialize": schema.InitializeResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/prompt": schema.PromptResponse,
    "session/set_mode": schema.SetSessionModeResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
}


def check(message: Json, calls: dict[int, str]) -> None:
    """Every message that the demo writes is valid ACP v1."""
    if "method" in message:
        update = message["params"].get("update", {})
        if update.get("sessionUpdate") in UNSTABLE:
            jsonschema.validate(update, UNSTABLE[update["sessionUpdate"]])
        elif message["method"] == "session/update":
            schema.SessionNotification.model_validate(message["params"], strict=False)
        elif message["method"] == "session/request_permission":
            schema.RequestPermissionRequest.model_validate(message["params"])
        else:
            assert message["method"] == "elicitation/create"
    elif "result" in message:
        model = RESULTS.get(calls[message["id"]])
        if model:
            model.model_validate(message["result"])
    else:
        assert isinstance(message["error"]["code"], int) and message["error"]["message"]


@asynccontextmanager
async def raw(tmp: Path, *flags: str, opened: bool = True, **capabilities: Any) -> AsyncIterator[Raw]:
    child = await asyncio.create_subprocess_exec(
        *DEMO,
        *flags,
        cwd=ROOT,
        env=environ(tmp),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=64 * 1024 * 1024,
        start_new_session=True,
    )
    client = Raw(child)
    try:
        if opened:
            await client.open(**capabilities)
        yield client
    finally:
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
        await child.communicate()


async def test_every_word_of_the_script(tmp_path: Path) -> None:
    async with raw(tmp_path, subagents={}, elicitation={"form": {}}) as d:
        number = d.prompt(
            "think hm\nsay hi\nplan a| b\ntool ls 5\nask rm\nform Who?\nchild Bob\nnoise\nstream 2 1\nbig 1000\n"
            "flood 3\nsleep 1\nsay 1\nfoo bar\nlate last"
        )
        ask = await d.request()
        assert [o["kind"] for o in ask["params"]["options"]] == ["allow_once", "allow_always", "reject_once"]
        d.send(id=ask["id"], result={"outcome": {"outcome": "selected", "optionId": "once"}})
        form = await d.request()
        assert form["method"] == "elicitation/create"
        d.send(id=form["id"], result={"action": "accept", "content": {"answer": "Ada"}})
        result = (await d.answer(number))["result"]
        assert result["stopReason"] == "end_turn" and result["usage"]["totalTokens"] > 0
        late = await d.update("agent_message_chunk")
        assert late["content"]["text"] == "last" and d.seen[-1] is not None
        floods = "".join(f"{i:08d} the quick brown fox jumps over it. " for i in range(3))
        assert d.text() == (
            "hiForm: accept AdaBob at workchunk 0 chunk 1 " + "x" * 1000 + floods + "1You said: foo barlast"
        )
        assert [t["status"] for t in d.updates("tool_call_update")] == ["in_progress", "completed"] * 2
        assert d.updates("plan")[0]["entries"][1]["content"] == "b"
        assert NOISE in b"".join(d.lines)
        assert d.updates("session_info_update") == [{"sessionUpdate": "session_info_update", "title": "think hm"}]
        down, seen, up, back = d.updates("session_message")
        assert down["recipientMessageId"] == seen["messageId"] and seen["senderMessageId"] == down["messageId"]
        assert up["recipientMessageId"] == back["messageId"] and back["senderMessageId"] == up["messageId"]


async def test_message_ids(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        await d.turn("think a\nsay b\nsay c\ntool t\nsay d\nthink e")
        await d.turn("say f")
        chunks = [u for u in d.updates() if u["sessionUpdate"].startswith("agent_")]
        ids = [u["messageId"] for u in chunks]
        assert all(is_ascending(each, "msg") for each in ids) and ids == sorted(ids)
        a, b, c, after_tool, e, f = ids
        assert b == c and len({a, b, after_tool, e, f}) == 5


async def test_without_ids(tmp_path: Path) -> None:
    async with raw(tmp_path, "--no-ids") as d:
        await d.turn("think a\nsay b\nflood 2")
        await d.answer(d.call("session/load", sessionId=d.session, cwd="/", mcpServers=[]))
        assert not [u for u in d.updates() if "messageId" in u]


async def test_rejected(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        number = d.prompt("ask rm\nsay on")
        ask = await d.request()
        d.send(id=ask["id"], result={"outcome": {"outcome": "selected", "optionId": "reject"}})
        assert (await d.answer(number))["result"]["stopReason"] == "end_turn"
        assert d.updates("tool_call_update")[-1]["status"] == "failed" and d.text() == "on"


async def test_always_is_remembered_and_the_mode_asks(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        await d.answer(d.call("session/set_mode", sessionId=d.session, modeId="ask"))
        number = d.prompt("tool ls\nask ls\nask other")
        for option in ("always", "once"):
            ask = await d.request()
            d.send(id=ask["id"], result={"outcome": {"outcome": "selected", "optionId": option}})
        await d.answer(number)
        assert [m["params"]["toolCall"]["title"] for m in d.seen if "toolCall" in m.get("params", {})] == [
            "ls",
            "other",
        ]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("sleep 60000", "user"),
        ("stream 1000 100", "agent_message_chunk"),
        ("tool slow 60000", "tool_call_update"),
        ("ask x", "tool_call"),
        ("flood 100000000", "agent_message_chunk"),
    ],
)
async def test_cancel_stops_anything_promptly(tmp_path: Path, text: str, seen: str) -> None:
    async with raw(tmp_path) as d:
        number, queued = d.prompt(text), d.prompt("say never")
        if seen != "user":
            await d.update(seen)
        began = time.monotonic()
        d.send(method="session/cancel", params={"sessionId": d.session})
        assert (await d.answer(number))["result"]["stopReason"] == "cancelled"
        assert time.monotonic() - began < 5
        assert (await d.answer(queued))["result"]["stopReason"] == "cancelled"
        assert "never" not in d.text()[-20:]
        assert (await d.turn("say on"))["stopReason"] == "end_turn"


async def test_cancel_request(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        number = d.prompt("sleep 60000")
        d.send(method="$/cancel_request", params={"requestId": number})
        assert (await d.answer(number))["result"]["stopReason"] == "cancelled"


async def test_a_second_prompt_is_queued(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        first, second = d.prompt("stream 5 5"), d.prompt("say two")
        await d.answer(first)
        assert "two" not in d.text()
        await d.answer(second)
        assert d.text().endswith("two")


async def test_refuse(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        assert (await d.turn("say a\nrefuse\nsay b"))["stopReason"] == "refusal"
        assert d.text() == "a"


async def test_steer(tmp_path: Path) -> None:
    async with raw(tmp_path, "--steer") as d:
        assert d.seen[0]["result"]["_meta"] == {"steering": {"supported": True}}
        steer: Json = {"sessionId": d.session, "prompt": [{"type": "text", "text": "say steered"}]}
        opt_in = {"_meta": {"steering": {"idleBehavior": "promptRequired"}}}
        number = d.prompt("tool slow 200\nsay end")
        await d.update("tool_call_update")
        answer = await d.answer(d.call("_session/steering", **steer, **opt_in))
        assert answer["result"] == {"outcome": "injected"}
        await d.answer(number)
        assert d.text() == "steeredend"
        answer = await d.answer(d.call("_session/steering", **steer, **opt_in))
        assert answer["result"] == {"outcome": "promptRequired", "reason": "noRunningTurn"}
        number = d.prompt("sleep 60000")  # a break point: the steer does not wait for its end
        await asyncio.sleep(0)
        at = len(d.seen)
        call = d.call("_session/steering", **steer, **opt_in)
        assert (await d.answer(call))["result"] == {"outcome": "injected"}
        while "steered" not in d.text(at):
            await d.read()
        d.send(method="session/cancel", params={"sessionId": d.session})
        assert (await d.answer(number))["result"]["stopReason"] == "cancelled"
        answer = await d.answer(d.call("_session/steering", **steer))
        assert answer["result"] == {"outcome": "startedNewTurn"}


async def test_no_steering_unless_asked_for(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        assert "_meta" not in d.seen[0]["result"]
        answer = await d.answer(d.call("_session/steering", sessionId=d.session, prompt=[]))
        assert answer["error"]["code"] == -32601


async def test_load_after_a_restart(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        await d.turn("say a\nthink b\ntool t\nflood 3\nsay c")
        await d.answer(d.call("session/set_config_option", sessionId=d.session, configId="model", value="careful"))
        live, session = d.text(), d.session
        ids = list(dict.fromkeys(u["messageId"] for u in d.updates("agent_message_chunk")))
    async with raw(tmp_path, opened=False) as d:
        await d.answer(d.call("initialize", protocolVersion=1))
        answer = await d.answer(d.call("session/load", sessionId=session, cwd="/", mcpServers=[]))
        assert answer["result"]["configOptions"][0]["currentValue"] == "careful"
        kinds = list(dict.fromkeys(u["sessionUpdate"] for u in d.updates()))
        assert kinds == [
            *("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update")
        ]
        assert d.text() == live
        assert list(dict.fromkeys(u["messageId"] for u in d.updates("agent_message_chunk"))) == ids
        at = len(d.seen)
        answer = await d.answer(d.call("session/resume", sessionId=session, cwd="/"))
        assert "modes" in answer["result"] and not d.updates("user_message_chunk", at)
        for unknown in ("demo_unknown", "../../etc/passwd", "other"):
            answer = await d.answer(d.call("session/load", sessionId=unknown, cwd="/", mcpServers=[]))
            assert answer["error"] == {"code": -32002, "message": "Session not found", "data": {"sessionId": unknown}}


async def test_no_load(tmp_path: Path) -> None:
    async with raw(tmp_path, "--no-load") as d:
        await d.turn("say a")
        answer = await d.answer(d.call("session/load", sessionId=d.session, cwd="/", mcpServers=[]))
        assert answer["error"]["code"] == -32601 and not list(tmp_path.iterdir())


async def test_errors(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        for method, params, code in (
            ("no/such_method", {}, -32601),
            ("session/prompt", {"sessionId": "x", "prompt": []}, -32002),
            ("session/prompt", {"sessionId": d.session}, -32602),
            ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
        ):
            assert (await d.answer(d.call(method, **params)))["error"]["code"] == code
        assert d.child.stdin
        d.child.stdin.write(b"not json\n[1]\n")
        assert [(await d.read())["error"]["code"] for _ in range(2)] == [-32700, -32600]
        await d.turn("stream many 5")
        assert d.text() == "Bad number in: stream many 5"


async def test_crash(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        d.prompt("crash")
        _, err = await d.child.communicate()
        assert (d.child.returncode, err) == (1, b"demo agent: crashed as told\n")


async def test_end_of_stdin_ends_it(tmp_path: Path) -> None:
    async with raw(tmp_path) as d:
        d.prompt("sleep 60000")
        assert d.child.stdin
        d.child.stdin.close()
        assert await asyncio.wait_for(d.child.wait(), 5) == 0


async def test_mute(tmp_path: Path) -> None:
    async with raw(tmp_path, "--mute", opened=False) as d:
        d.call("initialize", protocolVersion=1)
        assert d.child.stdin
        d.child.stdin.close()
        out, _ = await d.child.communicate()
        assert out == b""


async def test_a_flood_is_fast_enough_for_a_load_generator(tmp_path: Path) -> None:
    async with raw(tmp_path, "--no-load") as d:
        number, began, got = d.prompt("flood 300000"), time.monotonic(), 0
        assert d.child.stdout
        end = b'"id":%d,' % number
        while True:
            data = await d.child.stdout.read(1024 * 1024)
            got += data.count(b"\n")
            if end in data:
                break
        rate = got / (time.monotonic() - began)
        assert got >= 300000 and rate > 100_000, rate  # ten times that on a quiet machine


async def test_it_starts_fast() -> None:
    code = "import sys, adapters.acp.demo; print(*sys.modules)"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    assert not {"gateway", "pydantic", "asyncio", "structlog"} & set(out.decode().split())


def test_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err
    assert Agent({"--no-ids", "--steer"}).steer


def test_history_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    history = History(path, {})
    history.set(mode="code", model="quick")
    for text in ("a", "b"):
        history.add(
            {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": text}}
        )
    history.add({"sessionUpdate": "plan", "entries": []})
    history.flush()
    with path.open("ab") as file:
        file.write(b'{"sessionUpdate":"pl')
    read = History.read(path)
    assert read and read.meta == {"mode": "code", "model": "quick"}
    assert [u.get("content", {}).get("text") for u in read.updates] == ["ab", None]
    assert History.read(tmp_path / "none") is None


def test_ids_ascend() -> None:
    ids = Ids()
    minted = [ids.message() for _ in range(10_000)]
    assert minted == sorted(minted) and len(set(minted)) == 10_000
