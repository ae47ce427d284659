"""ACP v2 agents behind a real gateway, to v1, v2 and OpenCode clients at once: the same ids, texts and states.

What v2 and v1 clients are sent is checked against the SDK's strict schemas; v2 clients get the agent's words as they
were.
"""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.acp.clients.raw import Client, RpcError, client
from tests.served import Served, serve

pytestmark = pytest.mark.usefixtures("npm_clients")

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "acp"
REPLAYER = Path(__file__).parent / "clients" / "replayer_v2.py"
Json = dict[str, Any]


def settings(folder: Path) -> tuple[str, str]:
    """A settings file: demo agents that are asked for v2, and recorded ones."""
    demo = f'"{sys.executable}", "-m", "adapters.acp.demo"'
    agents = {
        "demo": f'{demo}, "--steer"',
        "steering": f'{demo}, "--steering"',
        "plain": demo,
        **{n: f'"{sys.executable}", "{REPLAYER}", "{GOLDEN}/turns_{n}_v2.jsonl"' for n in ("claude", "codex")},
    }
    text = "".join(f"[agents.{name}]\ncommand = [{argv}]\nprotocol = 2\n" for name, argv in agents.items())
    env = f'env = {{ TRUNKLINE_DEMO_STATE = "{folder}/demo", PYTHONPATH = "{Path.cwd()}" }}\n'
    path = folder / "trunkline.toml"
    path.write_text(text.replace("protocol = 2\n", "protocol = 2\n" + env))
    return "--config", str(path)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serve(tmp_path, *settings(tmp_path)) as one:
        yield one


async def follow(one: Client, session_id: str) -> Client:
    one.session = session_id
    method, more = ("session/load", {"mcpServers": []}) if one.version == 1 else ("session/resume", {})
    await one.call(method, sessionId=session_id, cwd="/", **more)
    return one


async def open_with(one: Client, served: Served, agent: str = "demo") -> str:
    await one.new(served.workspace, _meta={"trunkline": {"agent": agent}})
    return one.session


async def inject(one: Client, text: str, mode: str = "steer") -> str:
    content = [{"type": "text", "text": text}]
    result = await one.call("session/inject", sessionId=one.session, mode=mode, content=content)
    return str(result["messageId"])


async def parts(served: Served, session_id: str) -> list[Json]:
    messages = (await served.http.get(f"/session/{session_id}/message")).json()
    return [part for message in messages for part in message["parts"]]


# --- one turn, three clients -----------------------------------------------------------------------------------------


async def test_the_same_ids_and_texts_everywhere(served: Served) -> None:
    async with client(served.url, 2) as two, client(served.url) as one:
        session_id = await open_with(two, served)
        await follow(one, session_id)
        done = await two.turn("think hm\nsay hello\nask rm\nsay after")
        assert done["stopReason"] == "end_turn" and done["usage"]["totalTokens"] > 0
        await one.said("after")
        (user,) = two.updates("user_message")
        (echo,) = one.updates("user_message_chunk")
        assert user["messageId"] == echo["messageId"] == done["messageId"]
        for kind in ("agent_message_chunk", "agent_thought_chunk"):
            assert [u["messageId"] for u in two.updates(kind)] == [u["messageId"] for u in one.updates(kind)]
            assert two.text(kind) == one.text(kind)
        listed = (await served.http.get(f"/session/{session_id}/message")).json()
        assert [m["info"]["id"] for m in listed if m["info"]["role"] == "user"] == [user["messageId"]]
        assert await served.told(session_id) == [
            "user: think hm\nsay hello\nask rm\nsay after",
            "assistant: hello",
            "assistant: after",
        ]
        ask = await two.asked("session/request_permission")
        assert ask["params"]["title"] == "Run rm?" and ask["params"]["subject"]["toolCall"]["title"] == "rm"
        older = await one.asked("session/request_permission")
        assert older["params"]["toolCall"]["title"] == "Run rm?"
        async with client(served.url, 2) as late:
            late.session = session_id
            await late.call("session/resume", sessionId=session_id, cwd="/", replayFrom={"type": "start"})
            assert late.text() == two.text() and late.updates("user_message")[0]["messageId"] == user["messageId"]


