"""A real agent behind the gateway: npm ``opencode-ai``'s ``opencode acp`` on a scripted model, through our HTTP API."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_model import Model
from tests.served import ROOT, Served, serve

OPENCODE = ROOT / "tests" / "clients" / "node_modules" / ".bin" / "opencode"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    assert OPENCODE.exists(), "make clients"
    with Model() as model:
        config = {
            "model": "scripted/scripted",
            "permission": {"bash": "ask"},
            "provider": {
                "scripted": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "Scripted",
                    "options": {"baseURL": model.url, "apiKey": "none"},
                    "models": {"scripted": {"name": "Scripted", "limit": {"context": 100000, "output": 8000}}},
                }
            },
        }
        folder = tmp_path / ".config" / "opencode"
        folder.mkdir(parents=True)
        (folder / "opencode.json").write_text(json.dumps(config))
        settings = tmp_path / "trunkline.toml"
        settings.write_text(
            f"[agents.oc]\ncommand = [{json.dumps(str(OPENCODE))}, 'acp']\n"
            "[agents.oc.env]\nOPENCODE_DISABLE_MODELS_FETCH = '1'\nOPENCODE_DISABLE_AUTOUPDATE = '1'\n"
        )
        async with serve(tmp_path, "--config", str(settings)) as served:
            yield served


def parts(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [part for part in message["parts"] if part["type"] == kind]


async def test_text_tool_permission_cancel_and_load(served: Served) -> None:
    session = await served.session()

    # text
    answer = (await served.post(session, "hello there")).json()
    assert answer["info"]["role"] == "assistant" and answer["info"]["finish"] == "stop", answer
    assert answer["info"]["tokens"]["input"] > 0
    assert parts(answer, "text")[-1]["text"].startswith("You wrote: hello there")

    # a tool with permission
    async with served.events() as frames:
        await served.send(session, "run: echo from-the-tool")
        asked = await frames.until("permission.asked", sessionID=session)
        request = asked["properties"]["id"]
        assert [r["id"] for r in (await served.http.get("/permission")).json()] == [request]
        reply = await served.http.post(f"/permission/{request}/reply", json={"reply": "once"})
        assert reply.status_code == 200 and reply.json() is True
        await frames.until("permission.replied", requestID=request)
        await frames.until("session.idle", sessionID=session)
    messages = (await served.http.get(f"/session/{session}/message")).json()
    [tool] = [part for message in messages for part in parts(message, "tool")]
    assert tool["tool"] == "bash" and tool["state"]["status"] == "completed"
    assert "from-the-tool" in tool["state"]["output"]
    assert "from-the-tool" in parts(messages[-1], "text")[-1]["text"]

    # cancel
    async with served.events() as frames:
        await served.send(session, "words 5000 every 20")
        await frames.until("message.part.delta", sessionID=session)
        assert (await served.http.post(f"/session/{session}/abort")).json() is True
        await frames.until("session.idle", sessionID=session)
    messages = (await served.http.get(f"/session/{session}/message")).json()
    assert messages[-1]["info"]["error"]["name"] == "MessageAbortedError"
    assert parts(messages[-1], "text")[0]["text"].startswith("w0 w1")

    # the agent is loaded again after a restart of the gateway, and our history is the truth
    before = [(m["info"]["id"], [p["id"] for p in m["parts"]]) for m in messages]
    await served.stop()
    await served.start()
    answer = (await served.post(session, "still there?")).json()
    assert parts(answer, "text")[-1]["text"].startswith("You wrote: still there?"), answer
    messages = (await served.http.get(f"/session/{session}/message")).json()
    assert [(m["info"]["id"], [p["id"] for p in m["parts"]]) for m in messages][: len(before)] == before
    users = [m for m in messages if m["info"]["role"] == "user"]
    assert len(users) == 4 and len(messages) > len(before)


async def test_two_prompts_while_busy_are_two_turns(served: Served) -> None:
    """OpenCode's agent would merge a second prompt into the running turn; the queue here is ours."""
    session = await served.session()
    async with served.events() as frames:
        await served.send(session, "words 20 every 20")
        await frames.until("message.part.delta", sessionID=session)
        await served.send(session, "second")
        third = (await served.post(session, "third")).json()
    assert parts(third, "text")[-1]["text"].startswith("You wrote: third")
    told = await served.told(session)
    assert [line.split("\n")[0][:18] for line in told] == [
        "user: words 20 eve",
        "assistant: w0 w1 w",
        "user: second",
        "assistant: You wro",
        "user: third",
        "assistant: You wro",
    ]
