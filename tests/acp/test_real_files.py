"""``opencode acp`` writes a file through its client (``fs``), and a permission rule answers before anybody is asked."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acp.clients.raw import V1, client
from tests.scripted_model import Model
from tests.scripted_server import Call, Words, text_of
from tests.served import ROOT, serve

pytestmark = pytest.mark.usefixtures("npm_clients")

OPENCODE = ROOT / "tests" / "clients" / "node_modules" / ".bin" / "opencode"
Json = Any


class Writer(Model):
    """``write: PATH TEXT`` calls the agent's tool of that name."""

    def answer(self, body: Json, steps: list[Words | Call]) -> Iterator[tuple[str, Json]]:
        newest = [text_of(m["content"]) for m in body["messages"] if m["role"] == "user"][-1]
        if not newest.startswith("write: ") or not body.get("tools") or body["messages"][-1]["role"] == "tool":
            yield from super().answer(body, steps)
            return
        path, text = newest.removeprefix("write: ").strip().split(" ", 1)
        for event, value in super().answer(body, [Call("write", "")]):
            if isinstance(value, dict) and value["choices"] and "tool_calls" in value["choices"][0]["delta"]:
                [call] = value["choices"][0]["delta"]["tool_calls"]
                call["function"]["arguments"] = json.dumps({"filePath": path, "content": text})
            yield event, value


def settings(folder: Path, model: Writer, files: str, rule: str) -> Path:
    config = {
        "model": "scripted/scripted",
        "permission": {"edit": "ask"},
        "provider": {
            "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Scripted",
                "options": {"baseURL": model.url, "apiKey": "none"},
                "models": {"scripted": {"name": "Scripted", "limit": {"context": 100000, "output": 8000}}},
            }
        },
    }
    home = folder / ".config" / "opencode"
    home.mkdir(parents=True)
    (home / "opencode.json").write_text(json.dumps(config))
    path = folder / "trunkline.toml"
    path.write_text(
        f"[agents.oc]\ncommand = [{json.dumps(str(OPENCODE))}, 'acp']\nfs = {files!r}\n"
        f"permissions = {{ edit = {rule!r}, '*' = 'ask' }}\n"
        "[agents.oc.env]\nOPENCODE_DISABLE_MODELS_FETCH = '1'\nOPENCODE_DISABLE_AUTOUPDATE = '1'\n"
    )
    return path


async def test_a_write_goes_to_the_client_and_a_rule_allows_it(tmp_path: Path) -> None:
    can = {**V1["clientCapabilities"], "fs": {"readTextFile": True, "writeTextFile": True}}
    with Writer() as model:
        config = settings(tmp_path, model, "client", "allow")
        async with (
            serve(tmp_path, "--config", str(config)) as served,
            client(served.url, hello={**V1, "clientCapabilities": can}) as one,
        ):
            one.answer = lambda message: {}
            await one.new(served.workspace)
            path = served.workspace / "out.txt"
            await one.turn(f"write: {path} from the model")
            requests = [m for m in one.got if "id" in m and "method" in m]
            assert [m["method"] for m in requests] == ["fs/write_text_file"]  # nobody was asked for permission
            assert requests[0]["params"]["path"] == str(path)
            assert requests[0]["params"]["content"] == "from the model"
            ruled = [u for u in one.updates("tool_call_update") if (u.get("_meta") or {}).get("trunkline")]
            assert ruled[0]["_meta"]["trunkline"] == {"permission": {"rule": "allow"}}
            done = one.updates("tool_call_update")[-1]
            assert done["toolCallId"] == ruled[0]["toolCallId"] and done["status"] == "completed"


@pytest.mark.parametrize(("rule", "written"), [("allow", True), ("deny", False)])
async def test_a_write_by_the_gateway(tmp_path: Path, rule: str, written: bool) -> None:
    with Writer() as model:
        config = settings(tmp_path, model, "gateway", rule)
        async with serve(tmp_path, "--config", str(config)) as served:
            session = await served.session()
            path = served.workspace / "out.txt"
            answer = (await served.post(session, f"write: {path} from the model")).json()
            messages = (await served.http.get(f"/session/{session}/message")).json()
            [tool] = [p for m in messages for p in m["parts"] if p["type"] == "tool"]
            assert tool["state"]["metadata"]["permission"] == rule, answer
            assert tool["state"]["status"] == ("completed" if written else "error")
            assert path.exists() is written and (not written or path.read_text() == "from the model")
            assert (await served.http.get("/permission")).json() == []
