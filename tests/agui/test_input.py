"""What comes in over AG-UI: what is wrong with it is told, and where; which session a thread is."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import AgentCapabilities

from gateway.core.errors import Conflict, Forbidden, NotFound
from tests.agui.support import body, gateway, user
from tests.fake_port import Farm

# --- what comes in ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({}, ["threadId", "runId", "messages"]),
        ([], ["the body"]),
        (body() | {"threadId": 5}, ["threadId"]),
        (body() | {"threadId": ""}, ["threadId"]),
        (body() | {"runId": None}, ["runId"]),
        (body() | {"messages": "x"}, ["messages"]),
        (body({"role": "user", "content": "x"}), ["messages.0.id"]),
        (body({"id": "a", "role": "wizard", "content": "x"}), ["messages.0"]),
        (body(user("a", 5)), ["messages.0.content"]),
        (body(user("a", "")), ["messages.0.content"]),
        (body(user("a", [])), ["messages.0.content"]),
        (body(user("a"), user("b", [{"type": "text", "text": "x"}, {"type": "hologram"}])), ["messages.1.content.1"]),
        (body(user("a", [{"type": "image", "source": {"type": "data"}}])), ["messages.0.content.0.source.data.value"]),
        (
            body(user("a", [{"type": "image", "source": {"type": "data", "value": "!", "mimeType": "image/png"}}])),
            ["messages.0.content.0.source.value"],
        ),
        (
            body(user("a", [{"type": "video", "source": {"type": "url", "value": "http://x"}}])),
            ["messages.0.content.0"],
        ),
        (
            body(user("a", [{"type": "document", "source": {"type": "file", "value": "f"}}])),
            ["messages.0.content.0.source"],
        ),
        (body(user("a", [{"type": "binary", "mimeType": "image/png", "id": "f"}])), ["messages.0.content.0.source"]),
        (body(user("a"), delivery="soon"), ["forwardedProps.trunkline.delivery"]),
        (body(user("a"), color="red"), ["forwardedProps.trunkline.color"]),
        (body() | {"resume": [{"interruptId": "x"}]}, ["resume.0.status"]),
        (body() | {"tools": [{"name": 1}]}, ["tools.0.name"]),
    ],
)
async def test_bad_input_is_told_what_and_where(tmp_path: Path, given: Any, where: list[str]) -> None:
    async with gateway(tmp_path, Farm()) as g:
        answer = await g.http.post("/agui/fake", json=given)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["code"] == "bad_request"
        places = [problem["where"] for problem in error["data"]["problems"]]
        assert set(where) <= set(places), places
        assert all(problem["what"] for problem in error["data"]["problems"])
        assert not g.controller.live or given, "nothing is opened for what is refused"


async def test_what_is_no_json_or_not_there(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as g:
        head = {"content-type": "application/json"}
        for data in (b"", b"{", b"\xff", b"[" * 100_000):
            answer = await g.http.post("/agui/fake", content=data, headers=head)
            assert answer.status_code == 400, data
            assert "JSON" in answer.json()["error"]["message"]
        for method, path in [
            ("POST", "/agui/nobody"),
            ("POST", "/agui/nobody/connect"),
            ("GET", "/agui/nobody/capabilities"),
            ("GET", "/agui/fake/threads/unknown/pending"),
            ("POST", "/agui/fake/threads/unknown/stop"),
            ("DELETE", "/agui/fake/threads/unknown/pending/m"),
            ("POST", "/agui/fake/threads/ses_unknown/stop"),
        ]:
            answer = await g.http.request(method, path, json=body(user("a")) if method == "POST" else None)
            assert answer.status_code == 404, path
            assert answer.json()["error"]["message"]
        answer = await g.http.post("/agui/fake/connect", json=body(), headers={"last-event-id": "x.y"})
        assert answer.status_code == 400 and "cursor" in answer.json()["error"]["message"]
        assert (
            await g.http.post("/agui/fake", content=b"{}", headers={"content-type": "text/plain"})
        ).status_code == 415


async def test_the_side_routes_judge_their_bodies(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        await g.run(body(user("a")))
        base = "/agui/fake/threads/t1"
        for given, where in [
            ({}, "messages"),
            ({"messages": []}, "messages"),
            ({"messages": [{"content": 5}]}, "messages.0.content"),
            ({"messages": [{"content": "x", "role": "assistant"}]}, "messages.0.role"),
            ({"messages": [{"content": "x"}], "delivery": "now"}, "delivery"),
        ]:
            answer = await g.http.post(f"{base}/messages", json=given)
            assert answer.status_code == 400
            assert where in [p["where"] for p in answer.json()["error"]["data"]["problems"]], answer.text
        answer = await g.http.post(f"{base}/messages", json={"messages": [{"id": "b", "content": "x"}]})
        assert answer.status_code == 200
        other = {"messages": [{"id": "b", "content": "other"}]}
        assert (await g.http.post(f"{base}/messages", json=other)).status_code == 409
        assert (await g.http.patch(f"{base}/pending/b", json={"text": "x"})).status_code == 400
        refused = {"messages": [{"content": "x"}], "delivery": "reject"}
        assert (await g.http.post(f"{base}/messages", json=refused)).status_code == 409
        listed = (await g.http.get(f"{base}/pending")).json()["pending"]
        assert [m["id"] for m in listed] == ["b"]
        assert [m["result"] for m in (await g.http.delete(f"{base}/pending")).json()["pending"]] == ["revoked"]


async def test_the_catalog(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as g:
        assert [a["name"] for a in (await g.http.get("/agui")).json()["agents"]] == ["fake", "other"]
        found = (await g.http.get("/agui/fake/capabilities")).json()
        AgentCapabilities.model_validate(found)
        assert found["tools"]["clientProvided"] is False
        assert found["humanInTheLoop"]["interrupts"] is True


# --- threads ---------------------------------------------------------------------------------------------------------


async def test_an_unknown_thread_opens_one_session_whoever_asks(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as g:
        runs = await asyncio.gather(*(g.run(body(user(f"u{i}"), run=f"r{i}")) for i in range(8)))
        for run in runs:
            await run.end()
        assert len(g.controller.live) == 1
        assert sorted(words for prompt in g.farm.prompts for words in prompt) == ["hello"] * 8


async def test_a_thread_is_a_session_of_its_agent(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as g:
        first = await g.run(body(user("a")))
        await first.end()
        session_id = first.events[1]["snapshot"]["session"]["id"]
        again = await g.run(body(user("b"), thread=session_id))
        await again.end()
        assert len(g.controller.live) == 1
        with pytest.raises(Conflict, match="fake"):
            await g.threads.run(g.asked(body(user("c"), thread=session_id), "other"))
        with pytest.raises(NotFound):
            await g.run(body(user("c"), thread="ses_nobody"))
        with pytest.raises(Conflict, match="works in"):
            (g.workspace / "sub").mkdir()
            await g.run(body(user("c"), cwd=str(g.workspace / "sub")))
        with pytest.raises(Forbidden):
            await g.run(body(user("c"), thread="t2", cwd="/etc"))
        assert len(g.controller.live) == 1