async def test_a_message_that_is_replaced(served: Served) -> None:
    async with client(served.url, 2) as two, client(served.url) as one:
        session_id = await open_with(two, served)
        await follow(one, session_id)
        await two.turn("replace first|second")
        whole = await two.update("agent_message")
        assert whole["content"] == [{"type": "text", "text": "second"}]
        await one.said("second")
        assert await served.told(session_id) == ["user: replace first|second", "assistant: second"]


async def test_a_terminal_and_what_cancels_it(served: Served) -> None:
    async with client(served.url, 2) as two, client(served.url) as one:
        session_id = await open_with(two, served)
        await follow(one, session_id)
        await two.turn("terminal 20 one|two")
        chunks = two.updates("terminal_output_chunk")
        assert len(chunks) == 2 and two.updates("terminal_update")[-1]["exitStatus"] == {"exitCode": 0}
        calls = two.updates("tool_call_update")
        assert all(item["type"] == "terminal" for call in calls for item in call.get("content", ()))
        assert calls[0]["capabilities"] == {"cancel": {}} and "content" not in calls[-1]  # as the agent said it
        shown = [u for u in one.updates("tool_call", "tool_call_update") if u.get("content")][-1]["content"]
        assert shown == [{"type": "content", "content": {"type": "text", "text": "one\ntwo\n"}}]
        (tool,) = [part for part in await parts(served, session_id) if part["type"] == "tool"]
        assert tool["state"]["output"] == "one\ntwo\n" and tool["tool"] == "bash"
        async with client(served.url, 2) as late:
            late.session = session_id
            await late.call("session/resume", sessionId=session_id, cwd="/", replayFrom={"type": "start"})
            (display,) = late.updates("terminal_update")
            (call,) = late.updates("tool_call_update")
            assert display["terminalId"] == call["content"][0]["terminalId"] and display["output"]["data"]


@pytest.mark.parametrize("kind", ["tool_call", "terminal"])
async def test_one_tool_call_is_cancelled(served: Served, kind: str) -> None:
    async with client(served.url, 2) as two:
        await open_with(two, served)
        await two.prompt("terminal 60000 one|two\ntool other\nsay after")
        call = await two.update("tool_call_update", status="in_progress")
        key, name = ("toolCallId", call["toolCallId"]) if kind == "tool_call" else ("", "")
        if kind == "terminal":
            key, name = "terminalId", call["content"][0]["terminalId"]
        assert await two.call(f"{kind}/cancel", sessionId=two.session, **{key: name}) == {}
        await two.update("tool_call_update", toolCallId=call["toolCallId"], status="cancelled")
        assert (await two.state("idle"))["stopReason"] == "end_turn"
        assert two.text() == "after"
        for wrong, code in ((name, -32601), ("nobody", -32601 if kind == "terminal" else -32002)):
            with pytest.raises(RpcError) as refused:
                await two.call(f"{kind}/cancel", sessionId=two.session, **{key: wrong})
            assert refused.value.code == code


async def test_an_error_of_the_turn(served: Served) -> None:
    async with client(served.url, 2) as two:
        await open_with(two, served)
        done = await two.turn("say x\nfail no credit")
        assert done["stopReason"] == "error" and done["error"]["message"] == "no credit"


async def test_modes_are_an_option_for_everybody(served: Served) -> None:
    async with client(served.url, 2) as two, client(served.url) as one:
        created = await two.new(served.workspace)
        assert [o["configId"] for o in created["configOptions"]] == ["mode", "model"]
        one.session = two.session
        loaded = await one.call("session/load", sessionId=two.session, cwd="/", mcpServers=[])
        assert loaded["modes"]["currentModeId"] == "code"
        await one.call("session/set_mode", sessionId=one.session, modeId="ask")
        told = await two.update("config_option_update")
        assert told["configOptions"][0]["currentValue"] == "ask"
        two.answer = lambda message: None
        await two.prompt("tool rm")
        await two.asked("session/request_permission")


# --- steers ----------------------------------------------------------------------------------------------------------


async def busy(two: Client) -> None:
    await two.prompt("tool slow 1500\nsay one")
    await two.update("tool_call_update", status="in_progress")


