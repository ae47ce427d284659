"""A real agent behind the gateway: npm ``@google/gemini-cli`` without a key, and what every protocol says of that.

No network: it gets as far as ``initialize``, and refuses to open a session.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.agents import AgentConfig
from tests.acp.clients.raw import RpcError, client
from tests.served import ROOT, Served, serve

pytestmark = pytest.mark.usefixtures("npm_clients")

GEMINI = ROOT / "tests" / "clients" / "node_modules" / ".bin" / "gemini"
METHODS = ["oauth-personal", "gemini-api-key", "vertex-ai", "gateway"]
MISSING = "API key is missing"
Json = dict[str, Any]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    assert GEMINI.exists(), "make clients"
    config = tmp_path / "trunkline.toml"
    config.write_text(f"[agents.gemini]\ncommand = [{json.dumps(str(GEMINI))}, '--acp']\npass_env = []\n")
    async with serve(tmp_path, "--config", str(config)) as one:
        yield one


async def test_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.acp.agent import probe

    monkeypatch.setenv("HOME", str(tmp_path))
    found = await probe(AgentConfig(name="gemini", command=[str(GEMINI), "--acp"]))
    assert found["name"] == "Gemini CLI" and found["protocol"] == "ACP v1"
    assert found["login"] == METHODS and "load" in found["can"]  # type: ignore[operator]


@pytest.mark.parametrize("version", [1, 2])
async def test_acp(served: Served, version: int) -> None:
    async with client(served.url, version) as one:
        with pytest.raises(RpcError) as caught:
            await one.new(served.workspace)
        assert caught.value.code == -32000 and MISSING in str(caught.value)
        name = "id" if version == 1 else "methodId"
        assert [method[name] for method in caught.value.data["authMethods"]] == METHODS
        with pytest.raises(RpcError) as caught:
            await one.call("authenticate" if version == 1 else "auth/login", methodId="nonsense")
        assert caught.value.code == -32602 and caught.value.data["methods"] == METHODS


async def test_opencode(served: Served) -> None:
    session = await served.session()
    async with served.events() as frames:
        answer = await served.post(session, "hello")
        assert answer.status_code == 502 and MISSING in answer.text, answer.text
        await served.send(session, "hello")
        told = (await frames.until("session.error", sessionID=session))["properties"]["error"]
        assert MISSING in told["data"]["message"]


async def test_agui(served: Served) -> None:
    body: Json = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "hello"}]}
    body |= {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
    events: list[Json] = []
    async with served.http.stream("POST", "/agui/gemini", json=body) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                events.append(json.loads(line[5:]))
    last = events[-1]
    assert last["type"] == "RUN_ERROR" and last["code"] == "auth_required" and MISSING in last["message"]
