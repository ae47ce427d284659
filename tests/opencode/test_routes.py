"""The routes: what they answer. Bad values are in ``test_bad_input.py``."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from gateway.agents import AgentConfig
from gateway.core import effects as fx
from gateway.core.inputs import (
    AgentAsk,
    AgentGone,
    AgentText,
    AgentTool,
)
from gateway.core.model import Error
from tests.fake_port import Farm
from tests.opencode.support import Gateway, gateway, task
from tests.opencode.test_stream import YES_NO, end, settled
from tests.opencode.test_translate import schema

FORM = {"type": "object", "properties": {"pick": {"type": "string", "enum": ["a", "b"]}}, "required": ["pick"]}


# --- sessions ------------------------------------------------------------------------------------------------------


async def test_a_session_from_beginning_to_end(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        for body in (b"", b"{}", b'{"bogus": 1}'):
            answer = await one.http.post("/session", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 200
            schema("Session").validate(answer.json())
        rules = [{"permission": "question", "pattern": "*", "action": "deny"}]
        made = (await one.http.post("/session", json={"title": "Mine", "permission": rules})).json()
        assert made["title"] == "Mine" and made["permission"] == rules and made["directory"] == str(one.workspace)
        listed = (await one.http.get("/session", params={"roots": "true", "limit": 2, "path": ""})).json()
        assert [s["id"] for s in listed][:1] == [made["id"]] and len(listed) == 2
        assert (await one.http.get("/session", params={"search": "mine"})).json() == [made]
        assert (await one.http.get("/session", params={"start": made["time"]["updated"] + 1000})).json() == []
        path = f"/session/{made['id']}"
        assert (await one.http.get(path)).json() == made
        renamed = (await one.http.patch(path, json={"title": "Other"})).json()
        assert renamed["title"] == "Other"
        archived = (await one.http.patch(path, json={"time": {"archived": 5}})).json()
        assert archived["time"]["archived"] == 5
        assert made["id"] not in [s["id"] for s in (await one.http.get("/session")).json()]
        assert "archived" not in (await one.http.patch(path, json={"time": {"archived": None}})).json()["time"]
        assert (await one.http.patch(path, json={})).json()["title"] == "Other"
        for sub in ("children", "todo", "diff"):
            assert (await one.http.get(f"{path}/{sub}")).json() == []
        assert (await one.http.post(f"{path}/abort")).json() is True
        assert (await one.http.delete(path)).json() is True
        assert (await one.http.get(path)).status_code == 404
        assert (await one.http.delete(path)).status_code == 404


# --- prompts -------------------------------------------------------------------------------------------------------


async def test_a_prompt_is_answered_with_the_last_assistant_message(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await one.new()
        answer = (await one.prompt(sid, "hello")).json()
        schema("Message").validate(answer["info"])
        assert [part["type"] for part in answer["parts"]] == ["step-start", "text", "step-finish"]
        assert answer["parts"][1]["text"] == "echo: hello"
        user, assistant = await one.messages(sid)
        assert assistant == answer and assistant["info"]["parentID"] == user["info"]["id"]
        for message in (user, assistant):
            schema("Message").validate(message["info"])
            for part in message["parts"]:
                schema("Part").validate(part)
            path = f"/session/{sid}/message/{message['info']['id']}"
            assert (await one.http.get(path)).json() == message


async def test_the_same_message_again_is_answered_again_and_runs_once(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid, other = await one.new(), await one.new()
        answers = await asyncio.gather(*[one.prompt(sid, "hello", messageID="msg_mine") for _ in range(3)])
        assert [answer.status_code for answer in answers] == [200] * 3
        assert answers[0].json() == answers[1].json() == answers[2].json()
        assert answers[0].json()["info"]["parentID"] == "msg_mine"
        assert farm.prompts == [["hello"]]
        before = await one.messages(sid)
        for session_id, text in ((sid, "else"), (other, "hello")):
            answer = await one.prompt(session_id, text, messageID="msg_mine")
            assert answer.status_code == 409 and "msg_mine" in answer.json()["data"]["message"]
        assert await one.messages(sid) == before and await one.messages(other) == []


async def test_a_second_prompt_waits_and_both_are_answered_in_order(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        first = task(one.prompt(sid, "one"))
        await prompted(farm, "one")
        second = task(one.prompt(sid, "two"))
        farm.port.tell(AgentText(role="agent", text="first"))
        await settled(one)
        end(farm)
        assert (await first).json()["parts"][1]["text"] == "first"
        await prompted(farm, "two")
        assert not second.done()
        farm.port.tell(AgentText(role="agent", text="second"))
        end(farm)
        assert (await second).json()["parts"][1]["text"] == "second"


async def prompted(farm: Farm, text: str) -> None:
    async with asyncio.timeout(10):
        while [text] not in farm.prompts:
            await asyncio.sleep(0)


async def test_an_abort_answers_everybody_who_waits_with_the_aborted_message(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        first = task(one.prompt(sid, "one"))
        await prompted(farm, "one")
        farm.port.tell(AgentText(role="agent", text="half"))
        second = task(one.prompt(sid, "two", messageID="msg_two"))
        await admitted(one, sid, 2)
        assert (await one.http.post(f"/session/{sid}/abort")).json() is True
        await settled(one)
        assert farm.port.last(fx.CancelTurn)
        end(farm, "cancelled")
        for answer in await asyncio.gather(first, second):
            assert answer.status_code == 200
            info = answer.json()["info"]
            assert info["error"] == {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
            assert "finish" not in info and info["time"]["completed"]
        assert [m["info"]["id"] for m in await one.messages(sid)][-1] == "msg_two"
        assert farm.prompts == [["one"]]


async def admitted(one: Gateway, sid: str, count: int) -> None:
    async with asyncio.timeout(10):
        while len([m for m in await one.messages(sid) if m["info"]["role"] == "user"]) < count:
            await asyncio.sleep(0)


async def test_a_revoked_prompt_that_somebody_waits_for(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        first = task(one.prompt(sid, "one"))
        await prompted(farm, "one")
        second = task(one.prompt(sid, "two", messageID="msg_two"))
        await admitted(one, sid, 2)
        assert (await one.http.delete(f"/session/{sid}/message/msg_two")).json() is True
        assert (await one.http.delete(f"/session/{sid}/message/msg_two")).json() is True  # twice is a success
        again = [{"type": "text", "text": "two"}]
        late = await one.http.post(f"/session/{sid}/prompt_async", json={"parts": again, "messageID": "msg_two"})
        for answer in (await second, late):
            assert answer.status_code == 409 and "msg_two was revoked" in answer.json()["data"]["message"]
        end(farm)
        assert (await first).status_code == 200
        used = [m["info"]["id"] for m in await one.messages(sid)]
        assert "msg_two" not in used
        for message_id in used:  # what the agent has seen or said stays
            assert (await one.http.delete(f"/session/{sid}/message/{message_id}")).status_code == 409
        assert (await one.http.delete(f"/session/{sid}/message/msg_nope")).status_code == 404


async def test_the_agents_death_is_in_the_message_that_the_prompt_is_answered_with(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        for code, name in (("agent_exit", "UnknownError"), ("auth_required", "ProviderAuthError")):
            sid = await one.new()
            waiting = task(one.prompt(sid, code))
            await prompted(farm, code)
            farm.port.tell(AgentText(role="agent", text="so"))
            farm.port.tell(AgentGone(error=Error(code, "it is over")))
            answer = await waiting
            assert answer.status_code == 200
            assert answer.json()["info"]["error"]["name"] == name
            assert answer.json()["info"]["error"]["data"]["message"] == "it is over"


async def test_an_agent_that_never_starts(tmp_path: Path) -> None:
    farm = Farm(auto_ready=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        waiting = task(one.prompt(sid, "x", messageID="msg_x"))
        async with asyncio.timeout(10):
            while not farm.ports:
                await asyncio.sleep(0)
        farm.port.tell(AgentGone(error=Error("agent_exit", "no such command")))
        answer = await waiting
        told = answer.json()["data"]["message"]
        assert answer.status_code == 502 and told.startswith("no such command") and "held" in told


async def test_no_reply_keeps_a_message_for_the_next_prompt(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        answer = (await one.prompt(sid, "context", noReply=True)).json()
        assert answer["info"]["role"] == "user" and answer["parts"][0]["text"] == "context"
        assert farm.prompts == []
        assert (await one.prompt(sid, "now")).status_code == 200
        assert farm.prompts == [["context", "now"]]


async def test_parts_keep_the_clients_ids(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await one.new()
        png = "data:image/png;base64," + base64.b64encode(b"png").decode()
        first, second = "prt_228ecddac001Xrb6KL7955PdSl", "prt_228ecddac002Xrb6KL7955PdSl"
        parts = [
            {"type": "text", "text": "look", "id": first},
            {"type": "agent", "name": "plan"},
            {"type": "file", "mime": "image/png", "url": png, "filename": "a.png", "id": second},
        ]
        answer = await one.http.post(f"/session/{sid}/prompt_async", json={"parts": parts, "messageID": "msg_1"})
        assert answer.status_code == 204 and answer.content == b""
        user = (await one.messages(sid))[0]
        assert user["info"]["id"] == "msg_1"
        assert [part["id"] for part in user["parts"]] == [first, second]
        assert user["parts"][1] | {"sessionID": "", "messageID": ""} == parts[2] | {"sessionID": "", "messageID": ""}


async def test_steer_is_told_as_such(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False, can_steer=True)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await one.queue(sid, "one")
        await prompted(farm, "one")
        await one.queue(sid, "other way", delivery="steer")
        await settled(one)
        assert farm.port.last(fx.OfferSteer)


# --- pages ---------------------------------------------------------------------------------------------------------


async def test_pages_of_the_list(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await one.new()
        for n in range(3):
            await one.prompt(sid, f"p{n}")
        whole = await one.messages(sid)
        path = f"/session/{sid}/message"
        assert (await one.http.get(path, params={"limit": 0})).json() == whole
        found: list[Any] = []
        answer = await one.http.get(path, params={"limit": 4})
        while True:
            found = answer.json() + found
            if "x-next-cursor" not in answer.headers:
                break
            link = answer.headers["link"]
            assert link.endswith('>; rel="next"')
            answer = await one.http.get(link[1 : link.index(">")])
        assert found == whole


# --- requests ------------------------------------------------------------------------------------------------------


async def asking(one: Gateway, farm: Farm, **ask: Any) -> str:
    sid = await one.new()
    await one.queue(sid, "go")
    async with asyncio.timeout(10):
        while not farm.prompts:
            await asyncio.sleep(0)
    farm.port.tell(AgentAsk(agent_ref="r1", title="may I", **ask))
    await settled(one)
    return sid


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_permission_is_answered_once(tmp_path: Path, legacy: bool) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        tool = AgentTool(call_id="c", new=True, kind="execute", title="ls", input={"command": "ls"})
        sid = await asking(one, farm, tool=tool, options=YES_NO)
        listed = (await one.http.get("/permission")).json()
        schema("PermissionRequest").validate(listed[0])
        assert listed[0]["sessionID"] == sid and (await one.http.get("/question")).json() == []
        path = f"/permission/{listed[0]['id']}/reply"
        body: dict[str, Any] = {"reply": "once"}
        if legacy:
            path, body = f"/session/{sid}/permissions/{listed[0]['id']}", {"response": "once"}
            other = await one.new()
            wrong = path.replace(sid, other)
            assert (await one.http.post(wrong, json=body)).status_code == 404
        assert (await one.http.post(path, json=body)).json() is True
        assert farm.port.last(fx.AnswerAgent).outcome.option_id == "y"  # type: ignore[union-attr]
        late = await one.http.post(path, json=body)
        assert late.status_code == 404
        assert late.json()["_tag"] == "PermissionNotFoundError" and "already" in late.json()["message"]
        assert (await one.http.get("/permission")).json() == []


async def test_a_question_is_answered_or_rejected(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        await asking(one, farm, kind="elicitation", schema=FORM)
        listed = (await one.http.get("/question")).json()
        schema("QuestionRequest").validate(listed[0])
        path = f"/question/{listed[0]['id']}"
        answer = await one.http.post(f"{path}/reply", json={"answers": [["c"]]})
        assert answer.status_code == 400 and '["answers"][0]' in answer.json()["data"]["message"]
        assert (await one.http.post(f"{path}/reply", json={"answers": [["b"]]})).json() is True
        assert farm.port.last(fx.AnswerAgent).outcome.content == {"pick": "b"}  # type: ignore[union-attr]
        farm.port.tell(AgentAsk(agent_ref="r2", title="again", kind="elicitation", schema=FORM))
        await settled(one)
        again = (await one.http.get("/question")).json()[0]["id"]
        assert (await one.http.post(f"/question/{again}/reject")).json() is True
        late = await one.http.post(f"/question/{again}/reject")
        assert late.status_code == 404 and late.json()["_tag"] == "QuestionNotFoundError"


async def test_odd_texts_are_kept_as_they_are(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await one.new()
        for text in ("\0", "\U0001f642\u2028\r\n\x1b[0m", "data: x\n\nid: 5\n\n", "", "x" * 100_000):
            answer = await one.prompt(sid, text)
            assert answer.status_code == 200
            assert answer.json()["parts"][1]["text"] == f"echo: {text}"


async def test_a_full_inbox_says_so(tmp_path: Path) -> None:
    from gateway.residents import Options

    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, options=Options(max_pending=2)) as one:
        sid = await one.new()
        await one.queue(sid, "one")
        await prompted(farm, "one")
        await one.queue(sid, "two")
        await one.queue(sid, "three")
        answer = await one.prompt(sid, "four")
        assert answer.status_code == 429 and "pending" in answer.json()["data"]["message"]


async def test_it_works_with_the_demo_agent_too(tmp_path: Path) -> None:
    """The same through a real agent process."""
    import sys

    from adapters.acp.agent import factory

    farm = factory(tmp_path / "run")
    agents = {"fake": AgentConfig(name="fake", command=[sys.executable, "-m", "adapters.acp.demo"])}
    async with gateway(tmp_path, farm, agents=agents) as one:
        reader = one.read()
        await reader.until("server.connected")
        sid = await one.new()
        waiting = task(one.prompt(sid, "think hm\nsay hello\nask Deploy\nplan a|b\nsay done"))
        events = await reader.until("permission.asked")
        asked = (
            events[-1]["properties"]
            if events[-1]["type"] == "permission.asked"
            else next(event["properties"] for event in events if event["type"] == "permission.asked")
        )
        assert (await one.http.post(f"/permission/{asked['id']}/reply", json={"reply": "once"})).json() is True
        answer = (await waiting).json()
        assert answer["info"]["finish"] == "stop"
        assert [p["text"] for p in answer["parts"] if p["type"] == "text"] == ["done"]
        types = [part["type"] for message in await one.messages(sid) for part in message["parts"]]
        assert types[:4] == ["text", "step-start", "reasoning", "text"] and "tool" in types
        todo = (await one.http.get(f"/session/{sid}/todo")).json()
        assert [entry["content"] for entry in todo] == ["a", "b"]
        await reader.close()
    await farm.close()