async def offered(two: Client, message_id: str) -> None:
    """The agent holds it."""
    await two.until(
        lambda m: any(
            entry["messageId"] == message_id and entry["state"] == "offered"
            for entry in (m.get("params") or {}).get("pending", ())
        )
    )


async def test_a_steer_is_injected_and_told_once(served: Served) -> None:
    async with client(served.url, 2) as two:
        session_id = await open_with(two, served)
        await busy(two)
        steer = await inject(two, "say steered")
        await two.state("idle")
        assert [u["messageId"] for u in two.updates("user_message")][1:] == [steer]
        assert two.text() == "steeredone"
        assert await served.told(session_id) == [
            *("user: tool slow 1500\nsay one", "assistant: ", "user: say steered", "assistant: steeredone")
        ]


async def test_an_injected_steer_is_revoked_and_replaced(served: Served) -> None:
    async with client(served.url, 2) as two:
        await open_with(two, served)
        await busy(two)
        first, second = await inject(two, "say gone"), await inject(two, "say old")
        await offered(two, second)
        assert await two.call("session/revoke_inject", sessionId=two.session, messageId=first) == {}
        content = [{"type": "text", "text": "say new"}]
        changed = await two.call("session/replace_inject", sessionId=two.session, messageId=second, content=content)
        assert changed == {"messageId": second}
        await two.state("idle")
        assert two.text() == "newone"
        told = two.updates("user_message")[1:]
        assert [(u["messageId"], u["content"]) for u in told] == [(second, content)]
        with pytest.raises(RpcError) as late:
            await two.call("session/revoke_inject", sessionId=two.session, messageId=second)
        assert late.value.code == -32010 and late.value.data["reason"] == "already_delivered"


async def test_a_steer_that_the_agent_holds_outlives_a_cancel(served: Served) -> None:
    async with client(served.url, 2) as two:
        await open_with(two, served)
        await busy(two)
        steer = await inject(two, "say steered")
        await offered(two, steer)
        at = len(two.got)
        await two.notify("session/cancel", sessionId=two.session)
        assert (await two.state("idle", at))["stopReason"] == "cancelled"
        await two.said("steered", at)
        await two.update("user_message", at, messageId=steer)
        words = [u["state"] for u in two.updates("state_update", after=at)]
        await two.update("state_update", at, stopReason="end_turn")
        assert words[:2] == ["idle", "running"]


async def test_the_extension(served: Served) -> None:
    async with client(served.url, 2) as two:
        session_id = await open_with(two, served, "steering")
        await busy(two)
        steer = await inject(two, "say steered")
        await two.state("idle")
        assert [u["messageId"] for u in two.updates("user_message")][1:] == [steer]
        assert len([line for line in await served.told(session_id) if line.startswith("user")]) == 2


async def test_without_steering_it_goes_first_in_the_next_turn(served: Served) -> None:
    async with client(served.url, 2) as two:
        session_id = await open_with(two, served, "plain")
        await two.prompt("tool slow 500\nsay one")
        await two.update("tool_call_update", status="in_progress")
        queued = two.prompt("say queued")
        await inject(two, "say steered")
        await queued
        await two.said("queued")
        assert two.text() == "onesteeredqueued"
        assert [line for line in await served.told(session_id) if line.startswith("user")] == [
            *("user: tool slow 500\nsay one", "user: say steered", "user: say queued")
        ]


async def test_cancel_with_a_queue(served: Served) -> None:
    async with client(served.url, 2) as two:
        await open_with(two, served)
        await two.prompt("stream 1000 20")
        await two.said("chunk 0")
        at = len(two.got)
        waiting = two.prompt("say queued")
        queued = await two.until(lambda m: bool((m.get("params") or {}).get("pending")), at)
        assert queued["params"]["pending"][0]["mode"] == "queue"
        await two.notify("session/cancel", sessionId=two.session)
        assert (await two.state("idle"))["stopReason"] == "cancelled"
        with pytest.raises(RpcError) as cancelled:
            await waiting
        assert cancelled.value.code == -32800
        assert (await two.turn("say next"))["stopReason"] == "end_turn"


# --- the agent's own life --------------------------------------------------------------------------------------------


