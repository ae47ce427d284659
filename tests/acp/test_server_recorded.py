"""What real v1 agents were recorded saying, through the gateway to clients of both versions.

All that the clients get is checked against the SDK's strict schemas; v1 clients get it as it was.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acp.clients.raw import client
from tests.served import serve

pytestmark = pytest.mark.usefixtures("npm_clients")

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "acp"
REPLAYER = Path(__file__).parent / "clients" / "replayer.py"
Json = dict[str, Any]


def plain(update: Json) -> bool:
    """Text that may come joined with its neighbours."""
    return update["sessionUpdate"].endswith("_chunk")


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_recorded(tmp_path: Path, name: str) -> None:
    recorded = GOLDEN / f"recorded_{name}.jsonl"
    said = [json.loads(line) for line in recorded.read_text().splitlines()]
    updates = [m["params"]["update"] for m in said if m.get("method") == "session/update"]
    asked = [m for m in said if m.get("method") == "session/request_permission"]
    agent = f"{name}={sys.executable} {REPLAYER} {recorded}"
    async with serve(tmp_path, "--agent", agent) as served, client(served.url) as one, client(served.url, 2) as two:
        await two.new(served.workspace)
        one.session = two.session
        await one.call("session/load", sessionId=one.session, cwd="/", mcpServers=[])
        begun = len(one.got)
        await two.turn("go")
        # the very end of it, told to the other client too
        await one.until(lambda _: one.text() == two.text(), begun)
        children = {u["sessionId"] for u in one.updates("subagent_update")}
        names = {u["sessionId"] for u in updates if u["sessionUpdate"] == "subagent_update"}
        assert len(children) == len(names)
        # v1 to v1: every update that is not text and names no session, as it was
        kept = [u for u in updates if not plain(u) and "session" not in u["sessionUpdate"].replace("session_info", "")]
        kept = [u for u in kept if u["sessionUpdate"] not in ("subagent_update", "session_message")]
        got = one.updates(after=begun)
        missing = [u for u in kept if u not in got]
        # titles that a person's first prompt, or the same title before, made no news of
        assert all(u["sessionUpdate"] == "session_info_update" for u in missing), missing
        for kind in ("agent_message_chunk", "agent_thought_chunk"):
            spoken = "".join(u["content"].get("text", "") for u in updates if u["sessionUpdate"] == kind)
            assert sorted(one.text(kind, begun)) == sorted(spoken)
            ids = {u["messageId"] for u in updates if u["sessionUpdate"] == kind}
            assert {u["messageId"] for u in one.updates(kind, after=begun)} == ids
            assert {u["messageId"] for u in two.updates(kind)} == ids
        assert len([m for m in two.got if m.get("method") == "session/request_permission"]) == len(asked)
        # and once more, for who comes later
        async with client(served.url, 2) as late:
            late.session = two.session
            await late.call("session/resume", sessionId=two.session, cwd="/", replayFrom={"type": "start"})
            for session_id in (two.session, *children):
                assert late.text(session=session_id) == two.text(session=session_id)
