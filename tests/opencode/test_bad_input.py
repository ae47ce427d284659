"""Bad values: every route refuses them with a 4xx that says what and where, and nothing changes."""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.core.inputs import AgentAsk
from gateway.core.model import Option
from tests.fake_port import Farm
from tests.opencode.support import Gateway, gateway
from tests.opencode.test_routes import FORM, asking
from tests.opencode.test_stream import YES_NO, settled

LIMIT = 64 * 1024
TEXT = [{"type": "text", "text": "x"}]


def unknown(session_id: str) -> str:
    return session_id[:-4] + "nope"


# method, path ({sid}: a session, {unknown}: none, {per}, {que}: open requests), body, status, what the answer names
BAD: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/session", [], 400, "Expected `object`"),
    ("POST", "/session", {"title": 5}, 400, '["title"]'),
    ("POST", "/session", {"title": "x" * 2000}, 400, '["title"]'),
    ("POST", "/session", {"permission": "x"}, 400, '["permission"]'),
    ("POST", "/session", {"model": {"providerID": "nobody", "id": "x"}}, 404, '["model"]["providerID"]'),
    ("POST", "/session", {"model": {"providerID": "fake"}}, 400, '["model"]["id"]'),
    ("POST", "/session", {"parentID": "{unknown}"}, 404, "{unknown}"),
    ("POST", "/session", {"parentID": "{sid}"}, 501, '["parentID"]'),
    ("POST", "/session?directory=/etc", {}, 403, "/etc"),
    ("POST", "/session?directory=relative", {}, 403, "relative"),
    ("POST", "/session?directory={work}/missing", {}, 400, "missing"),
    ("POST", "/session?directory={work}/..", {}, 403, ".."),
    ("POST", "/session?directory=%00", {}, 403, "not a path"),
    ("GET", "/session?limit=abc", None, 400, '["limit"]'),
    ("GET", "/session?limit=-1", None, 400, '["limit"]'),
    ("GET", "/session?limit=1e99", None, 400, '["limit"]'),
    ("GET", "/session?start=x", None, 400, '["start"]'),
    ("GET", "/session?roots=perhaps", None, 400, '["roots"]'),
    ("GET", "/session?directory=/etc", None, 403, "/etc"),
    ("GET", "/session/status?directory=/etc", None, 403, "/etc"),
    ("GET", "/event?directory=/etc", None, 403, "/etc"),
    ("GET", "/path?directory=/etc", None, 403, "/etc"),
    ("GET", "/config?directory=/etc", None, 403, "/etc"),
    ("GET", "/permission?directory=/etc", None, 403, "/etc"),
    ("GET", "/project/current?directory=/etc", None, 403, "/etc"),
    *[
        (method, f"{path}?directory=/etc", None, 403, "/etc")
        for method in ("GET", "HEAD")
        for path in (
            "/agent /command /vcs /provider /lsp /mcp /question /global/event /session/{sid} /session/{sid}/message "
            "/config/providers /project /global/config /skill"
        ).split()
    ],
    ("POST", "/session/{sid}/abort?directory=/etc", None, 403, "/etc"),
    ("GET", "/agent?directory=/" + "a" * 20_000, None, 403, "20001 characters"),
    ("GET", "/project/nope/directories", None, 404, "nope"),
    ("GET", "/session/nope", None, 400, '["sessionID"]'),
    ("GET", "/session/{unknown}", None, 404, "{unknown}"),
    ("GET", "/session/ses_%00%ff", None, 404, "ses_"),
    ("PATCH", "/session/{unknown}", {"title": "x"}, 404, "{unknown}"),
    ("PATCH", "/session/{sid}", {"title": 1}, 400, '["title"]'),
    ("PATCH", "/session/{sid}", {"title": None}, 400, '["title"]'),
    ("PATCH", "/session/{sid}", {"time": {"archived": "x"}}, 400, '["time"]["archived"]'),
    ("PATCH", "/session/{sid}", {"time": {"archived": -1}}, 400, '["time"]["archived"]'),
    ("PATCH", "/session/{sid}", {"time": {"archived": 10**400}}, 400, '["time"]["archived"]'),
    ("PATCH", "/session/{sid}", None, 400, "Expected object"),
    ("DELETE", "/session/{unknown}", None, 404, "{unknown}"),
    ("DELETE", "/session/nope", None, 400, '["sessionID"]'),
    ("POST", "/session/{unknown}/abort", None, 404, "{unknown}"),
    ("GET", "/session/{unknown}/children", None, 404, "{unknown}"),
    ("GET", "/session/{unknown}/todo", None, 404, "{unknown}"),
    ("GET", "/session/{unknown}/diff", None, 404, "{unknown}"),
    ("GET", "/session/{unknown}/message", None, 404, "{unknown}"),
    ("GET", "/session/{sid}/message?limit=abc", None, 400, '["limit"]'),
    ("GET", "/session/{sid}/message?before=eyJpZCI6", None, 400, "before"),
    ("GET", "/session/{sid}/message?limit=2&before=garbage", None, 400, "before"),
    ("GET", "/session/{sid}/message?limit=2&before=%ff", None, 400, "before"),
    ("GET", "/session/{sid}/message/nope", None, 400, '["messageID"]'),
    ("GET", "/session/{sid}/message/msg_nope", None, 404, "msg_nope"),
    ("DELETE", "/session/{sid}/message/msg_nope", None, 404, "msg_nope"),
    ("DELETE", "/session/{sid}/message/nope", None, 400, '["messageID"]'),
    ("POST", "/session/{sid}/command", {}, 400, '["command"]'),
    ("POST", "/session/{sid}/command", {"command": "x", "model": "noslash"}, 400, '["model"]'),
    ("POST", "/permission/nope/reply", {"reply": "once"}, 400, '["requestID"]'),
    ("POST", "/permission/per_nope/reply", {"reply": "once"}, 404, "per_nope"),
    ("POST", "/permission/{per}/reply", {"reply": "bogus"}, 400, '["reply"]'),
    ("POST", "/permission/{per}/reply", {}, 400, '["reply"]'),
    ("POST", "/permission/{per}/reply", {"reply": "once", "message": 1}, 400, '["message"]'),
    ("POST", "/session/{sid}/permissions/nope", {"response": "once"}, 400, '["permissionID"]'),
    ("POST", "/session/{sid}/permissions/{per}", {"response": 1}, 400, '["response"]'),
    ("POST", "/session/{unknown}/permissions/{per}", {"response": "once"}, 404, "{per}"),
    ("POST", "/session/nope/permissions/{per}", {"response": "once"}, 400, '["sessionID"]'),
    ("POST", "/question/nope/reply", {"answers": []}, 400, '["requestID"]'),
    ("POST", "/question/que_nope/reply", {"answers": []}, 404, "que_nope"),
    ("POST", "/question/{que}/reply", {"answers": [[1]]}, 400, '["answers"]'),
    ("POST", "/question/{que}/reply", {"answers": "x"}, 400, '["answers"]'),
    ("POST", "/question/{que}/reply", {}, 400, '["answers"]'),
    ("POST", "/question/{que}/reply", {"answers": [[], []]}, 400, '["answers"]'),
    ("POST", "/question/que_nope/reject", None, 404, "que_nope"),
    ("GET", "/nope/nope", None, 404, "/nope/nope"),
    ("GET", "/api/nope", None, 404, "/api/nope"),
    ("PUT", "/session", {}, 405, "PUT /session"),
    ("DELETE", "/session/{sid}/message", None, 405, "DELETE"),
]
PROMPTS: list[tuple[Any, int, str]] = [
    (None, 400, "Expected object"),
    ({}, 400, '["parts"]'),
    ({"parts": []}, 400, '["parts"]'),
    ({"parts": [{"type": "agent", "name": "x"}]}, 400, '["parts"]'),
    ({"parts": "x"}, 400, '["parts"]'),
    ({"parts": [{"type": "bogus"}]}, 400, '["parts"][0]'),
    ({"parts": [{"text": "x"}]}, 400, '["parts"][0]["type"]'),
    ({"parts": [{"type": "text"}]}, 400, '["parts"][0]["text"]'),
    ({"parts": [{"type": "text", "text": 1}]}, 400, '["parts"][0]["text"]'),
    ({"parts": [{"type": "text", "text": "x", "id": "x"}]}, 400, '["parts"][0]["id"]'),
    ({"parts": [{"type": "file", "mime": "image/png", "url": "x"}]}, 400, '["parts"][0]["url"]'),
    ({"parts": [{"type": "file", "mime": "image/png", "url": "data:image/png;base64,?"}]}, 400, '["parts"][0]["url"]'),
    ({"parts": [{"type": "subtask", "prompt": "x"}]}, 501, '["parts"][0]'),
    *[
        ({"parts": [{"type": "file", "mime": "text/plain", "url": url}]}, status, '["parts"][0]["url"]')
        for url, status in (
            ("javascript:alert(1)", 400),
            ("JavaScript:alert(1)", 400),
            (" javascript:alert(1)", 400),
            ("java\nscript:alert(1)", 400),
            ("vbscript:x", 400),
            ("attachment:///x", 400),
            ("https://[bad", 400),
            ("https://a\nb", 400),
            ("file:///etc/passwd", 403),
            ("FILE:///etc/passwd", 403),
            ("file:/etc/passwd", 403),
            ("file://localhost/etc/passwd", 403),
            ("file:///%65tc/passwd", 403),
            ("file:etc/passwd", 403),
            ("file:///%00", 403),
            ("file://" + "/a" * 5000, 403),
            ("file://other/etc/passwd", 400),
        )
    ],
    *[
        ({"parts": [{"type": "text", "text": "a", "id": part_id}, *TEXT]}, 400, '["parts"][0]["id"]')
        for part_id in ("prt", "prt_/", "prt_a\n", "prt_é", "prt_" + "z" * 120, "prt_a b", "")
    ],
    *[
        ({"parts": [{"type": "text", "text": "a", "id": a}, {"type": "text", "text": "b", "id": b}]}, 400, "rise")
        for a, b in (("prt_2", "prt_1"), ("prt_1", "prt_1"))
    ],
    *[
        ({"parts": TEXT, "messageID": message_id}, 400, "regex")
        for message_id in ("msg_/../x", "msg_a\n", "msg_\0", "msg_a b", "msg_é", "msg_%2F", "msg_?", "msg" + "a" * 129)
    ],
    ({"parts": TEXT, "messageID": "x"}, 400, '["messageID"]'),
    ({"parts": TEXT, "messageID": "msg" + "x" * 200}, 400, '["messageID"]'),
    ({"parts": TEXT, "messageID": 5}, 400, '["messageID"]'),
    ({"parts": TEXT, "delivery": "sometime"}, 400, '["delivery"]'),
    ({"parts": TEXT, "model": {"providerID": "fake"}}, 400, '["model"]["modelID"]'),
    ({"parts": TEXT, "model": {"providerID": "nobody", "modelID": "x"}}, 404, '["model"]["providerID"]'),
    ({"parts": TEXT, "model": {"providerID": "other", "modelID": "x"}}, 409, '["model"]["providerID"]'),
    ({"parts": TEXT, "model": "fake/x"}, 400, '["model"]'),
    ({"parts": TEXT, "agent": "nobody"}, 400, '["agent"]'),
    ({"parts": TEXT, "noReply": "yes"}, 400, '["noReply"]'),
    ({"parts": TEXT, "noReply": True}, 409, "busy"),
    ({"parts": [{"type": "text", "text": "x" * LIMIT}]}, 413, "max_body"),
]
RAW: list[tuple[bytes, str, int, str]] = [
    (b"{not json", "application/json", 400, "JSON"),
    (b'{"parts": NaN}', "application/json", 400, "JSON"),
    *[
        (b'{"parts": [{"type": "text", "text": "' + lone + b'"}]}', "application/json", 400, "surrogate")
        for lone in (
            b"\\ud800",
            b"\\uD800 abc",
            b"\\udc00",
            b"\\udc00 x",
            b"\\ud800\\ud800",
            b"\\ud800\\u0041",
            b"x\\udBFFy",
        )
    ],
    (b'{"parts": [{"type": "text", "text": "\\ud83d\\ude00', "application/json", 400, "truncated"),
    (b'{"parts": [{"type": "text", "text": "\xed\xa0\x80"}]}', "application/json", 400, "JSON"),
    (b'{"parts": ' + b"[" * 5000 + b"]" * 5000 + b"}", "application/json", 400, ""),
    (b'{"x": ' + b"[" * 5000 + b"]" * 5000 + b"}", "application/json", 400, ""),
    (b'{"parts": 1e999}', "application/json", 400, ""),
    (b"\xff\xfe{}", "application/json", 400, "JSON"),
    (b"x", "text/plain", 415, "application/json"),
    (b"parts=x", "application/x-www-form-urlencoded", 415, "application/json"),
    (b"{}", "", 415, "application/json"),
]


