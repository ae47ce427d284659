"""The ACP server by hand over WebSocket, both versions: all that comes is checked against the SDK's schemas."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.acp.clients.raw import V1, V2, Client, RpcError, client
from tests.served import Served, serve

pytestmark = pytest.mark.usefixtures("npm_clients")

DEMO = f"{sys.executable} -m adapters.acp.demo"
VERSIONS = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    agents = ("--agent", f"demo={DEMO} --steer", "--agent", f"plain={DEMO}", "--agent", f"mute={DEMO} --mute")
    async with serve(tmp_path, *agents) as one:
        yield one


def words(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


async def failure(waiting: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await waiting
    return caught.value


async def waits(one: Client, after: int, **fields: Any) -> None:
    """One message waits, as told after the ``after``-th message."""

    def found(message: dict[str, Any]) -> bool:
        if message.get("method") != "_trunkline/pending" or len(message["params"]["pending"]) != 1:
            return False
        entry = message["params"]["pending"][0]
        return entry["state"] == "pending" and all(entry[key] == value for key, value in fields.items())

    await one.until(found, after)


def pending(one: Client) -> list[dict[str, Any]]:
    """What waits, as last told."""
    return [m for m in one.got if m.get("method") == "_trunkline/pending"][-1]["params"]["pending"]  # type: ignore[no-any-return]


# --- ids and echoes --------------------------------------------------------------------------------------------------


async def test_a_message_has_one_id_everywhere(served: Served) -> None:
    """The sender on v1 gets it in the answer, everybody else as an echo, OpenCode clients too."""
    async with client(served.url) as sender, client(served.url) as other, client(served.url, 2) as newer:
        await sender.new(served.workspace)
        other.session = newer.session = sender.session
        await other.call("session/load", sessionId=sender.session, cwd=str(served.workspace), mcpServers=[])
        await newer.call("session/resume", sessionId=sender.session, cwd=str(served.workspace))
        answer = await sender.turn("say hello")
        message_id = answer["_meta"]["trunkline"]["messageId"]
        assert answer["stopReason"] == "end_turn" and answer["usage"]["outputTokens"] == 1
        await newer.state("idle", 3)
        await other.said("hello")
        assert sender.updates("user_message_chunk") == []
        assert [u["messageId"] for u in other.updates("user_message_chunk")] == [message_id]
        assert newer.updates("user_message") == [
            {"sessionUpdate": "user_message", "messageId": message_id, "content": words("say hello")}
        ]
        spoken = {one.updates("agent_message_chunk")[0]["messageId"] for one in (sender, other, newer)}
        listed = (await served.http.get(f"/session/{sender.session}/message")).json()
        assert [m["info"]["id"] for m in listed] == [message_id, *spoken]


async def test_v2_answers_at_insertion(served: Served) -> None:
    async with client(served.url, 2) as one:
        created = await one.new(served.workspace)
        assert [o["configId"] for o in created["configOptions"]] == ["mode", "model"]
        assert created["availableCommands"][0]["type"] == "command"
        first = one.prompt("say one\nsleep 60000")
        message_id = (await first)["messageId"]
        await one.said("one")
        after = len(one.got)
        second = one.prompt("say two")
        await waits(one, after)
        assert not second.done()
        await one.notify("session/cancel", sessionId=one.session)
        error = await failure(second)
        assert error.code == -32800
        over = await one.state("idle")
        assert over["stopReason"] == "cancelled" and over["background"] == []
        assert [u["messageId"] for u in one.updates("user_message")] == [message_id]


@VERSIONS
async def test_a_replay_tells_the_same_messages(served: Served, version: int) -> None:
    async with client(served.url, version) as one, client(served.url, version) as late:
        await one.new(served.workspace)
        await one.turn("think hm\nsay a\ntool do it\nsay b\nplan x|y\nchild bob")
        late.session = one.session
        where = {"sessionId": one.session, "cwd": str(served.workspace)}
        if version == 1:
            result = await late.call("session/load", **where, mcpServers=[])
        else:
            result = await late.call("session/resume", **where, replayFrom={"type": "start"})
            order = [u["sessionUpdate"] for u in late.updates(session=one.session)]
            assert order[0] == "subagent_update" and order[-1] == "state_update"  # and then the answer
        assert "configOptions" in result
        for kind in ("agent_message_chunk", "agent_thought_chunk", "session_message"):
            assert late.updates(kind, session=one.session) and [
                (u["messageId"], u["content"]) for u in late.updates(kind, session=one.session)
            ] == [(u["messageId"], u["content"]) for u in one.updates(kind, session=one.session)], kind
        child = one.updates("subagent_update")[0]["sessionId"]
        assert late.text(session=child) == one.text(session=child) == "bob at work"
        calls = late.updates("tool_call" if version == 1 else "tool_call_update", session=one.session)
        assert [c["status"] for c in calls] == ["completed"]
        assert len(late.updates("user_message_chunk" if version == 1 else "user_message")) == 1
        plan = late.updates("plan" if version == 1 else "plan_update")[0]
        assert [e["content"] for e in (plan["entries"] if version == 1 else plan["plan"]["entries"])] == ["x", "y"]


async def test_what_is_said_while_a_client_joins_comes_once(served: Served) -> None:
    async with client(served.url) as one:
        await one.new(served.workspace)
        turn = one.prompt("stream 200 2")
        await one.said("chunk 5 ")
        joined = []
        for _ in range(3):
            async with client(served.url, 2) as late:
                late.session = one.session
                where = {"sessionId": one.session, "cwd": str(served.workspace)}
                await late.call("session/resume", **where, replayFrom={"type": "start"})
                await late.state("idle", 1)
                joined.append(late.text())
        await turn
        assert joined == [one.text()] * 3 == ["".join(f"chunk {i} " for i in range(200))] * 3


# --- inject and steer ------------------------------------------------------------------------------------------------


@VERSIONS
async def test_inject_queue(served: Served, version: int) -> None:
    """FIFO after the turn; an idle session starts one; revoke and replace before the delivery, not after it."""
    async with client(served.url, version) as one:
        await one.new(served.workspace)

        async def inject(text: str, mode: str = "queue") -> str:
            result = await one.call("session/inject", sessionId=one.session, mode=mode, content=words(text))
            return str(result["messageId"])

        running = await inject("say first\nsleep 300")
        await one.said("first")
        a, b, c = await inject("say a"), await inject("say b"), await inject("say c")
        ids = {"sessionId": one.session}
        assert await one.call("session/revoke_inject", **ids, messageId=b) == {}
        assert await one.call("session/revoke_inject", **ids, messageId=b) == {}
        assert await one.call("session/replace_inject", **ids, messageId=c, content=words("say other")) == {
            "messageId": c
        }
        await one.said("other")
        kind = "user_message_chunk" if version == 1 else "user_message"
        assert [u["messageId"] for u in one.updates(kind)] == [running, a, c]
        assert one.text() == "firstaother"
        for method, more in (("session/revoke_inject", {}), ("session/replace_inject", {"content": words("x")})):
            error = await failure(one.call(method, **ids, messageId=a, **more))
            assert error.code == -32010 and error.data == {"reason": "already_delivered", "messageId": a}
            error = await failure(one.call(method, **ids, messageId="msg_none", **more))
            assert error.code == -32002 and error.data["reason"] == "unknown_message_id"
        error = await failure(one.call("session/replace_inject", **ids, messageId=b, content=words("x")))
        assert error.code == -32010 and error.data["reason"] == "revoked"
        error = await failure(one.call("session/inject", **ids, mode="whisper", content=words("x")))
        assert error.code == -32602 and error.data["reason"] == "mode_not_supported"


@VERSIONS
async def test_injects_survive_a_cancel_and_prompts_do_not(served: Served, version: int) -> None:
    async with client(served.url, version) as one:
        await one.new(served.workspace)
        first = one.prompt("say going\nsleep 60000")
        await one.said("going")
        after = len(one.got)
        second = one.prompt("say prompt")
        await waits(one, after)
        await one.call("session/inject", sessionId=one.session, mode="queue", content=words("say inject"))
        await one.notify("session/cancel", sessionId=one.session)
        if version == 1:
            assert (await first)["stopReason"] == (await second)["stopReason"] == "cancelled"
        else:
            assert (await failure(second)).code == -32800
        await one.said("inject")
        assert one.text() == "goinginject"


@VERSIONS
async def test_inject_steer(served: Served, version: int) -> None:
    async with client(served.url, version) as one:
        await one.new(served.workspace)
        content = words("say steered")
        error = await failure(one.call("session/inject", sessionId=one.session, mode="steer", content=content))
        assert error.code == -32010 and error.data["reason"] == "no_running_turn"
        turn = one.prompt("say one\nsleep 60000")
        await one.said("one")
        result = await one.call("session/inject", sessionId=one.session, mode="steer", content=content)
        await one.said("steered")
        kind = "user_message_chunk" if version == 1 else "user_message"
        assert [u["messageId"] for u in one.updates(kind)][-1] == result["messageId"]
        await one.notify("session/cancel", sessionId=one.session)
        await turn


@VERSIONS
async def test_steering_tells_how_it_got_there(served: Served, version: int) -> None:
    async with client(served.url, version) as one:
        await one.new(served.workspace)
        ask = {"_meta": {"steering": {"idleBehavior": "promptRequired"}}}
        where = {"sessionId": one.session, "prompt": words("say steered")}
        result = await one.call("_session/steering", **where, **ask)
        assert result == {"outcome": "promptRequired", "reason": "noRunningTurn"}
        result = await one.call("_session/steering", **where)
        assert result["outcome"] == "startedNewTurn" and result["_meta"]["trunkline"]["messageId"]
        await one.said("steered")
        turn = one.prompt("say one\nsleep 60000")
        await one.said("one")
        assert (await one.call("_session/steering", **where, **ask))["outcome"] == "injected"
        await one.notify("session/cancel", sessionId=one.session)
        await turn
        wrong = {"_meta": {"steering": {"idleBehavior": "wait"}}}
        assert (await failure(one.call("_session/steering", **where, **wrong))).code == -32602


async def test_steering_an_agent_that_cannot_be_steered(served: Served) -> None:
    """It goes first in the next turn, and is answered so; a cancel ends it as failed."""
    async with client(served.url, path="/acp/plain") as one:
        await one.new(served.workspace)
        turn = one.prompt("say one\nsleep 200")
        await one.said("one")
        where = {"sessionId": one.session, "prompt": words("say steered")}
        assert (await one.call("_session/steering", **where))["outcome"] == "startedNewTurn"
        await turn
        turn = one.prompt("say two\nsleep 60000")
        await one.said("two")
        after = len(one.got)
        steer = one.start("_session/steering", **where)
        await waits(one, after, mode="steer")
        await one.notify("session/cancel", sessionId=one.session)
        assert (await turn)["stopReason"] == "cancelled"
        assert (await steer)["outcome"] == "failed"


# --- several clients -------------------------------------------------------------------------------------------------


async def test_a_permission_goes_to_all_and_the_first_answer_wins(served: Served) -> None:
    async with client(served.url) as one, client(served.url, 2) as two, client(served.url) as three:
        await one.new(served.workspace)
        one.answer = two.answer = three.answer = lambda message: None
        two.session = three.session = one.session
        await two.call("session/resume", sessionId=one.session, cwd=str(served.workspace))
        turn = one.prompt("ask rm -rf\nsay done")
        asked = await one.asked("session/request_permission")
        newer = await two.asked("session/request_permission")
        assert newer["params"]["title"] == "rm -rf"
        assert newer["params"]["subject"]["toolCall"]["toolCallId"] == asked["params"]["toolCall"]["toolCallId"]
        await two.state("requires_action")
        # who comes later is asked too
        await three.call("session/load", sessionId=one.session, cwd=str(served.workspace), mcpServers=[])
        late = await three.asked("session/request_permission")
        outcome = {"outcome": {"outcome": "selected", "optionId": "reject"}}
        await two.write({"jsonrpc": "2.0", "id": newer["id"], "result": outcome})
        for other, request in ((one, asked), (three, late)):
            withdrawn = await other.asked("$/cancel_request")
            assert withdrawn["params"] == {"requestId": request["id"]}
        # an answer that comes too late changes nothing
        allowed = {"outcome": {"outcome": "selected", "optionId": "once"}}
        await one.write({"jsonrpc": "2.0", "id": asked["id"], "result": allowed})
        assert (await turn)["stopReason"] == "end_turn"
        assert one.updates("tool_call_update")[-1]["status"] == "failed"
        assert not any(m.get("method") == "$/cancel_request" for m in two.got)


async def test_one_that_leaves_disturbs_nobody(served: Served) -> None:
    async with client(served.url) as one:
        await one.new(served.workspace)
        one.answer = lambda message: None
        async with client(served.url) as other:
            other.session = one.session
            await other.call("session/load", sessionId=one.session, cwd=str(served.workspace), mcpServers=[])
            other.answer = lambda message: None
            turn = one.prompt("ask x\nsay done\nsleep 50")
            await other.asked("session/request_permission")
            assert await other.call("session/close", sessionId=one.session) == {}
        asked = await one.asked("session/request_permission")
        allowed = {"outcome": {"outcome": "selected", "optionId": "once"}}
        await one.write({"jsonrpc": "2.0", "id": asked["id"], "result": allowed})
        assert (await turn)["stopReason"] == "end_turn" and one.text() == "done"


async def test_a_prompt_runs_on_when_its_client_is_gone(served: Served) -> None:
    async with client(served.url) as one:
        await one.new(served.workspace)
        one.prompt("say going\nsleep 50\nsay on").cancel  # noqa: B018
        await one.said("going")
    async with client(served.url, 2) as two:
        two.session = one.session
        where = {"sessionId": one.session, "cwd": str(served.workspace)}
        await two.call("session/resume", **where, replayFrom={"type": "start"})
        await two.state("idle")
        assert two.text() == "goingon"


async def test_close_cancels_what_runs(served: Served) -> None:
    async with client(served.url) as one:
        await one.new(served.workspace)
        turn = one.prompt("say going\nsleep 60000")
        await one.said("going")
        assert await one.call("session/close", sessionId=one.session) == {}
        assert (await turn)["stopReason"] == "cancelled"


async def test_an_answer_that_is_none(served: Served) -> None:
    """A client's error, or an option that was not offered, is no approval: alone, it cancels the request."""
    for wrong in (
        {"error": {"code": -32601, "message": "not here"}},
        {"result": {"outcome": {"outcome": "selected", "optionId": "nope"}}},
        {"result": {"outcome": {"outcome": "_maybe"}}},
        {"result": None},
    ):
        async with client(served.url) as one:
            await one.new(served.workspace)
            one.answer = lambda message: None
            turn = one.prompt("ask x\nsay never")
            asked = await one.asked("session/request_permission")
            await one.write({"jsonrpc": "2.0", "id": asked["id"], **wrong})
            await turn
            assert one.text() == "", wrong


