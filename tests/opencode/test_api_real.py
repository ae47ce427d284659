"""Version 2 beside the real server: the same steps on both, and the npm SDK's client of version 2."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.opencode.api_support import Json, history
from tests.opencode.terminal import CLIENTS, OPENCODE, environment, real_server, run
from tests.opencode.test_api_translate import check, valid
from tests.scripted_model import Model
from tests.served import serve

pytestmark = pytest.mark.usefixtures("npm_clients")

SLOW = "words 40 every 100"


class Side:
    """One of the two servers, on the scripted model. ``steps``: what was seen, by name."""

    def __init__(self, url: str, model: Json) -> None:
        self.http = httpx.AsyncClient(base_url=url, timeout=60)
        self.model = model
        self.steps: Json = {}

    async def new(self, **body: Any) -> str:
        answer = await self.http.post("/api/session", json={"model": self.model, **body})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["data"]["id"])

    async def prompt(self, sid: str, text: str, **body: Any) -> httpx.Response:
        return await self.http.post(f"/api/session/{sid}/prompt", json={"prompt": {"text": text}, **body})

    async def idle(self, sid: str) -> None:
        """The real server's ``wait`` answers 503, and no event says it: ask again, and once more."""
        quiet = 0
        async with asyncio.timeout(90):
            while quiet < 3:
                active = (await self.http.get("/api/session/active")).json()["data"]
                quiet = 0 if sid in active else quiet + 1
                await asyncio.sleep(0.1)

    async def warm(self) -> None:
        """The real server takes a prompt before it has read its own models, and then never answers it."""
        async with asyncio.timeout(300):
            while True:
                models = (await self.http.get("/api/model")).json()["data"]
                if self.model["providerID"] in [model["providerID"] for model in models]:
                    sid = await self.new()
                    await self.prompt(sid, "warm")
                    try:
                        await self.until(sid, "step.ended", seconds=45)
                        return
                    except TimeoutError:
                        pass
                await asyncio.sleep(0.2)

    async def until(self, sid: str, kind: str, count: int = 1, seconds: float = 90) -> list[Json]:
        async with asyncio.timeout(seconds):
            while True:
                found = await history(self.http, sid)
                if sum(event["type"] == f"session.next.{kind}" for event in found) >= count:
                    return found
                await asyncio.sleep(0.05)

    async def said(self, sid: str) -> list[str]:
        """The messages as lines, oldest first."""
        found = await self.http.get(f"/api/session/{sid}/message", params={"order": "asc", "limit": 200})
        lines = []
        for message in found.json()["data"]:
            valid("SessionMessage", message)
            if message["type"] == "user":
                lines.append(f"user: {message['text']}")
            elif message["type"] == "assistant":
                error = message.get("error", {}).get("message", "")
                lines.append(f"assistant: {message.get('finish', 'open')} {error}".strip())
        return lines


@asynccontextmanager
async def both(folder: Path) -> AsyncIterator[list[Side]]:
    """Real ``opencode serve``, and ours with ``opencode acp`` behind it."""
    with Model() as model:
        options = {"baseURL": model.url, "apiKey": "none"}
        models = {"scripted": {"name": "Scripted", "limit": {"context": 100000, "output": 8000}}}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Scripted", "options": options, "models": models}
        config = {"model": "scripted/scripted", "permission": {"bash": "ask"}, "provider": {"scripted": provider}}
        (folder / "real").mkdir()
        (folder / "ours" / ".config" / "opencode").mkdir(parents=True)
        (folder / "ours" / ".config" / "opencode" / "opencode.json").write_text(json.dumps(config))
        settings = folder / "trunkline.toml"
        settings.write_text(
            f"[agents.oc]\ncommand = [{json.dumps(str(OPENCODE))}, 'acp']\n"
            "[agents.oc.env]\nOPENCODE_DISABLE_MODELS_FETCH = '1'\nOPENCODE_DISABLE_AUTOUPDATE = '1'\n"
        )
        with real_server(folder / "real", config) as url:
            async with serve(folder / "ours", "--config", str(settings)) as served:
                sides = [
                    Side(url, {"providerID": "scripted", "id": "scripted"}),
                    Side(served.url, {"providerID": "oc", "id": "default"}),
                ]
                try:
                    await sides[0].warm()
                    yield sides
                finally:
                    for side in sides:
                        await side.http.aclose()