class Fixed:
    """A gateway in which nothing is to change: a session in a turn, a permission and a question open."""

    def __init__(self, one: Gateway, names: dict[str, str]) -> None:
        self.one = one
        self.names = names

    def fill(self, value: Any) -> Any:
        text = json.dumps(value)
        for name, found in self.names.items():
            text = text.replace("{" + name + "}", found)
        return json.loads(text)

    async def refused(self, answer: httpx.Response, status: int, names: str, before: object) -> None:
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        if answer.request.method == "HEAD":
            return
        body = answer.json()
        message = body["data"]["message"] if "data" in body else body["message"]
        assert self.fill(names) in message
        assert await self.state() == before

    async def state(self) -> object:
        every = await self.one.http.get("/session?archived=true")
        return self.one.controller.log.position, every.json(), await self.one.messages(self.names["sid"])


async def fixed(one: Gateway, farm: Farm) -> Fixed:
    sid = await asking(one, farm, options=(*YES_NO, Option("a", "Always", "allow_always")))
    farm.port.tell(AgentAsk(agent_ref="r2", title="which", kind="elicitation", schema=FORM))
    await settled(one)
    ids = {r.kind: str(r.id) for _, r in one.controller.requests()}
    names = {"sid": sid, "unknown": unknown(sid), "per": ids["permission"], "que": ids["elicitation"]}
    return Fixed(one, names | {"work": str(one.workspace)})