# --- children --------------------------------------------------------------------------------------------------------


@VERSIONS
async def test_children_and_their_messages(served: Served, version: int) -> None:
    """References name each other, session ids are the gateway's, chunks carry only content."""
    async with client(served.url, version) as one:
        await one.new(served.workspace)
        await one.turn("child bob")
        opened, over = one.updates("subagent_update")
        child = opened["sessionId"]
        assert child.startswith("ses_") and opened["title"] == "bob" and opened["capabilities"] == {"cancel": {}}
        assert over == {**over, "sessionId": child, "state": {"state": "idle", "stopReason": "end_turn"}}
        mine, theirs = (
            one.updates("session_message", session=one.session),
            one.updates("session_message", session=child),
        )
        task, reply = mine
        seen, sent = theirs
        for message, sender, recipient in ((task, one.session, child), (seen, one.session, child)):
            assert message["senderSessionId"] == sender and message["recipientSessionId"] == recipient
        assert task["recipientMessageId"] == seen["messageId"] and seen["senderMessageId"] == task["messageId"]
        assert sent["recipientMessageId"] == reply["messageId"] and reply["senderMessageId"] == sent["messageId"]
        assert one.text(session=child) == "bob at work"
        states = [u["state"] for u in one.updates("state_update", session=child)]
        assert states == (["running", "idle"] if version == 2 else [])
        error = await failure(one.call("session/prompt", sessionId=child, prompt=words("hi")))
        assert error.code == -32602
        listed = await one.call("session/list")
        assert [s["sessionId"] for s in listed["sessions"]] == [one.session]


