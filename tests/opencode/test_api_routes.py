"""The routes of version 2: sessions, prompts, messages, pending messages, requests; one history with version 1."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.agents import AgentConfig
from gateway.core import effects as fx
from gateway.core.content import Text
from gateway.core.ids import MessageId, SessionId
from gateway.core.inputs import AgentAsk, AgentCommands, AgentMode, AgentText, AgentTool, SteerVerdict
from gateway.core.inputs import AgentConfig as ConfigTold
from gateway.core.model import By
from tests.fake_port import Farm
from tests.opencode.api_support import Json, history, messages
from tests.opencode.support import Gateway, gateway, task
from tests.opencode.test_api_translate import valid
from tests.opencode.test_stream import YES_NO, end, settled

FORM = {"type": "object", "properties": {"pick": {"type": "string", "enum": ["a", "b"]}}, "required": ["pick"]}


async def new(one: Gateway, **body: Any) -> str:
    answer = await one.http.post("/api/session", json=body)
    assert answer.status_code == 200, answer.text
    valid("SessionV2Info", answer.json()["data"])
    return str(answer.json()["data"]["id"])


async def prompt(one: Gateway, sid: str, text: str, status: int = 200, **body: Any) -> Json:
    answer = await one.http.post(f"/api/session/{sid}/prompt", json={"prompt": {"text": text}, **body})
    assert answer.status_code == status, answer.text
    found: Json = answer.json()
    if status == 200:
        valid("SessionInputAdmitted", found["data"])
        return dict(found["data"])
    return found


async def get(one: Gateway, url: str, status: int = 200, /, **query: Any) -> Any:
    answer = await one.http.get(url, params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


# --- sessions ------------------------------------------------------------------------------------------------------


async def test_a_session_with_an_id_of_the_client_is_made_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        mine = "ses_00000000000001mineminemine"
        both = await asyncio.gather(*(one.http.post("/api/session", json={"id": mine}) for _ in range(5)))
        assert {answer.status_code for answer in both} == {200}
        assert len({answer.text for answer in both}) == 1 and both[0].json()["data"]["id"] == mine
        other = (await one.http.post("/api/session", json={"id": mine, "agent": "no such mode"})).json()
        assert other == both[0].json(), "as it is, whatever the body says"
        assert [s["id"] for s in (await get(one, "/api/session"))["data"]] == [mine]
        await prompt(one, mine, "works")
        assert (await one.http.delete(f"/session/{mine}")).json() is True
        gone = await one.http.post("/api/session", json={"id": mine})
        assert gone.status_code == 409 and gone.json()["_tag"] == "ConflictError"
        for wrong in ("bad", "ses", "ses_" + "x" * 100, "ses_a/b", "ses_a\n"):
            answer = await one.http.post("/api/session", json={"id": wrong})
            assert answer.status_code == 400 and answer.json()["_tag"] == "InvalidRequestError", wrong
        assert (await one.http.post("/api/session", content=b"")).status_code == 400
        for outside in ("/", "/tmp/nope", str(one.workspace / "none")):
            answer = await one.http.post("/api/session", json={"location": {"directory": outside}})
            assert answer.status_code in (400, 403), outside


async def test_the_list_in_pages_both_ways(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        inner = one.workspace / "inner"
        inner.mkdir()
        made = [await new(one, location={"directory": str(inner if n == 3 else one.workspace)}) for n in range(7)]
        await prompt(one, made[0], "changed last, and stays where it was")
        assert (await one.http.patch(f"/session/{made[4]}", json={"title": "Special"})).status_code == 200
        for order, whole in (("desc", made[::-1]), ("asc", made)):
            page = await get(one, "/api/session", limit=3, order=order)
            valid("SessionsResponse", page)
            seen = [s["id"] for s in page["data"]]
            while page["data"]:
                last = page
                page = await get(one, "/api/session", limit=3, cursor=page["cursor"]["next"])
                seen += [s["id"] for s in page["data"]]
            assert seen == whole
            back = await get(one, "/api/session", limit=2, cursor=last["cursor"]["previous"])
            assert [s["id"] for s in back["data"]] == whole[4:6]
            first = await get(one, "/api/session", limit=3, order=order)
            none = await get(one, "/api/session", limit=3, cursor=first["cursor"]["previous"])
            assert none == {"data": [], "cursor": {"previous": None, "next": None}}
        assert [s["id"] for s in (await get(one, "/api/session", search="spec"))["data"]] == [made[4]]
        there = (await get(one, "/api/session", directory=str(inner)))["data"]
        assert [s["id"] for s in there] == [made[3]]
        project = there[0]["projectID"]
        assert [s["id"] for s in (await get(one, "/api/session", project=project))["data"]] == [made[3]]
        assert (await get(one, "/api/session", project="none"))["data"] == []
        for wrong in ({"limit": 0}, {"limit": "x"}, {"limit": 1.5}, {"limit": 2**60}, {"order": "up"}):
            assert (await get(one, "/api/session", 400, **wrong))["kind"] == "Query"
        for cursor in ("x", "bnVsbA", "é", "eyJhbmNob3IiOnt9fQ"):
            told = await get(one, "/api/session", 400, cursor=cursor)
            assert told == {"_tag": "InvalidCursorError", "message": "Invalid cursor"}


async def test_mode_and_model(tmp_path: Path) -> None:
    farm = Farm()
    options = [
        {"id": "model", "category": "model", "currentValue": "m1", "options": [{"value": "m1"}, {"value": "m2"}]},
        {"id": "mode", "category": "mode", "currentValue": "plan", "options": [{"value": "plan"}, {"value": "act"}]},
    ]
    async with gateway(tmp_path, farm) as one:
        sid = await new(one, model={"providerID": "fake", "id": "default"})
        await prompt(one, sid, "starts it")
        farm.port.tell(ConfigTold(options=options), AgentMode(mode="plan"))
        await settled(one)
        path = f"/api/session/{sid}"
        for what, body, status in (
            ("model", {"model": {"providerID": "fake", "id": "m2"}}, 204),
            ("model", {"model": {"providerID": "fake", "id": "m9"}}, 400),
            ("model", {"model": {"providerID": "other", "id": "default"}}, 409),
            ("model", {"model": {"providerID": "none", "id": "default"}}, 404),
            ("agent", {"agent": "act"}, 204),
            ("agent", {"agent": "plan"}, 204),
            ("agent", {"agent": "none"}, 400),
            ("agent", {}, 400),
        ):
            answer = await one.http.post(f"{path}/{what}", json=body)
            assert answer.status_code == status, (what, body, answer.text)
        asked = [e for e in farm.port.effects if isinstance(e, fx.ConfigureAgent)]
        assert "act" in [e.mode for e in asked] and "m2" in [e.model for e in asked]
        models = (await get(one, "/api/model"))["data"]
        assert {m["id"] for m in models if m["providerID"] == "fake"} == {"m1", "m2"}
        for m in models:
            valid("ModelV2Info", m)
        assert {a["id"] for a in (await get(one, "/api/agent"))["data"]} == {"plan", "act"}


# --- prompts -------------------------------------------------------------------------------------------------------


async def test_the_same_prompt_again_is_the_first_admission(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid, other = await new(one), await new(one)
        first = await prompt(one, sid, "hello", id="msg_mine")
        assert first["id"] == "msg_mine" and first["delivery"] == "steer"
        await settled(one)
        again = await prompt(one, sid, "hello", id="msg_mine", delivery="steer", resume=False)
        assert again.pop("promotedSeq") > first["admittedSeq"] and again == first
        events = await history(one.http, sid)
        seqs = {e["type"]: e["durable"]["seq"] for e in events}
        assert seqs["session.next.prompt.admitted"] == first["admittedSeq"]
        for text, body, where in (
            ("other", {}, sid),
            ("hello", {"delivery": "queue"}, sid),
            ("hello", {}, other),
        ):
            refused = await prompt(one, where, text, 409, id="msg_mine", **body)
            valid("ConflictError", refused)
        assert farm.prompts == [["hello"]]
        assert [m["text"] for m in await messages(one.http, sid)] == ["hello"]
        assert await messages(one.http, other) == []


async def test_stored_without_starting_and_started_by_sending_it_again(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await new(one)
        await prompt(one, sid, "stored", id="msg_a", resume=False)
        await prompt(one, sid, "queued", id="msg_b", resume=False, delivery="queue")
        await settled(one)
        assert farm.prompts == [] and await messages(one.http, sid) == []
        assert (await one.http.post(f"/api/session/{sid}/wait")).status_code == 204, "idle: nothing begins by itself"
        pending = (await get(one, f"/api/session/{sid}/pending"))["data"]
        assert [(m["id"], m["delivery"], m["held"]) for m in pending] == [
            ("msg_a", "steer", "stored"),
            ("msg_b", "queue", "stored"),
        ]
        await prompt(one, sid, "stored", id="msg_a")
        assert (await one.http.post(f"/api/session/{sid}/wait")).status_code == 204
        assert farm.prompts == [["stored"], ["queued"]]
        users = [m["id"] for m in await messages(one.http, sid) if m["type"] == "user"]
        assert users == ["msg_a", "msg_b"]


async def test_busy_steers_go_together_ahead_of_the_queue(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await new(one)
        await prompt(one, sid, "running")
        await settled(one)
        for text, delivery in (("q1", "queue"), ("s1", "steer"), ("q2", "queue"), ("s2", "steer")):
            await prompt(one, sid, text, delivery=delivery)
        assert list((await get(one, "/api/session/active"))["data"]) == [sid]
        assert [m["prompt"]["text"] for m in (await get(one, f"/api/session/{sid}/pending"))["data"]] == [
            "s1",
            "s2",
            "q1",
            "q2",
        ]
        for _ in range(4):
            end(farm)
            await settled(one)
        assert farm.prompts == [["running"], ["s1", "s2"], ["q1"], ["q2"]]
        assert (await get(one, "/api/session/active"))["data"] == {}


async def test_wait_waits_for_the_whole_queue_and_interrupt_keeps_it(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await new(one)
        path = f"/api/session/{sid}"
        await prompt(one, sid, "one")
        await prompt(one, sid, "two", delivery="queue")
        waiting = task(one.http.post(f"{path}/wait"))
        await settled(one)
        end(farm)
        await settled(one)
        assert farm.prompts == [["one"], ["two"]] and not waiting.done()
        await prompt(one, sid, "three", delivery="queue")
        farm.port.tell(AgentText(role="agent", text="half"))
        await settled(one)
        assert (await one.http.post(f"{path}/interrupt")).status_code == 204
        end(farm, "cancelled")
        assert (await waiting).status_code == 204
        said = (await messages(one.http, sid))[-1]
        assert said["finish"] == "error" and said["error"]["message"] == "Provider turn interrupted"
        [held] = (await get(one, f"{path}/pending"))["data"]
        assert held["held"] == "abort" and held["prompt"] == {"text": "three"}
        assert (await one.http.post(f"{path}/interrupt")).status_code == 204, "nothing to do is a success"
        await prompt(one, sid, "four")
        await settled(one)
        assert farm.prompts[2:] == [["four"]]
        end(farm)
        await settled(one)
        assert farm.prompts[3:] == [["three"]]


async def test_files_and_mentions(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await new(one)
        inside = (one.workspace / "a.py").as_uri()
        asked: Any = {
            "text": "look",
            "files": [
                {"uri": inside, "name": "a.py", "description": "it", "source": {"start": 0, "end": 1, "text": "l"}},
                {"uri": "data:image/png;base64,aGk="},
                {"uri": "https://example.org/x.bin"},
            ],
            "agents": [{"name": "plan"}],
        }
        answer = await one.http.post(f"/api/session/{sid}/prompt", json={"prompt": asked})
        told = answer.json()["data"]
        valid("SessionInputAdmitted", told)
        assert [f["mime"] for f in told["prompt"]["files"]] == [
            "text/x-python",
            "image/png",
            "application/octet-stream",
        ]
        assert told["prompt"]["files"][0] | {"mime": 0} == asked["files"][0] | {"mime": 0}
        assert told["prompt"]["agents"] == asked["agents"]
        await one.http.post(f"/api/session/{sid}/wait")
        user = (await messages(one.http, sid))[0]
        valid("SessionMessage", user)
        assert {key: user[key] for key in ("text", "files", "agents")} == told["prompt"]
        v1 = await one.messages(sid)
        assert [part["type"] for part in v1[0]["parts"]] == ["text", "file", "file", "file"]
        for wrong, status in (
            ("file:///etc/passwd", 403),
            ("nothing", 400),
            ("data:;base64,%", 400),
            ("ftp://x/", 400),
        ):
            body = {"prompt": {"text": "x", "files": [{"uri": inside}, {"uri": wrong}]}}
            refused = await one.http.post(f"/api/session/{sid}/prompt", json=body)
            assert refused.status_code == status and '["prompt"]["files"][1]["uri"]' in refused.json()["message"], wrong


async def test_compact_is_the_agents_own_command(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await new(one)
        answer = await one.http.post(f"/api/session/{sid}/compact")
        assert answer.status_code == 503 and answer.json()["service"] == "session.compact"
        valid("ServiceUnavailableError", answer.json())
        farm.port.tell(AgentCommands(commands=[{"name": "init", "description": ""}, {"name": "compact"}]))
        await settled(one)
        assert (await one.http.post(f"/api/session/{sid}/compact")).status_code == 204
        await one.http.post(f"/api/session/{sid}/wait")
        assert farm.prompts == [["/compact"]]
        commands = (await get(one, "/api/command"))["data"]
        assert [c["name"] for c in commands] == ["init", "compact"]
        for command in commands:
            valid("CommandV2Info", command)


# --- messages ------------------------------------------------------------------------------------------------------


async def test_messages_in_pages_newest_first_or_oldest(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await new(one)
        for number in range(4):
            await prompt(one, sid, f"p{number}", delivery="queue")
        await one.http.post(f"/api/session/{sid}/wait")
        path = f"/api/session/{sid}/message"
        whole = (await get(one, path))["data"]
        valid("SessionMessagesResponse", await get(one, path))
        assert len(whole) == 8 and whole[-1]["text"] == "p0"
        assert await messages(one.http, sid) == whole[::-1] == (await get(one, f"/api/session/{sid}/context"))["data"]
        for order, expected in (("desc", whole), ("asc", whole[::-1])):
            page = await get(one, path, limit=3, order=order)
            seen = list(page["data"])
            while page["data"]:
                last = page
                page = await get(one, path, limit=3, cursor=page["cursor"]["next"])
                seen += page["data"]
            assert seen == expected
            back = await get(one, path, limit=2, cursor=last["cursor"]["previous"])
            assert back["data"] == expected[4:6]
        cursor = (await get(one, path, limit=1))["cursor"]["next"]
        both = await get(one, path, 400, cursor=cursor, order="asc")
        assert both == {"_tag": "InvalidCursorError", "message": "Cursor cannot be combined with order"}
        strange = await new(one)
        assert (await get(one, f"/api/session/{strange}/message", 400, cursor=cursor))["_tag"] == "InvalidCursorError"
        for wrong in ({"limit": 0}, {"limit": 201}, {"limit": "x"}, {"order": "up"}, {"cursor": "x"}):
            await get(one, path, 400, **wrong)
        for message in whole:
            assert (await get(one, f"{path}/{message['id']}"))["data"] == message
        valid("MessageNotFoundError", await get(one, f"{path}/msg_none", 404))
        await get(one, f"{path}/none", 400)


async def test_one_history_whatever_it_came_through(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await one.prompt(sid, "by version 1", messageID="msg_v1")
        await prompt(one, sid, "by version 2", id="msg_v2")
        await one.http.post(f"/api/session/{sid}/wait")
        theirs, words = MessageId("their id"), (Text("by another"),)
        admission = await one.controller.submit(
            SessionId(sid), words, message_id=theirs, local_id=True, by=By("", "agui")
        )
        await one.http.post(f"/api/session/{sid}/wait")
        second = await messages(one.http, sid)
        first = await one.messages(sid)
        assert [m["id"] for m in second] == [m["info"]["id"] for m in first]
        assert [m["text"] for m in second if m["type"] == "user"] == ["by version 1", "by version 2", "by another"]
        assert second[4]["id"] == admission.ascending_id and second[4]["metadata"] == {"messageId": "their id"}
        told = [e["data"]["messageID"] for e in await history(one.http, sid) if e["type"] == "session.next.prompted"]
        assert told == ["msg_v1", "msg_v2", admission.ascending_id]
        session = (await get(one, f"/api/session/{sid}"))["data"]
        assert session["title"] == "by version 1" == (await get(one, f"/session/{sid}"))["title"]


# --- pending -------------------------------------------------------------------------------------------------------


async def test_pending_messages_are_revoked_replaced_and_moved(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await new(one)
        path = f"/api/session/{sid}/pending"
        await prompt(one, sid, "running", id="msg_0")
        await settled(one)
        for name in "abcd":
            await prompt(one, sid, name, id=f"msg_{name}", delivery="queue")

        async def texts() -> list[str]:
            return [m["prompt"]["text"] for m in (await get(one, path))["data"]]

        def done(result: str, name: str) -> Json:
            return {"data": {"messageID": f"msg_{name}", "result": result, "uncertain": False}}

        assert await texts() == ["a", "b", "c", "d"]
        for _ in range(2):
            assert (await one.http.delete(f"{path}/msg_b")).json() == done("revoked", "b")
        changed = await one.http.patch(f"{path}/msg_c", json={"prompt": {"text": "other"}})
        assert changed.json() == done("replaced", "c") and await texts() == ["a", "other", "d"]
        assert (await one.http.post(f"{path}/msg_d/steer")).json() == done("promoted", "d")
        assert await texts() == ["d", "a", "other"]
        assert (await one.http.post(f"{path}/msg_d/queue")).json() == done("demoted", "d")
        assert await texts() == ["a", "other", "d"]
        refused = await prompt(one, sid, "b", 409, id="msg_b", delivery="queue")
        assert "revoked" in refused["message"]
        same = await prompt(one, sid, "c", id="msg_c", delivery="queue")
        assert same["prompt"] == {"text": "c"}, "what was admitted, whatever it is now"
        calls = (
            one.http.delete,
            lambda url: one.http.patch(url, json={"prompt": {"text": "x"}}),
            lambda url: one.http.post(f"{url}/steer"),
            lambda url: one.http.post(f"{url}/queue"),
        )
        for call in calls:
            late = await call(f"{path}/msg_0")
            assert late.status_code == 409 and late.json()["result"] == "already_delivered", late.text
            unknown = await call(f"{path}/msg_none")
            assert unknown.status_code == 404
            valid("MessageNotFoundError", unknown.json())
            assert (await call(f"{path}/none")).status_code == 400
            assert (await call("/api/session/ses_none/pending/msg_a")).json()["_tag"] == "SessionNotFoundError"
        assert (await one.http.delete(f"/session/{sid}/message/msg_a")).json() is True, "and by version 1"
        assert await texts() == ["other", "d"]
        changes = [e["data"] for e in await history(one.http, sid) if e["type"] == "session.next.pending.updated"]
        told = [(c["messageID"], c["change"]) for c in changes if c["change"] != "offered"]
        assert told == [
            ("msg_b", "revoked"),
            ("msg_c", "replaced"),
            ("msg_d", "promoted"),
            ("msg_d", "demoted"),
            ("msg_a", "revoked"),
        ]
        end(farm)
        await settled(one)
        assert farm.prompts == [["running"], ["other"]]


async def test_a_steer_that_the_agent_was_told_of_is_revoked_as_the_agent_says(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False, can_steer=True)
    async with gateway(tmp_path, farm) as one:
        sid = await new(one)
        await prompt(one, sid, "running")
        await settled(one)
        await prompt(one, sid, "steer", id="msg_s")
        await settled(one)
        offer: Any = farm.port.last(fx.OfferSteer)
        [told] = (await get(one, f"/api/session/{sid}/pending"))["data"]
        assert told["state"] == "offered"
        revoking = task(one.http.delete(f"/api/session/{sid}/pending/msg_s"))
        await settled(one)
        assert not revoking.done(), "it waits for the agent's word"
        farm.port.tell(SteerVerdict(offer_id=offer.offer_id, verdict="injected"))
        answer = await revoking
        assert answer.status_code == 409 and answer.json()["result"] == "already_delivered"


# --- requests ------------------------------------------------------------------------------------------------------


async def test_a_permission_and_a_question(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid, other = await new(one), await new(one)
        await prompt(one, sid, "go")
        await settled(one)
        call = AgentTool(call_id="c1", new=True, kind="execute", title="ls", input={"command": "ls"})
        raw = {"toolCall": {"title": "ls", "kind": "execute", "rawInput": {"command": "ls"}}}
        farm.port.tell(AgentAsk(agent_ref="r1", title="ls", tool=call, options=YES_NO, raw=raw))
        farm.port.tell(AgentAsk(agent_ref="r2", kind="elicitation", title="Which?", schema=FORM))
        await settled(one)
        [asked] = (await get(one, f"/api/session/{sid}/permission"))["data"]
        valid("PermissionV2Request", asked)
        assert asked["action"] == "bash" and asked["resources"] == ["ls"] and asked["source"]["callID"] == "c1"
        listed = await get(one, "/api/permission/request")
        assert listed["data"] == [asked] and listed["location"]["directory"] == str(one.workspace)
        assert (await get(one, f"/api/session/{other}/permission"))["data"] == []
        assert (await get(one, f"/api/session/{sid}/permission/{asked['id']}"))["data"] == asked
        assert [p["id"] for p in await get(one, "/permission")] == [asked["id"]], "one list with version 1"
        path = f"/api/session/{sid}/permission/{asked['id']}/reply"
        wrong = await one.http.post(path.replace(sid, other), json={"reply": "once"})
        assert wrong.status_code == 404 and wrong.json()["_tag"] == "PermissionNotFoundError"
        assert (await one.http.post(path, json={"reply": "maybe"})).status_code == 400
        assert (await one.http.post(path, json={"reply": "once"})).status_code == 204
        late = await one.http.post(path, json={"reply": "once"})
        assert late.status_code == 404 and "answered already" in late.json()["message"]
        valid("PermissionNotFoundError", late.json())

        [question] = (await get(one, f"/api/session/{sid}/question"))["data"]
        valid("QuestionV2Request", question)
        assert (await get(one, "/api/question/request"))["data"] == [question]
        path = f"/api/session/{sid}/question/{question['id']}"
        assert (await one.http.post(f"{path}/reply", json={"answers": [["z"]]})).status_code == 400
        assert (await one.http.post(f"{path}/reply", json={"answers": [["b"]]})).status_code == 204
        valid("QuestionNotFoundError", (await one.http.post(f"{path}/reject")).json())
        farm.port.tell(AgentAsk(agent_ref="r3", kind="elicitation", title="Which?", schema=FORM))
        await settled(one)
        [question] = (await get(one, f"/api/session/{sid}/question"))["data"]
        assert (await one.http.post(f"/api/session/{sid}/question/{question['id']}/reject")).status_code == 204
        answers = [(e.agent_ref, type(e.outcome).__name__) for e in farm.port.effects if isinstance(e, fx.AnswerAgent)]
        assert answers == [("r1", "Selected"), ("r2", "Accepted"), ("r3", "Declined")]
        assert (await get(one, "/api/permission/saved")) == {"data": []}
        assert (await one.http.delete("/api/permission/saved/psv_x")).status_code == 204


# --- the rest ------------------------------------------------------------------------------------------------------


async def test_what_there_is(tmp_path: Path) -> None:
    agents = {"fake": AgentConfig(), "other": AgentConfig()}
    async with gateway(tmp_path, Farm(), agents=agents) as one:
        assert await get(one, "/api/health") == {"healthy": True}
        here = await get(one, "/api/location")
        valid("LocationInfo", here)
        inner = one.workspace / "inner"
        inner.mkdir()
        (inner / "deep.txt").write_text("deep")
        (one.workspace / "x.txt").write_bytes(b"\x00\xff")
        assert (await get(one, "/api/location", **{"location[directory]": str(inner)}))["directory"] == str(inner)
        assert (await get(one, "/api/location", directory=str(inner)))["directory"] == str(inner)
        await get(one, "/api/location", 403, **{"location[directory]": "/etc"})
        for what, kind in (("agent", "AgentV2Info"), ("model", "ModelV2Info"), ("provider", "ProviderV2Info")):
            found = await get(one, f"/api/{what}")
            assert found["location"] == here and found["data"]
            for each in found["data"]:
                valid(kind, each)
        assert (await get(one, "/api/provider/other"))["data"]["id"] == "other"
        valid("ProviderNotFoundError", await get(one, "/api/provider/none", 404))
        for empty in ("command", "skill", "reference", "integration"):
            assert (await get(one, f"/api/{empty}"))["data"] == []
        assert (await get(one, "/api/integration/x"))["data"] is None
        listed = (await get(one, "/api/fs/list"))["data"]
        assert listed == [{"path": "inner/", "type": "directory"}, {"path": "x.txt", "type": "file"}]
        for entry in listed:
            valid("FileSystemEntry", entry)
        assert (await get(one, "/api/fs/list", path="inner"))["data"][0]["path"] == "inner/deep.txt"
        assert (await get(one, "/api/fs/find", query="deep"))["data"] == [{"path": "inner/deep.txt", "type": "file"}]
        assert (await get(one, "/api/fs/find", query="inn", type="directory"))["data"][0]["path"] == "inner/"
        assert (await one.http.get("/api/fs/read/x.txt")).content == b"\x00\xff"
        for path, status in (("%2e%2e%2ftest.db", 403), ("%2Fetc%2Fpasswd", 403), ("none", 404), ("inner", 400)):
            assert (await one.http.get(f"/api/fs/read/{path}")).status_code == status, path
        for query in ({}, {"query": "x", "type": "y"}, {"query": "x", "limit": "0"}):
            await get(one, "/api/fs/find", 400, **query)


async def test_what_is_not_offered_says_why(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await new(one)
        for path in ("revert/stage", "revert/clear", "revert/commit", "permission"):
            answer = await one.http.post(f"/api/session/{sid}/{path}")
            assert answer.status_code == 501 and answer.json()["_tag"] == "NotSupportedError"
            unknown = await one.http.post(f"/api/session/ses_none/{path}")
            assert unknown.status_code == 404 and unknown.json()["_tag"] == "SessionNotFoundError"
        answer = await one.http.get("/api/pty")
        assert answer.status_code == 501 and answer.json()["message"] == "The gateway opens no terminals"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "tag"),
    [
        ("GET", "/api/session/ses_none", None, 404, "SessionNotFoundError"),
        ("GET", "/api/session/none", None, 400, "InvalidRequestError"),
        ("GET", "/api/session/ses_" + "x" * 100, None, 404, "SessionNotFoundError"),
        ("POST", "/api/session/ses_none/prompt", b'{"prompt":{"text":"x"}}', 404, "SessionNotFoundError"),
        ("POST", "/api/session/none/prompt", b'{"prompt":{"text":"x"}}', 400, "InvalidRequestError"),
        ("POST", "/api/session/SID/prompt", b"{}", 400, "InvalidRequestError"),
        ("POST", "/api/session/SID/prompt", b"{bad", 400, "InvalidRequestError"),
        ("POST", "/api/session/SID/prompt", b"", 400, "InvalidRequestError"),
        ("POST", "/api/session/SID/prompt", b"[]", 400, "InvalidRequestError"),
        ("POST", "/api/session/SID/prompt", b'{"prompt":{"text":"x"},"id":"foo"}', 400, "InvalidRequestError"),
        ("POST", "/api/session/SID/prompt", b'{"prompt":{"text":"x"},"delivery":"b"}', 400, "InvalidRequestError"),
        ("POST", "/api/session/SID/prompt", b'{"prompt":{"text":"\\ud800"}}', 400, "InvalidRequestError"),
        ("POST", "/api/session/ses_none/wait", b"", 404, "SessionNotFoundError"),
        ("POST", "/api/session/ses_none/interrupt", b"", 404, "SessionNotFoundError"),
        ("POST", "/api/session/ses_none/compact", b"", 404, "SessionNotFoundError"),
        ("GET", "/api/session/ses_none/history", None, 404, "SessionNotFoundError"),
        ("GET", "/api/session/SID/history?limit=0", None, 400, "InvalidRequestError"),
        ("GET", "/api/session/SID/history?limit=101", None, 400, "InvalidRequestError"),
        ("GET", "/api/session/SID/history?after=-1", None, 400, "InvalidRequestError"),
        ("GET", "/api/session/SID/history?after=1e3", None, 400, "InvalidRequestError"),
        ("GET", "/api/session/SID/history?after=99999999999999999999", None, 400, "InvalidRequestError"),
        ("GET", "/api/session/ses_none/event", None, 404, "SessionNotFoundError"),
        ("GET", "/api/session/SID/event?after=x", None, 400, "InvalidRequestError"),
        ("GET", "/api/event?cursor=x", None, 400, "InvalidRequestError"),
        ("GET", "/api/session/ses_none/pending", None, 404, "SessionNotFoundError"),
        ("GET", "/api/session/ses_none/context", None, 404, "SessionNotFoundError"),
        ("GET", "/api/session/ses_none/permission", None, 404, "SessionNotFoundError"),
        ("POST", "/api/session/SID/permission/per_x/reply", b'{"reply":"once"}', 404, "PermissionNotFoundError"),
        ("POST", "/api/session/SID/permission/x/reply", b'{"reply":"once"}', 400, "InvalidRequestError"),
        ("POST", "/api/session/SID/question/que_x/reply", b'{"answers":[["a"]]}', 404, "QuestionNotFoundError"),
        ("GET", "/api/nope", None, 404, "NotFoundError"),
        ("PUT", "/api/session", b"{}", 405, "MethodNotAllowedError"),
    ],
)
async def test_errors(tmp_path: Path, method: str, path: str, body: bytes | None, status: int, tag: str) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await new(one)
        kind = {"content-type": "application/json"}
        answer = await one.http.request(method, path.replace("SID", sid), content=body, headers=kind if body else {})
        assert answer.status_code == status and answer.json()["_tag"] == tag, answer.text
        if tag in ("SessionNotFoundError", "InvalidRequestError", "PermissionNotFoundError", "QuestionNotFoundError"):
            valid(tag, answer.json())


async def test_without_the_token_401_has_its_own_form(tmp_path: Path) -> None:
    from pydantic import SecretStr

    async with gateway(tmp_path, Farm(), token=SecretStr("a-long-enough-token")) as one:
        answer = await one.http.get("/api/health")
        assert answer.status_code == 401
        valid("UnauthorizedError", answer.json())
        right = await one.http.get("/api/health", headers={"authorization": "Bearer a-long-enough-token"})
        assert right.json() == {"healthy": True}


async def test_an_agent_that_does_not_start_is_said(tmp_path: Path) -> None:
    from gateway.core.inputs import AgentGone
    from gateway.core.model import Error

    farm = Farm(auto_ready=False)
    async with gateway(tmp_path, farm) as one:
        sid = await new(one)
        compacting = task(one.http.post(f"/api/session/{sid}/compact"))
        await settled(one)
        async with asyncio.timeout(10):
            while not farm.ports:
                await asyncio.sleep(0)
        farm.port.tell(AgentGone(error=Error("agent_exit", "it ended with status 3: no key")))
        answer = await compacting
        assert answer.status_code == 502 and "no key" in json.dumps(answer.json())