async def test_bad_values_are_refused_and_change_nothing(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, max_body=LIMIT) as one:
        setting = await fixed(one, farm)
        before = await setting.state()
        for method, path, body, status, names in BAD:
            sent = {} if body is None else {"json": setting.fill(body)}
            answer = await one.http.request(method, setting.fill(path), **sent)
            await setting.refused(answer, status, names, before)


@pytest.mark.parametrize("route", ["message", "prompt_async"])
async def test_bad_prompts_are_refused_and_change_nothing(tmp_path: Path, route: str) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, max_body=LIMIT) as one:
        setting = await fixed(one, farm)
        before = await setting.state()
        path = f"/session/{setting.names['sid']}/{route}"
        for body, status, names in PROMPTS:
            answer = await one.http.post(path, **({} if body is None else {"json": body}))
            await setting.refused(answer, status, names, before)
        for data, kind, status, names in RAW:
            answer = await one.http.post(path, content=data, headers={"content-type": kind} if kind else {})
            await setting.refused(answer, status, names, before)
        for session_id, status in ((setting.names["unknown"], 404), ("nope", 400)):
            answer = await one.http.post(f"/session/{session_id}/{route}", json={"parts": TEXT})
            await setting.refused(answer, status, session_id, before)


@pytest.mark.parametrize(
    "path", ["/session", "/session/{sid}/command", "/permission/{per}/reply", "/question/{que}/reply"]
)
async def test_bodies_that_are_no_json_are_refused_everywhere(tmp_path: Path, path: str) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, max_body=LIMIT) as one:
        setting = await fixed(one, farm)
        before = await setting.state()
        for data, kind, status, names in [*RAW, (b" " * (LIMIT + 1), "application/json", 413, "max_body")]:
            field = {"/session": b'"permission"'}.get(path, b'"parts"')
            data, names = data.replace(b'"parts"', field), names if field != b'"parts"' else ""
            headers = {"content-type": kind} if kind else {}
            answer = await one.http.post(setting.fill(path), content=data, headers=headers)
            await setting.refused(answer, status, names, before)