async def test_a_client_without_subagents_is_told_nothing_of_them(served: Served) -> None:
    hello = {**V1, "clientCapabilities": {}}
    async with client(served.url, hello=hello) as one:
        await one.new(served.workspace)
        await one.turn("child bob\nsay done")
        assert one.updates("subagent_update", "session_message") == []
        assert {m["params"]["sessionId"] for m in one.got if m.get("method") == "session/update"} == {one.session}
        assert one.text() == "done"


# --- modes, options, lists -------------------------------------------------------------------------------------------


async def test_modes_and_options(served: Served) -> None:
    async with client(served.url) as one, client(served.url, 2) as two:
        created = await one.new(served.workspace)
        assert created["modes"]["currentModeId"] == "code"
        two.session = one.session
        await two.call("session/resume", sessionId=one.session, cwd=str(served.workspace))
        assert await one.call("session/set_mode", sessionId=one.session, modeId="ask") == {}
        assert one.updates("current_mode_update")[-1]["currentModeId"] == "ask"
        told = await two.update("config_option_update")
        assert {o["configId"]: o["currentValue"] for o in told["configOptions"]} == {"mode": "ask", "model": "quick"}
        option = {"sessionId": one.session, "configId": "model", "value": "careful"}
        result = await one.call("session/set_config_option", **option)
        assert [(o["id"], o["currentValue"]) for o in result["configOptions"]] == [("model", "careful")]
        result = await two.call(
            "session/set_config_option", sessionId=one.session, configId="mode", type="id", value="code"
        )
        assert [(o["configId"], o["currentValue"]) for o in result["configOptions"]] == [
            ("mode", "code"),
            ("model", "careful"),
        ]
        wrong = [
            ("session/set_mode", {"modeId": "nope"}),
            ("session/set_config_option", {"configId": "nope", "value": "x"}),
            ("session/set_config_option", {"configId": "model", "value": "nope"}),
            ("session/set_config_option", {"configId": "model", "value": True}),
        ]
        for method, params in wrong:
            assert (await failure(one.call(method, sessionId=one.session, **params))).code == -32602, params