def same(sides: list[Side]) -> None:
    real, ours = sides
    assert set(real.steps) == set(ours.steps)
    for name, seen in real.steps.items():
        assert ours.steps[name] == seen, f"{name}: the real server {seen}, ours {ours.steps[name]}"


async def test_delivery_idempotency_and_interrupt_as_the_real_server(tmp_path: Path) -> None:
    async with both(tmp_path) as sides:
        for side in sides:
            await delivery(side)
            await once(side)
            await interrupted(side)
        same(sides)


async def delivery(side: Side) -> None:
    sid = await side.new()
    told = (await side.prompt(sid, "hello")).json()["data"]
    valid("SessionInputAdmitted", told)
    side.steps["admission"] = {key: told[key] for key in ("delivery", "prompt", "sessionID")} | {"sessionID": 0}
    await side.until(sid, "step.ended")
    await side.prompt(sid, "hello again", delivery="queue")
    await side.until(sid, "step.ended", 2)
    side.steps["idle: both start at once"] = await side.said(sid)

    await side.prompt(sid, SLOW)
    await side.until(sid, "text.started", 3)
    for text, how in (("q1", "queue"), ("s1", "steer"), ("q2", "queue"), ("s2", "steer")):
        await side.prompt(sid, text, delivery=how)
    assert sid in (await side.http.get("/api/session/active")).json()["data"]
    side.steps["busy: what waits is not in the list"] = (await side.said(sid))[4:]
    await side.until(sid, "step.ended", 6)
    await side.idle(sid)
    side.steps["busy: steers together, ahead of the queue"] = await side.said(sid)
    for event in await history(side.http, sid):
        check(event)


async def once(side: Side) -> None:
    sid, other = await side.new(), await side.new()
    first = (await side.prompt(sid, "stored", id="msg_once_a", resume=False)).json()["data"]
    side.steps["stored: nothing starts"] = [await side.said(sid), "promotedSeq" in first]
    again = (await side.prompt(sid, "stored", id="msg_once_a", resume=False)).json()["data"]
    side.steps["again: the same record"] = again == first
    refused = []
    for where, text, body in (
        (sid, "other", {}),
        (sid, "stored", {"delivery": "queue"}),
        (other, "stored", {}),
    ):
        answer = await side.prompt(where, text, id="msg_once_a", **body)
        valid("ConflictError", answer.json())
        refused.append((answer.status_code, answer.json()["_tag"]))
    side.steps["another content, delivery or session"] = refused
    await side.prompt(sid, "stored", id="msg_once_a")
    await side.until(sid, "step.ended")
    later = (await side.prompt(sid, "stored", id="msg_once_a")).json()["data"]
    side.steps["promoted"] = later.pop("promotedSeq") > first["admittedSeq"], later == first
    await side.idle(sid)
    side.steps["sent again it starts, once"] = await side.said(sid)
    mine = "ses_000000000000" + "a" * 14
    made = [(await side.http.post("/api/session", json={"id": mine})) for _ in range(2)]
    side.steps["a known session"] = [m.status_code for m in made], made[0].json() == made[1].json()