LONG = "x" * 20_000


async def test_what_is_long_is_cut_where_it_is_named(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        for method, path in (
            ("GET", f"/session/ses_{LONG}"),
            ("GET", f"/session/{LONG}"),
            ("DELETE", f"/session/ses_{LONG}"),
            ("GET", f"/session/{sid}/message/msg_{LONG}"),
            ("DELETE", f"/session/{sid}/message/msg_{LONG}"),
            ("GET", f"/session/{sid}/message/{LONG}"),
            ("POST", f"/question/que_{LONG}/reject"),
            ("GET", f"/project/{LONG}/directories"),
        ):
            answer = await one.http.request(method, path)
            assert answer.status_code in (400, 404) and len(answer.content) < 500, path
        body = {"parts": TEXT, "model": {"providerID": "n" * 1000, "modelID": "m"}}
        answer = await one.http.post(f"/session/{sid}/message", json=body)
        assert answer.status_code == 404 and len(answer.content) < 500


async def test_head_is_answered_where_get_is(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await one.new()
        for path in ("/session", f"/session/{sid}", f"/session/{sid}/message", "/agent", "/lsp", "/path"):
            answer = await one.http.head(path)
            assert answer.status_code == 200 and int(answer.headers["content-length"]) >= 2, path
        assert "head" not in (await one.http.get("/doc")).json()["paths"]["/session"]


async def test_links_inside_of_the_workspace_are_taken(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        (one.workspace / "a b.py").write_text("x")
        (one.workspace / "out").symlink_to("/etc")
        good = [
            f"file://{one.workspace}/a%20b.py?start=1&end=2",
            "https://example.org/a",
        ]
        for url in good:
            parts = [{"type": "file", "mime": "text/plain", "url": url}]
            answer = await one.http.post(f"/session/{sid}/message", json={"parts": parts})
            assert answer.status_code == 200, answer.text
        listed = [part["url"] for m in await one.messages(sid) for part in m["parts"] if part["type"] == "file"]
        assert listed == good
        for url in (f"file://{one.workspace}/out/passwd", f"file://{one.workspace}/%2e%2e/x"):
            parts = [{"type": "file", "mime": "text/plain", "url": url}]
            answer = await one.http.post(f"/session/{sid}/message", json={"parts": parts})
            assert answer.status_code == 403


async def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    """Its path cannot be said in JSON, and not be stored."""
    async with gateway(tmp_path, Farm()) as one:
        named = os.fsencode(one.workspace) + b"/\xff"
        os.mkdir(named)
        os.symlink(named, one.workspace / "link")
        answer = await one.http.post("/session", params={"directory": f"{one.workspace}/link"}, json={})
        assert answer.status_code == 403 and "UTF-8" in answer.json()["data"]["message"]


async def test_ids_of_parts_that_are_not_in_order_with_minted_ones_are_replaced(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await one.new()
        for first in (
            "prt_zzzzzzzzzzzzzzzz",
            "prt_ffffffffffffzzzzzzzzzzzzzz",
            "prt_3f2b8c1e-77aa-4f0e",
            "prt-1",
            None,
        ):
            parts = [{"type": "text", "text": "a", "id": first}, {"type": "text", "text": "b"}]
            answer = await one.http.post(f"/session/{sid}/message", json={"parts": parts})
            assert answer.status_code == 200
            ids = [part["id"] for part in (await one.messages(sid))[-2]["parts"]]
            assert len(ids) == 2 and ids == sorted(set(ids))