async def test_the_list_has_pages(served: Served) -> None:
    for _ in range(103):
        await served.session()
    async with client(served.url) as one:
        first = await one.call("session/list")
        assert len(first["sessions"]) == 100
        second = await one.call("session/list", cursor=first["nextCursor"])
        assert len(second["sessions"]) == 3 and "nextCursor" not in second
        ids = [s["sessionId"] for s in first["sessions"] + second["sessions"]]
        assert len(set(ids)) == 103
        assert (await failure(one.call("session/list", cursor="what"))).code == -32602
        assert (await one.call("session/list", cwd="/nowhere"))["sessions"] == []
        assert await one.call("session/delete", sessionId=ids[0]) == {}
        assert await one.call("session/delete", sessionId=ids[0]) == {}
        assert len((await one.call("session/list", cursor=first["nextCursor"]))["sessions"]) == 3


async def test_an_endpoint_of_one_agent(served: Served) -> None:
    async with client(served.url, path="/acp/plain") as one, client(served.url) as other:
        await one.new(served.workspace)
        await other.new(served.workspace)
        listed = (await one.call("session/list"))["sessions"]
        assert [s["sessionId"] for s in listed] == [one.session]
        where = {"sessionId": other.session, "cwd": str(served.workspace), "mcpServers": []}
        assert (await failure(one.call("session/load", **where))).code == -32002
        chosen = await other.new(served.workspace, _meta={"trunkline": {"agent": "plain"}})
        assert chosen["sessionId"] in [s["sessionId"] for s in (await one.call("session/list"))["sessions"]]


