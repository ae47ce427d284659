"""Permission rules of the settings, through a whole gateway: who is asked, and what each protocol shows instead."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.config import SettingsError, load_settings
from tests.acp.clients.raw import client
from tests.opencode.terminal import attached
from tests.served import Frames, Served, serve

pytestmark = pytest.mark.usefixtures("npm_clients")

DEMO = [sys.executable, "-m", "adapters.acp.demo"]
Json = dict[str, Any]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Three agents with the same tool (kind ``execute``) and other rules for it."""
    lines: list[str] = []
    for name, rules in {"allows": {"execute": "allow"}, "denies": {"*": "deny"}, "asks": {"edit": "allow"}}.items():
        table = ", ".join(f"{json.dumps(kind)} = {json.dumps(rule)}" for kind, rule in rules.items())
        lines += [f"[agents.{name}]", f"command = {json.dumps(DEMO)}", f"permissions = {{ {table} }}"]
    config = tmp_path / "trunkline.toml"
    config.write_text("\n".join(lines))
    async with serve(tmp_path, "--config", str(config)) as one:
        yield one


RULES = pytest.mark.parametrize(
    ("agent", "rule", "status"), [("allows", "allow", "completed"), ("denies", "deny", "failed")]
)


@RULES
@pytest.mark.parametrize("version", [1, 2])
async def test_acp(served: Served, version: int, agent: str, rule: str, status: str) -> None:
    """No request, no dialog that is withdrawn at once; the tool call says which rule it was, live and replayed."""
    async with client(served.url, version, f"/acp/{agent}") as one:
        await one.new(served.workspace)
        await one.turn("ask Deploy")
        assert {m["method"] for m in one.got if "method" in m} <= {"session/update", "_trunkline/pending"}
        states = [u["state"] for u in one.updates("state_update")]
        assert "requires_action" not in states
        ruled = [u for u in one.updates("tool_call", "tool_call_update") if (u.get("_meta") or {}).get("trunkline")]
        assert ruled[0]["_meta"]["trunkline"] == {"permission": {"rule": rule}}
        assert one.updates("tool_call_update")[-1]["status"] == status
        async with client(served.url, version, f"/acp/{agent}") as late:
            if version == 1:
                await late.call("session/load", sessionId=one.session, cwd="/", mcpServers=[])
            else:
                await late.call("session/resume", sessionId=one.session, cwd="/", replayFrom={"type": "start"})
            [call] = late.updates("tool_call", "tool_call_update")
            assert call["_meta"]["trunkline"] == {"permission": {"rule": rule}} and call["status"] == status


@RULES
async def test_opencode(served: Served, agent: str, rule: str, status: str) -> None:
    session = await served.session()
    model = {"providerID": agent, "modelID": "default"}
    async with served.events() as frames:
        answer = await served.post(session, "ask Deploy", model=model)
        assert answer.status_code == 200, answer.text
        await frames.until("session.idle", sessionID=session)
    assert not [event["type"] for _, event in frames.seen if event["type"].startswith("permission.")]
    assert (await served.http.get("/permission")).json() == []
    [tool] = [part for part in answer.json()["parts"] if part["type"] == "tool"]
    assert tool["state"]["metadata"]["permission"] == rule
    assert tool["state"]["status"] == {"completed": "completed", "failed": "error"}[status]


@RULES
async def test_agui(served: Served, agent: str, rule: str, status: str) -> None:
    """One run to its end, without an interrupt."""
    body: Json = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "ask Deploy"}]}
    body |= {"tools": [], "context": [], "state": {}, "forwardedProps": {}, "protocolVersion": "1.0"}
    async with served.http.stream("POST", f"/agui/{agent}", json=body) as stream:
        frames = Frames(stream)
        while (event := await frames.next())["type"] not in ("RUN_FINISHED", "RUN_ERROR"):
            pass
    assert event["type"] == "RUN_FINISHED" and (event.get("outcome") or {"type": "success"})["type"] == "success"
    events = [event for _, event in frames.seen]
    [told] = [e["value"] for e in events if e["type"] == "CUSTOM" and e["name"].endswith("request_settled")]
    assert told["rule"] == rule and told["outcome"]["type"] == "selected"
    patches = [op for e in events if e["type"] == "ACTIVITY_DELTA" for op in e["patch"]]
    assert {"op": "add", "path": "/permission", "value": rule} in patches
    [result] = [e for e in events if e["type"] == "TOOL_CALL_RESULT"]
    assert result["metadata"]["acp"]["status"] == status


async def test_another_kind_is_asked_for(served: Served) -> None:
    async with client(served.url, path="/acp/asks") as one:
        await one.new(served.workspace)
        await one.turn("ask Deploy")
        assert [m for m in one.got if m.get("method") == "session/request_permission"]


async def test_a_question_is_never_answered_by_a_rule(served: Served) -> None:
    async with client(served.url, path="/acp/denies") as one:
        await one.new(served.workspace)
        await one.turn("form Your name?")
        assert [m for m in one.got if m.get("method") == "elicitation/create"]
        assert "accept fine" in one.text()


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('{ edti = "allow" }', "agents.a.permissions: 'edti' is no kind of tool (there are: read, edit,"),
        ('{ edit = "always" }', "agents.a.permissions.edit: should be 'allow', 'ask' or 'deny'"),
        ('"allow"', "agents.a.permissions: should be a valid dictionary"),
    ],
)
def test_settings_that_are_wrong(tmp_path: Path, table: str, told: str) -> None:
    config = tmp_path / "trunkline.toml"
    config.write_text(f"[agents.a]\ncommand = ['x']\npermissions = {table}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(config, environ={})
    [problem] = caught.value.problems
    assert told in problem


async def test_opencodes_terminal_client_shows_no_dialog(served: Served, tmp_path: Path) -> None:
    async with attached(served, tmp_path / "home") as terminal:
        await terminal.until("Ask anything")
        await terminal.enter("ask Deploy")
        seen: list[str] = []
        async with asyncio.timeout(60):
            while "Deploy" not in (shown := await terminal.screen()).replace("ask Deploy", ""):
                seen.append(shown)
                await asyncio.sleep(0.02)
        seen.append(shown)
        assert not [shown for shown in seen if "Permission required" in shown]
