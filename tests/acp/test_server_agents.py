"""What agents may do that the demo agent does not: children that outlive a turn, late references, foreign words."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.acp.clients.raw import V1, V2, Client, client
from tests.served import Served, serve

pytestmark = pytest.mark.usefixtures("npm_clients")

PUPPET = Path(__file__).parent / "clients" / "puppet.py"
ROOT, KID = "puppet-1", "kid"
Json = dict[str, Any]
OPTIONS = [{"optionId": "once", "name": "Allow", "kind": "allow_once"}]
CALL = {"toolCallId": "c1", "title": "touch"}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serve(tmp_path, "--agent", f"puppet={sys.executable} {PUPPET}") as one:
        yield one


def steps(*all_of: Json) -> str:
    return json.dumps(all_of)


def kid(**fields: Any) -> Json:
    return {"update": {"sessionUpdate": "subagent_update", "sessionId": KID, **fields}}


def note(message_id: str, of: str = ROOT, **fields: Any) -> Json:
    return {"of": of, "update": {"sessionUpdate": "session_message", "messageId": message_id, **fields}}


def spoken(one: Client, after: int = 0) -> list[Any]:
    """What the puppet said of the answers and messages that it got."""
    return [json.loads(u["content"]["text"]) for u in one.updates("agent_message_chunk", after=after)]


async def follow(one: Client, session_id: str) -> None:
    one.session = session_id
    method = "session/load" if one.version == 1 else "session/resume"
    await one.call(method, sessionId=session_id, cwd="/", **({"mcpServers": []} if one.version == 1 else {}))


async def test_a_child_that_outlives_its_parents_turn(served: Served) -> None:
    """v2 is told it as background work; it is cancelled by its own id, and that reaches the agent's own id of it."""
    async with client(served.url, 2) as two, client(served.url) as one:
        await two.new(served.workspace)
        await follow(one, two.session)
        await two.prompt(
            steps(
                kid(title="kid", capabilities={"cancel": {}}, state={"state": "running"}),
                {"end": "end_turn"},
                {"wait": "session/cancel"},
                kid(state={"state": "idle", "stopReason": "cancelled"}),
            )
        )
        over = await two.state("idle")
        child = two.updates("subagent_update")[0]["sessionId"]
        assert over["background"] == [{"type": "subagent", "sessionId": child}]
        assert two.updates("state_update", session=child) == [
            {"sessionUpdate": "state_update", "state": "running", "background": []}
        ]
        after = len(two.got)
        await one.notify("session/cancel", sessionId=child)
        assert (await two.state("idle", after))["background"] == []
        await two.until(lambda _: {"sessionId": KID} in spoken(two, after), after)
        await two.until(lambda _: len(two.updates("state_update", session=child)) == 2)
        ended = two.updates("state_update", session=child)[-1]
        assert ended["state"] == "idle" and ended["stopReason"] == "cancelled"
        told = await one.update("subagent_update", state={"state": "idle", "stopReason": "cancelled"})
        assert told["sessionId"] == child


async def test_a_live_child_is_announced_again_to_who_joins(served: Served) -> None:
    async with client(served.url, 2) as two, client(served.url, 2) as late:
        await two.new(served.workspace)
        running = kid(title="kid", capabilities={"cancel": {}}, state={"state": "running"})
        await two.prompt(steps(running, {"end": "end_turn"}, {"wait": "session/cancel"}))
        await two.state("idle")
        late.session = two.session
        await late.call("session/resume", sessionId=two.session, cwd="/", replayFrom={"type": "start"})
        await late.until(lambda _: len(late.updates("subagent_update")) == 2)
        answered = next(i for i, m in enumerate(late.got) if m.get("id") == 2)
        assert late.updates("subagent_update", after=answered)[0]["state"] == {"state": "running"}
        child = late.updates("subagent_update")[0]["sessionId"]
        assert late.updates("state_update", session=late.session)[-1]["background"] == [
            {"type": "subagent", "sessionId": child}
        ]


async def test_a_request_of_a_child(served: Served) -> None:
    """Under its own id, or, for a client that knows no children, under its parent's."""
    plain = {**V1, "clientCapabilities": {}}
    async with client(served.url) as one, client(served.url, hello=plain) as old:
        await one.new(served.workspace)
        await follow(old, one.session)
        one.answer = lambda message: None
        ask = {"ask": "session/request_permission", "of": KID, "params": {"toolCall": CALL, "options": OPTIONS}}
        turn = one.prompt(steps(kid(state={"state": "running"}), ask))
        asked = await one.asked("session/request_permission")
        child = one.updates("subagent_update")[0]["sessionId"]
        assert asked["params"]["sessionId"] == child != one.session
        assert (await old.asked("session/request_permission"))["params"]["sessionId"] == old.session
        await turn
        assert spoken(one) == [{"outcome": {"outcome": "selected", "optionId": "once"}}]