# --- what goes wrong -------------------------------------------------------------------------------------------------


@VERSIONS
async def test_the_agent_dies(served: Served, version: int) -> None:
    """A typed error at once; what waited is answered and does not run later; the next prompt starts a new agent."""
    async with client(served.url, version) as one:
        await one.new(served.workspace)
        first = one.prompt("say going\nsleep 100\ncrash")
        await one.said("going")
        second = one.prompt("say never")
        error = await failure(second)
        assert error.code == -32603 and error.data["reason"] == "agent_exit"
        if version == 1:
            error = await failure(first)
            assert error.code == -32603 and error.data["reason"] == "agent_exit"
        else:
            over = await one.state("idle")
            assert over["stopReason"] == "error" and over["error"]["data"]["reason"] == "agent_exit"
        await one.until(lambda _: pending(one) == [])
        turn = await one.turn("say again")
        assert turn["stopReason"] == "end_turn"
        assert one.text() == "goingagain"


async def test_a_refusal_is_a_stop_reason(served: Served) -> None:
    async with client(served.url) as one:
        await one.new(served.workspace)
        assert (await one.turn("refuse"))["stopReason"] == "refusal"


async def test_cancel_request(served: Served) -> None:
    async with client(served.url) as one:
        await one.new(served.workspace)
        first = one.prompt("say going\nsleep 60000")
        await one.said("going")
        running, after = one._next, len(one.got)
        second = one.prompt("say never")
        await waits(one, after)
        await one.notify("$/cancel_request", requestId=one._next)
        assert (await second)["stopReason"] == "cancelled"
        assert not first.done()
        await one.notify("$/cancel_request", requestId=running)
        assert (await first)["stopReason"] == "cancelled"
        # a session whose agent never answers: nothing of it is left
        opening = one.start(
            "session/new", cwd=str(served.workspace), mcpServers=[], _meta={"trunkline": {"agent": "mute"}}
        )
        async with served.events() as events:
            await events.until("server.connected")
            await one.call("session/list")
            await one.notify("$/cancel_request", requestId=one._next - 1)
            assert (await failure(opening)).code == -32800
        assert [s["sessionId"] for s in (await one.call("session/list"))["sessions"]] == [one.session]