async def interrupted(side: Side) -> None:
    sid = await side.new()
    path = f"/api/session/{sid}/interrupt"
    side.steps["interrupt idle"] = (await side.http.post(path)).status_code
    await side.prompt(sid, SLOW)
    await side.until(sid, "text.started")
    await side.prompt(sid, "queued", delivery="queue")
    await side.prompt(sid, "steered")
    side.steps["interrupt"] = (await side.http.post(path)).status_code
    events = await side.until(sid, "step.failed")
    await side.idle(sid)
    side.steps["interrupted: the last events"] = [e["type"] for e in events[-2:]]
    side.steps["interrupted: the list"] = await side.said(sid)
    await side.prompt(sid, "after")
    await side.until(sid, "step.ended", 2)
    await side.idle(sid)
    side.steps["pending: steers with the next prompt, then the queue"] = await side.said(sid)


# --- errors --------------------------------------------------------------------------------------------------------

ASKED: list[tuple[str, str, Any]] = [
    ("GET", "/api/session/ses_nope", None),
    ("GET", "/api/session/nope", None),
    ("POST", "/api/session/ses_nope/prompt", {"prompt": {"text": "x"}}),
    ("POST", "/api/session/SID/prompt", {}),
    ("POST", "/api/session/SID/prompt", {"prompt": {}}),
    ("POST", "/api/session/SID/prompt", b""),
    ("POST", "/api/session/SID/interrupt", None),
    ("POST", "/api/session/ses_nope/interrupt", None),
    ("GET", "/api/session/SID/message", None),
    ("GET", "/api/session/SID/message?cursor=zz", None),
    ("GET", "/api/session/SID/message/msg_nope", None),
    ("GET", "/api/session/SID/message/nope", None),
    ("GET", "/api/session/SID/message?limit=0", None),
    ("GET", "/api/session/SID/message?limit=201", None),
    ("GET", "/api/session/SID/message?order=up", None),
    ("GET", "/api/session/SID/context", None),
    ("GET", "/api/session/SID/history", None),
    ("GET", "/api/session/SID/history?limit=101", None),
    ("GET", "/api/session/SID/history?after=-1", None),
    ("GET", "/api/session/SID/history?after=9999999999", None),
    ("GET", "/api/session/SID/event?after=-1", None),
    ("GET", "/api/session/ses_nope/event", None),
    ("GET", "/api/session?cursor=garbage", None),
    ("GET", "/api/session?order=up", None),
    ("GET", "/api/session?search=zzzzz", None),
    ("POST", "/api/session", b""),
    ("POST", "/api/session/SID/agent", {}),
    ("POST", "/api/session/SID/model", {"model": {"id": "x"}}),
    ("GET", "/api/session/SID/permission", None),
    ("GET", "/api/session/SID/permission/per_x", None),
    ("GET", "/api/session/SID/permission/x", None),
    ("POST", "/api/session/SID/permission/per_x/reply", {"reply": "once"}),
    ("POST", "/api/session/SID/permission/per_x/reply", {}),
    ("GET", "/api/session/SID/question", None),
    ("POST", "/api/session/SID/question/que_x/reply", {"answers": [["a"]]}),
    ("POST", "/api/session/SID/question/que_x/reply", {}),
    ("POST", "/api/session/SID/question/que_x/reject", None),
    ("GET", "/api/permission/saved", None),
    ("DELETE", "/api/permission/saved/psv_x", None),
    ("GET", "/api/provider/nope", None),
    ("GET", "/api/health", None),
    ("GET", "/api/session/active", None),
]

# Answered otherwise than by the real server, on purpose: status there, status here, why.
OTHERWISE: dict[tuple[str, str], tuple[int, int, str]] = {
    ("POST", "/api/session/SID/prompt {bad"): (500, 400, "malformed JSON is the client's mistake"),
    ("POST", "/api/session/SID/wait "): (503, 204, "ours really waits"),
    ("POST", "/api/session/SID/revert/clear "): (204, 501, "no agent takes anything back"),
    ("GET", "/api/nope "): (200, 404, "there the web app's page"),
    ("PUT", "/api/session {}"): (200, 405, "there the web app's page"),
}