@pytest.mark.parametrize("version", [1, 2])
async def test_references_of_session_messages(served: Served, version: int) -> None:
    """They may come late and may conflict: both views pass as told, and chunks carry only content."""
    text = [{"type": "text", "text": "task"}]
    async with client(served.url, version) as one:
        await one.new(served.workspace)
        chunk = {"sessionUpdate": "session_message_chunk", "messageId": "in", "content": text[0]}
        await one.turn(
            steps(
                kid(state={"state": "running"}),
                note("out", senderSessionId=ROOT, recipientSessionId=KID, content=text),
                note("in", KID, senderSessionId=ROOT, recipientSessionId=KID),
                {"of": KID, "update": chunk},
                note("out", recipientMessageId="in"),
                note("in", KID, senderMessageId="another"),
                kid(state={"state": "idle"}),
            )
        )
        child = one.updates("subagent_update")[0]["sessionId"]
        out = one.updates("session_message", session=one.session)
        seen = one.updates("session_message", session=child)
        assert [m.get("recipientMessageId") for m in out] == [None, "in"]
        assert [m.get("senderMessageId") for m in seen] == [None, "another"]
        assert out[0]["senderSessionId"] == one.session and out[0]["recipientSessionId"] == child
        assert one.updates("session_message_chunk", session=child) == [chunk]
        # who comes later gets each view once, as it stands
        async with client(served.url, version) as late:
            late.session = one.session
            if version == 1:
                await late.call("session/load", sessionId=one.session, cwd="/", mcpServers=[])
            else:
                await late.call("session/resume", sessionId=one.session, cwd="/", replayFrom={"type": "start"})
            (view,) = late.updates("session_message", session=one.session)
            assert view["recipientMessageId"] == "in" and view["content"] == text
            (view,) = late.updates("session_message", session=child)
            assert view["senderMessageId"] == "another" and view["content"] == text


async def test_foreign_words_pass_between_equal_versions(served: Served) -> None:
    """Unknown kinds, fields and blocks go to v1 clients as they came; v2 clients get what they can read."""
    hello = {**V1, "clientCapabilities": {**V1["clientCapabilities"], "session": {}}}
    unknown = {"sessionUpdate": "of_next_year", "data": [1, {"x": None}]}
    odd = {
        "sessionUpdate": "agent_message_chunk",
        "messageId": "m",
        "content": {"type": "text", "text": "hi", "annotations": {"priority": 1}},
        "_meta": {"a": {"b": 1}},
        "later": True,
    }
    notice = {"sessionUpdate": "notice", "severity": "warning", "title": "careful"}
    tool = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "later": 1, "_meta": {"k": 1}}
    async with client(served.url) as one, client(served.url, hello=hello) as quiet, client(served.url, 2) as two:
        one.checker.message = two.checker.message = quiet.checker.message = lambda message: None  # type: ignore[method-assign]
        await one.new(served.workspace)
        await follow(two, one.session)
        await follow(quiet, one.session)
        begun = len(two.got)
        await one.turn(steps({"update": unknown}, {"update": odd}, {"update": notice}, {"update": tool}))
        await two.state("idle", begun)
        kinds = ("of_next_year", "agent_message_chunk", "notice", "tool_call")
        assert one.updates(*kinds) == [unknown, odd, notice, tool]
        await quiet.update("tool_call")
        assert quiet.updates("notice") == []
        assert two.updates(*kinds) == [odd, notice]
        assert two.updates("tool_call_update") == [{**tool, "sessionUpdate": "tool_call_update"}]


@pytest.mark.parametrize("version", [1, 2])
async def test_elicitations(served: Served, version: int) -> None:
    """Forms and pages, to those that show them; each action comes back as it was."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = {"ask": "elicitation/create", "params": {"mode": "form", "message": "m", "requestedSchema": schema}}
    page = {
        "ask": "elicitation/create",
        "params": {"mode": "url", "message": "m", "url": "https://example.org/x", "elicitationId": "e1"},
    }
    results: list[Json] = [{"action": "accept", "content": {"a": "b"}}, {"action": "decline"}, {"action": "cancel"}]
    shows_none = V1 if version == 1 else V2
    hidden = {key: {} if "apabilities" in key else value for key, value in shows_none.items()}
    async with client(served.url, version) as one, client(served.url, version, hello=hidden) as blind:
        await one.new(served.workspace)
        await follow(blind, one.session)
        answers = iter([results[0], results[1], results[2], results[0]])
        one.answer = lambda message: next(answers)
        await one.turn(steps(form, form, page, page))
        assert spoken(one) == [*results, {"action": "accept", "content": {"a": "b"}}]
        asked = [m["params"] for m in one.got if m.get("method") == "elicitation/create"]
        assert [a["mode"] for a in asked] == ["form", "form", "url", "url"]
        assert all(a["sessionId"] == one.session for a in asked)
        assert not any(m.get("method") == "elicitation/create" for m in blind.got)
        assert not any(m.get("method") == "$/cancel_request" for m in blind.got)


async def test_updates_after_the_end_and_turns_without_a_prompt(served: Served) -> None:
    late = {"sessionUpdate": "agent_message_chunk", "messageId": "late", "content": {"type": "text", "text": '"late"'}}
    async with client(served.url) as one, client(served.url, 2) as two:
        await one.new(served.workspace)
        await follow(two, one.session)
        assert (await one.turn(steps({"end": "max_tokens"}, {"update": late})))["stopReason"] == "max_tokens"
        await one.said('"late"')
        await two.said('"late"')
        assert two.updates("state_update")[-1]["stopReason"] == "max_tokens"