async def test_malformed_messages(served: Served) -> None:
    """The right error with id null, and the connection lives."""
    async with client(served.url) as one:
        for text, code in (
            ("{", -32700),
            ("", -32700),
            ("[]", -32600),
            ('[{"jsonrpc":"2.0","id":1,"method":"session/list"}]', -32600),
            ("3", -32600),
            ('{"id": 7}', -32600),
            ('{"jsonrpc":"2.0","id":{},"method":"session/list"}', -32600),
            ('{"jsonrpc":"2.0","id":true,"method":"session/list"}', -32600),
        ):
            after = len(one.got)
            await one.write(text)
            answer = await one.until(lambda m: "error" in m, after)
            assert answer["id"] is None and answer["error"]["code"] == code, text
        after = len(one.got)
        await one.write('{"jsonrpc":"2.0","id":"x","method":"session/prompt","params":[1]}')
        answer = await one.until(lambda m: "error" in m, after)
        assert answer["id"] == "x" and answer["error"]["code"] == -32602
        # answers to nothing, unknown notifications and foreign ids are no matter
        await one.write('{"jsonrpc":"2.0","id":99,"result":{}}')
        await one.write('{"jsonrpc":"2.0","method":"what/ever","params":{}}')
        await one.notify("session/cancel", sessionId="ses_nobody")
        await one.notify("$/cancel_request", requestId="nothing")
        assert (await failure(one.call("nope"))).code == -32601
        # half of an emoji, as JavaScript writes it
        await one.new(served.workspace)
        assert (await one.turn("say \ud83d!"))["stopReason"] == "end_turn" and one.text() == "?!"
        assert len((await one.call("session/list"))["sessions"]) == 1


async def test_a_message_that_is_too_large(tmp_path: Path) -> None:
    async with serve(tmp_path, "--agent", f"demo={DEMO}", TRUNKLINE_MAX_BODY="65536") as served:
        async with client(served.url) as one:
            await one.new(served.workspace)
            after = len(one.got)
            prompt = {"sessionId": one.session, "prompt": words("x" * 70_000)}
            await one.write({"jsonrpc": "2.0", "id": 99, "method": "session/prompt", "params": prompt})
            answer = await one.until(lambda m: "error" in m, after)
            assert answer["id"] is None and answer["error"]["code"] == -32600
            assert (await one.turn("say on"))["stopReason"] == "end_turn"


async def test_out_of_order(served: Served) -> None:
    from websockets.asyncio.client import connect

    async with connect(served.url.replace("http", "ws") + "/acp") as socket:
        import json

        async def call(method: str, **params: Any) -> dict[str, Any]:
            await socket.send(json.dumps({"jsonrpc": "2.0", "id": 0, "method": method, "params": params}))
            found: dict[str, Any] = json.loads(await socket.recv())
            return found

        assert (await call("session/list"))["error"]["code"] == -32600
        await socket.send(json.dumps({"jsonrpc": "2.0", "method": "session/cancel", "params": {}}))
        error = (await call("initialize", protocolVersion=0))["error"]
        assert error["code"] == -32022 and error["data"] == {"requested": 0, "supported": [1, 2]}
        assert (await call("initialize", protocolVersion="1"))["error"]["code"] == -32602
        assert (await call("initialize"))["error"]["code"] == -32602
        assert (await call("initialize", protocolVersion=2))["error"]["code"] == -32602  # without info
        assert (await call("initialize", protocolVersion=99, newer={}))["result"]["protocolVersion"] == 2
        assert (await call("initialize", **V2))["result"]["protocolVersion"] == 2  # v2: once more, before all else
        assert (await call("session/load", sessionId="x"))["error"]["code"] == -32601  # not on v2
        assert (await call("initialize", **V2))["error"]["code"] == -32600