async def test_background_work_and_a_turn_of_the_agents_own(served: Served) -> None:
    async with client(served.url, 2) as two:
        session_id = await open_with(two, served)
        over = await two.turn("background Bob 300\nsay go")
        child = two.updates("subagent_update")[0]["sessionId"]
        assert over["background"] == [{"type": "subagent", "sessionId": child}]
        at = len(two.got)
        await two.said("Bob is done", at)
        await two.update("state_update", at, stopReason="end_turn")
        words = [u["state"] for u in two.updates("state_update", after=at, session=session_id)]
        assert words[-2:] == ["running", "idle"]
        assert two.text(session=child) == "Bob worked"
        assert (await served.told(session_id))[-1] == "assistant: Bob is done"


async def test_loaded_after_a_restart_of_the_gateway(tmp_path: Path) -> None:
    async with serve(tmp_path, *settings(tmp_path)) as served, client(served.url, 2) as two:
        session_id = await open_with(two, served)
        first = await two.turn("say hello\nreplace a|b\nterminal 0 x")
    async with serve(tmp_path, *settings(tmp_path)) as served, client(served.url, 2) as two:
        two.session = session_id
        await two.call("session/resume", sessionId=session_id, cwd="/", replayFrom={"type": "start"})
        assert [u["messageId"] for u in two.updates("user_message")] == [first["messageId"]]
        assert two.text() == "hellob"
        assert (await two.turn("say more"))["stopReason"] == "end_turn"
        assert len(two.updates("user_message")) == 2


async def test_the_agent_dies(served: Served) -> None:
    async with client(served.url, 2) as two:
        session_id = await open_with(two, served)
        done = await two.turn("say before\ncrash")
        assert done["stopReason"] == "error" and done["error"]["data"]["reason"] == "agent_exit"
        assert (await two.turn("say again"))["stopReason"] == "end_turn"
        assert (await served.told(session_id))[-1] == "assistant: again"


# --- what real agents were recorded saying ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_recorded(served: Served, name: str) -> None:
    lines = [json.loads(line) for line in (GOLDEN / f"turns_{name}_v2.jsonl").read_text().splitlines()]
    turns = [each for each in lines if "prompt" in each]
    said = [m["params"] for turn in turns for m in turn["said"] if m.get("method") == "session/update"]
    root = said[0]["sessionId"]
    updates = [p["update"] for p in said]
    async with client(served.url, 2) as two, client(served.url) as one:
        session_id = await open_with(two, served, name)
        await follow(one, session_id)
        for turn in turns:
            at = len(two.got)
            spoken = "".join(
                m["params"]["update"]["content"]["text"]
                for m in turn["said"]
                if m.get("method") == "session/update"
                and m["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
                and m["params"]["sessionId"] == root
            )
            await two.prompt(turn["prompt"])
            await two.until(lambda _, at=at, spoken=spoken: two.text(after=at, session=session_id) == spoken)
        ended = sum(1 for p in said if p["sessionId"] == root and p["update"].get("state") == "idle")
        ended -= 1 if name == "claude" else 0  # a snapshot between its turns
        await two.until(
            lambda _: sum(u["state"] == "idle" for u in two.updates("state_update", session=session_id)) >= ended
        )
        # an idle that is told twice may be counted as the last: what comes before that one is waited for
        whole = ("tool_call_update", "terminal_update", "notice", "usage_update")
        told = [u for u in updates if u["sessionUpdate"] in whole]
        await two.until(lambda _: all(u in two.updates() for u in told), after=len(two.got) - 1)
        users = {u["messageId"] for u in updates if u["sessionUpdate"].startswith("user_message")}
        shown = [u["messageId"] for u in two.updates("user_message")]
        assert len(shown) == len(turns) and not users & set(shown)  # ours, by our ids
        for kind in ("agent_message_chunk", "agent_thought_chunk"):
            ids = {u["messageId"] for u in updates if u["sessionUpdate"] == kind}
            assert {u["messageId"] for u in two.updates(kind)} == ids
        await one.until(lambda _: one.text() == two.text())
        listed = [line for line in await served.told(session_id) if line.startswith("user: ")]
        assert listed == [f"user: {turn['prompt']}" for turn in turns]