async def test_answers_and_errors_as_the_real_server(tmp_path: Path) -> None:
    async with both(tmp_path) as sides:
        for side in sides:
            sid = await side.new()
            for method, path, body in ASKED:
                content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
                kind = {"content-type": "application/json"} if content is not None else {}
                answer = await side.http.request(method, path.replace("SID", sid), content=content, headers=kind)
                told = answer.json() if answer.content else None
                shown = json.loads(json.dumps(told).replace(sid, "SID"))
                side.steps[f"{method} {path} {body}"] = (answer.status_code, shown)
        same(sides)
        for (method, asked), (there, here, why) in OTHERWISE.items():
            path, _, text = asked.partition(" ")
            for side, status in zip(sides, (there, here), strict=True):
                sid = await side.new()
                kind = {"content-type": "application/json"} if text else {}
                answer = await side.http.request(method, path.replace("SID", sid), content=text.encode(), headers=kind)
                assert answer.status_code == status, (method, asked, why, answer.text[:200])


async def test_a_tool_with_permission_has_the_events_of_the_real_server(tmp_path: Path) -> None:
    """The order of types, but for where the text before the tool ends: there after the call, here before it."""
    async with both(tmp_path) as sides:
        for side in sides:
            sid = await side.new()
            await side.prompt(sid, "run: echo from-the-tool")
            async with asyncio.timeout(60):
                while not (found := (await side.http.get(f"/api/session/{sid}/permission")).json()["data"]):
                    await asyncio.sleep(0.05)
            [asked] = found
            valid("PermissionV2Request", asked)
            side.steps["asked"] = {key: asked[key] for key in ("action", "resources")}
            reply = f"/api/session/{sid}/permission/{asked['id']}/reply"
            side.steps["reply"] = (await side.http.post(reply, json={"reply": "once"})).status_code
            side.steps["late"] = (await side.http.post(reply, json={"reply": "once"})).status_code
            events = await side.until(sid, "step.ended", 2)
            for event in events:
                check(event)
            ours = ("pending.updated", "tool.progress", "text.ended", "text.started")
            kinds = [event["type"].removeprefix("session.next.") for event in events]
            side.steps["events"] = [kind for kind in kinds if kind not in ours]
            called = next(e["data"] for e in events if e["type"] == "session.next.tool.called")
            side.steps["called"] = (called["tool"], called["input"]["command"])
            listed = (await side.http.get(f"/api/session/{sid}/message?order=asc")).json()["data"]
            tools = [
                part for m in listed if m["type"] == "assistant" for part in m["content"] if part["type"] == "tool"
            ]
            side.steps["tools"] = [(t["name"], t["state"]["status"], t["state"]["input"]["command"]) for t in tools]
            assert "from-the-tool" in json.dumps(tools)
        same(sides)


# --- the SDK -------------------------------------------------------------------------------------------------------


async def test_the_sdks_client_of_version_2(tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node is not None
    async with serve(tmp_path) as served:
        env = environment(tmp_path / "home")
        code, out, err = await run(node, "sdk_v2.mjs", served.url, str(served.workspace), cwd=CLIENTS, env=env)
    assert code == 0, err
    seen = json.loads(out)
    assert seen["first"] == ["steer", "msg_first", True, True] and seen["conflict"] == "ConflictError"
    assert seen["listed"] == [True]
    assert seen["waiting"] == ["msg_steered", "msg_queued", "msg_gone"] and seen["revoked"] == "revoked"
    assert seen["active"] is True and seen["held"] == ["msg_steered", "msg_queued"]
    assert seen["users"] == [
        "say hello sdk",
        "ask Deploy",
        "stream 100000 20",
        "say steered",
        "say last",
        "say queued",
    ]
    assert seen["texts"][0] == ["hello sdk"] and "completed" in seen["texts"][1] and seen["texts"][-1] == ["queued"]
    assert seen["failed"] == ["Provider turn interrupted"]
    assert seen["same"] is True and seen["missing"] == "SessionNotFoundError"
    assert seen["sessions"] == [True] and seen["health"] is True