@VERSIONS
async def test_params_that_are_wrong(served: Served, version: int) -> None:
    async with client(served.url, version) as one:
        await one.new(served.workspace)
        where = {"sessionId": one.session}
        for method, params, code in (
            ("session/new", {"cwd": "/", "mcpServers": []}, -32602),
            ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
            ("session/new", {"mcpServers": []}, -32602),
            ("session/new", {"cwd": str(served.workspace), "mcpServers": [3]}, -32602),
            ("session/prompt", {**where}, -32602),
            ("session/prompt", {**where, "prompt": []}, -32602),
            ("session/prompt", {**where, "prompt": ["text"]}, -32602),
            ("session/prompt", {**where, "prompt": [{"type": "image"}]}, -32602),
            ("session/prompt", {"prompt": words("x")}, -32602),
            ("session/prompt", {"sessionId": "ses_nobody", "prompt": words("x")}, -32002),
            ("session/resume", {"sessionId": "ses_nobody", "cwd": "/"}, -32002),
            ("session/fork", {**where, "cwd": "/", "mcpServers": []}, -32602),
            ("session/fork", {"sessionId": "ses_nobody", "cwd": "/", "mcpServers": []}, -32002),
            ("authenticate" if version == 1 else "auth/login", {"methodId": "x"}, -32602),
        ):
            error = await failure(one.call(method, **params))
            assert error.code == code, (method, params, error)
        error = await failure(one.call("session/new", cwd="/", mcpServers=[]))
        assert str(served.workspace.resolve()) in str(error)
        if version == 1:
            assert (await failure(one.call("session/new", cwd=str(served.workspace)))).code == -32602
        else:
            await one.call("session/new", cwd=str(served.workspace))
            error = await failure(one.call("session/resume", **where, cwd="/", replayFrom={"type": "later"}))
            assert error.code == -32602


async def test_an_endpoint_of_no_agent(served: Served) -> None:
    from websockets.exceptions import InvalidStatus

    with pytest.raises(InvalidStatus, match="404"):
        async with client(served.url, path="/acp/nobody"):
            pass


async def test_a_page_of_another_site_gets_no_socket(served: Served) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidStatus

    with pytest.raises(InvalidStatus, match="403"):
        await connect(served.url.replace("http", "ws") + "/acp", origin="https://evil.example")  # type: ignore[arg-type]


async def test_an_agent_that_does_not_start(tmp_path: Path) -> None:
    broken = f"{sys.executable} -c 'import sys; sys.exit(3)'"
    async with serve(tmp_path, "--agent", f"broken={broken}") as served, client(served.url) as one:
        error = await failure(one.call("session/new", cwd=str(served.workspace), mcpServers=[]))
        assert error.code == -32603 and error.data["reason"] == "agent_exit"
        assert (await one.call("session/list"))["sessions"] == []


async def test_a_burst_is_whole_and_in_frames_that_clients_take(served: Served) -> None:
    async with client(served.url) as one:
        await one.new(served.workspace)
        await one.turn("flood 20000")
        text = one.text()
        assert len(text) == 20000 * 44 and text.startswith("00000000 the") and "00019999" in text
        assert max(len(u["content"]["text"]) for u in one.updates("agent_message_chunk")) <= 100_000


async def test_requests_of_one_client_side_by_side(served: Served) -> None:
    async with client(served.url) as one:
        made = await asyncio.gather(
            *(one.call("session/new", cwd=str(served.workspace), mcpServers=[]) for _ in range(4))
        )
        ids = [m["sessionId"] for m in made]
        assert len(set(ids)) == 4
        turns = [one.start("session/prompt", sessionId=s, prompt=words(f"say {s}")) for s in ids]
        assert [(await t)["stopReason"] for t in turns] == ["end_turn"] * 4
        for each in ids:
            assert one.text(session=each) == each
