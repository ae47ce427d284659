"""The example agent behind a gateway as people run it: one session on all three protocols, the same ids on each."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acp.clients.raw import client
from tests.agui.support import body, user
from tests.served import Served, serve

BOT = ("--agent", "bot=examples.pydantic_agent:agent")
pytestmark = pytest.mark.usefixtures("npm_clients")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serve(tmp_path, *BOT) as one:
        yield one


async def agui(served: Served, given: dict[str, Any], path: str = "/agui/bot") -> list[dict[str, Any]]:
    """All events of a run."""
    answer = await served.http.post(path, json=given, headers={"accept": "text/event-stream"})
    assert answer.status_code == 200, answer.text
    return [json.loads(line[5:]) for line in answer.text.splitlines() if line.startswith("data:")]


async def listed(served: Served, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await served.http.get(f"/session/{session}/message")).json()
    return found


def ids_of(messages: list[dict[str, Any]]) -> list[str]:
    return [m["info"]["id"] for m in messages]


async def test_one_session_on_three_protocols(served: Served) -> None:
    session = await served.session()
    first = await served.post(session, "hello from opencode")
    assert first.status_code == 200, first.text
    async with client(served.url, 2) as editor:
        editor.session = session
        await editor.call("session/resume", sessionId=session, cwd=str(served.workspace), replayFrom={"type": "start"})
        answer = await editor.turn("hello from acp")
        run = await agui(served, body(user("m-agui", "note: hello from agui"), thread=session))
        assert run[0]["type"] == "RUN_STARTED" and run[-1]["type"] == "RUN_FINISHED"
        await editor.said("Done: note 1 kept")
        messages = await listed(served, session)
        # every message has one id, whoever asks
        assert await served.told(session) == [
            "user: hello from opencode",
            "assistant: You said: hello from opencode (message 1) ",
            "user: hello from acp",
            "assistant: You said: hello from acp (message 2) ",
            "user: note: hello from agui",
            "assistant: I write that down. ",
            "assistant: Done: note 1 kept",
        ]
        users = [m["info"]["id"] for m in messages if m["info"]["role"] == "user"]
        answers = [m["info"]["id"] for m in messages if m["info"]["role"] == "assistant"]
        shown = [u["messageId"] for u in editor.updates("user_message")]
        assert answer["messageId"] == users[1]
        assert shown[:2] == users[:2] and shown[2] == "m-agui"
        spoken = list(dict.fromkeys(u["messageId"] for u in editor.updates("agent_message_chunk", "agent_message")))
        assert spoken == answers
    connected = await _connected(served, session)
    roles = {m["id"]: m["role"] for m in connected}
    assert [i for i, role in roles.items() if role == "user"] == [*users[:2], "m-agui"]
    assert [i for i in roles if i in answers] == answers
    [call] = [p for m in messages for p in m["parts"] if p["type"] == "tool"]
    assert (call["tool"], call["state"]["status"], call["state"]["input"]) == (
        "take_note",
        "completed",
        {"text": "hello from agui"},
    )


async def _connected(served: Served, session: str) -> list[dict[str, Any]]:
    """What an AG-UI client that attaches is shown, by the snapshot of messages."""
    path = "/agui/bot/connect"
    async with httpx.AsyncClient(base_url=served.url) as http, asyncio.timeout(30):
        async with http.stream("POST", path, json=body(thread=session, run="r9")) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    event = json.loads(line[5:])
                    if event["type"] == "MESSAGES_SNAPSHOT":
                        found: list[dict[str, Any]] = event["messages"]
                        return found
    raise AssertionError("no snapshot")


@pytest.mark.parametrize(("reply", "words"), [("once", "Done: 1 notes thrown away"), ("reject", "denied")])
async def test_an_approval_answered_from_another_protocol(served: Served, reply: str, words: str) -> None:
    async with client(served.url) as editor:
        editor.answer = lambda message: None  # it looks on
        await editor.new(served.workspace)
        session = editor.session
        await editor.turn("note: keep me")
        waiting = editor.prompt("clear")
        await editor.asked("session/request_permission")
        [asked] = (await served.http.get("/permission")).json()
        assert asked["sessionID"] == session and asked["permission"] == "clear_notes"
        answer = await served.http.post(f"/permission/{asked['id']}/reply", json={"reply": reply})
        assert answer.status_code == 200, answer.text
        assert (await waiting)["stopReason"] == "end_turn"
        assert words in editor.text()


async def test_a_steer_over_acp_is_injected_and_shown_everywhere(served: Served) -> None:
    async with client(served.url, 2) as editor:
        await editor.new(served.workspace)
        prompt = editor.prompt("slow")
        await editor.said("One")
        injected = await editor.call(
            "session/inject",
            sessionId=editor.session,
            mode="steer",
            content=[{"type": "text", "text": "hurry"}],
        )
        await prompt
        await editor.state("idle", 3)
        assert injected["messageId"] in [u["messageId"] for u in editor.updates("user_message")]
        lines = await served.told(editor.session)
        assert lines[-2:] == ["user: hurry", "assistant: You said: hurry (message 2) "], lines
        assert injected["messageId"] in ids_of(await listed(served, editor.session))


async def test_a_restart_goes_on_with_the_conversation(tmp_path: Path) -> None:
    async with serve(tmp_path, *BOT) as one:
        session = await one.session()
        await one.post(session, "first")
    async with serve(tmp_path, *BOT) as one:
        await one.post(session, "second")
        assert (await one.told(session))[-1] == "assistant: You said: second (message 2) "


async def test_a_gateway_that_was_killed_in_a_turn(tmp_path: Path) -> None:
    async with serve(tmp_path, *BOT) as one:
        session = await one.session()
        await one.post(session, "first")
        async with one.events() as events:
            await one.send(session, "slow")
            await events.until("message.part.delta")
        await one.kill()
    async with serve(tmp_path, *BOT) as one:
        await one.post(session, "third")
        # the unanswered prompt is remembered beside the new one
        assert (await one.told(session))[-1] == "assistant: You said: slow / third (message 3) "


async def test_a_blocked_tool_does_not_keep_the_process(tmp_path: Path) -> None:
    """``serve`` checks that the gateway ends, with code 0, in time."""
    async with serve(tmp_path, "--agent", "bot=tests.pydantic_ai.agents:agent") as one:
        session = await one.session()
        async with one.events() as events:
            await one.send(session, "sleeps")
            await events.until("message.part.updated", sessionID=session)
            other = await one.session()
            assert (await one.post(other, "hello")).status_code == 200
            assert (await one.told(other))[-1] == "assistant: said: hello"


async def test_a_wrong_name_ends_the_command(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no module named 'nowhere'"):
        async with serve(tmp_path, "--agent", "bot=nowhere.at_all:agent"):
            pass
