"""What is done with a session beside prompting: fork, summarize, init; and what is not offered, with its reason."""

from pathlib import Path
from typing import Any

import pytest

from adapters.opencode.routes.absent import NOT_OFFERED
from gateway.core.inputs import AgentCommands, AgentTool
from tests.fake_port import Farm
from tests.opencode.support import Gateway, gateway
from tests.opencode.test_route_table import filled
from tests.opencode.test_stream import settled
from tests.opencode.test_translate import schema
from tests.served import serve

MODEL = {"providerID": "fake", "modelID": "default"}


async def test_a_fork_is_a_copy_with_new_ids(tmp_path: Path) -> None:
    farm = Farm(can_fork=True)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new(title="Mine")
        await one.prompt(sid, "one")
        answer = await one.http.post(f"/session/{sid}/fork", json={})
        assert answer.status_code == 200, answer.text
        fork = answer.json()
        schema("Session").validate(fork)
        assert fork["title"] == "Mine (fork #1)" and fork["id"] != sid
        before, after = await one.messages(sid), await one.messages(fork["id"])
        assert texts(before) == texts(after) == ["one", "echo: one"]
        assert not ids(before) & ids(after)
        await one.prompt(fork["id"], "two")
        assert len(await one.messages(fork["id"])) == 4 and len(await one.messages(sid)) == 2
        again = (await one.http.post(f"/session/{fork['id']}/fork")).json()  # without a body, too
        assert again["title"] == "Mine (fork #2)"
        # up to a message: no agent can
        answer = await one.http.post(f"/session/{sid}/fork", json={"messageID": before[0]["info"]["id"]})
        assert answer.status_code == 501 and '["messageID"]' in answer.json()["data"]["message"]
        for bad, status in (({"messageID": "msg_nope"}, 404), ({"messageID": "x"}, 400), ([], 400)):
            answer = await one.http.post(f"/session/{sid}/fork", json=bad)
            assert answer.status_code == status, answer.text
        assert (await one.http.post("/session/ses_nope/fork", json={})).status_code == 404
        # what is only waiting is not part of it
        await one.prompt(sid, "later", noReply=True, messageID="msg_later")
        answer = await one.http.post(f"/session/{sid}/fork", json={"messageID": "msg_later"})
        assert answer.status_code == 200 and texts(await one.messages(answer.json()["id"])) == ["one", "echo: one"]


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return ["".join(p["text"] for p in m["parts"] if p["type"] == "text") for m in messages]


def ids(messages: list[dict[str, Any]]) -> set[str]:
    return {m["info"]["id"] for m in messages} | {p["id"] for m in messages for p in m["parts"]}


async def test_an_agent_that_cannot_fork_says_so(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await one.new()
        await one.prompt(sid, "x")
        answer = await one.http.post(f"/session/{sid}/fork", json={})
        assert answer.status_code == 501 and "fork" in answer.json()["data"]["message"]
        assert len((await one.http.get("/session")).json()) == 1


@pytest.mark.parametrize(
    ("route", "name", "body"),
    [
        ("summarize", "compact", {**MODEL, "auto": False}),
        ("summarize", "compress", MODEL),
        ("init", "init", {**MODEL, "messageID": "msg_init"}),
    ],
)
async def test_the_agents_own_command_does_it(tmp_path: Path, route: str, name: str, body: dict[str, object]) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        answer = await one.http.post(f"/session/{sid}/{route}", json=body)
        assert answer.status_code == 501 and "prompt it first" in answer.json()["data"]["message"]
        await one.prompt(sid, "x")
        farm.port.tell(AgentCommands(commands=[{"name": "review"}]))
        await settled(one)
        answer = await one.http.post(f"/session/{sid}/{route}", json=body)
        assert answer.status_code == 501 and "it has: review" in answer.json()["data"]["message"]
        farm.port.tell(AgentCommands(commands=[{"name": "review"}, {"name": name}]))
        await settled(one)
        answer = await one.http.post(f"/session/{sid}/{route}", json=body)
        assert answer.status_code == 200 and answer.json() is True
        assert farm.prompts == [["x"], [f"/{name}"]]
        if route == "init":
            assert (await one.messages(sid))[2]["info"]["id"] == "msg_init"
        wrong: list[Any] = [{}, {**body, "providerID": 1}, [], {**body, "modelID": None}]
        for bad in wrong:
            answer = await one.http.post(f"/session/{sid}/{route}", json=bad)
            assert answer.status_code == 400, answer.text
        answer = await one.http.post(
            f"/session/{sid}/{route}", json={**body, "providerID": "other", "messageID": "msg_2"}
        )
        assert answer.status_code == 409


async def test_what_is_not_offered_says_why(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await one.new()
        for path, methods in NOT_OFFERED.items():
            for method, why in methods.items():
                answer = await one.http.request(method, filled(path, sid), json={} if method != "GET" else None)
                told = {"name": "NotSupportedError", "data": {"message": why, "code": "not_supported"}}
                assert (answer.status_code, answer.json()) == (501, told), (method, path)
                if path.startswith("/session/"):
                    answer = await one.http.request(method, filled(path, "ses_nope"), json={})
                    assert answer.status_code == 404, (method, path)


async def test_a_clients_line_is_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with serve(tmp_path, "--log-level", "debug") as served:
        for level in ("debug", "info", "warn", "error"):
            body = {"service": "tui", "level": level, "message": f"hello {level}", "extra": {"k": "v"}}
            answer = await served.http.post("/log", json=body)
            assert answer.json() is True
        answer = await served.http.post("/log", json={"service": "tui", "level": "info", "message": "x" * 100_000})
        assert answer.json() is True
        for bad, field in (({}, "service"), ({"service": "x", "level": "loud", "message": ""}, "level")):
            answer = await served.http.post("/log", json=bad)
            assert answer.status_code == 400 and field in answer.json()["data"]["message"]
    log = "".join(served.log)
    assert all(f"hello {level}" in log for level in ("debug", "info", "warn", "error"))
    assert max(map(len, served.log)) < 10_000


# --- diffs ---------------------------------------------------------------------------------------------------------


def changed(call: str, path: str, old: str | None, new: str, status: str = "completed") -> AgentTool:
    item = {"type": "diff", "path": path, "oldText": old, "newText": new}
    return AgentTool(call_id=call, new=True, kind="edit", title=path, status=status, content=[item])  # type: ignore[arg-type]


async def test_the_diff_of_a_session_is_what_its_tools_said(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        assert await diff(one, sid) == []
        await one.queue(sid, "x", messageID="msg_first")
        await settled(one)
        where = str(one.workspace)
        farm.port.tell(
            changed("1", f"{where}/a.txt", "a\nb\n", "a\nB\n"),
            changed("2", f"{where}/a.txt", "a\nB\n", "a\nB\nc\n"),  # goes on from there
            changed("3", f"{where}/new.txt", None, "n\n"),
            changed("4", f"{where}/pieces.txt", "one", "ONE"),
            changed("5", f"{where}/pieces.txt", "two", "TWO"),
            changed("6", f"{where}/failed.txt", "a", "b", "failed"),
        )
        await settled(one)
        found = {one.pop("file"): one for one in await diff(one, sid)}
        assert set(found) == {"a.txt", "new.txt", "pieces.txt"}
        first = found["a.txt"]
        assert (first["additions"], first["deletions"], first["status"]) == (2, 1, "modified")
        assert (first["before"], first["after"]) == ("a\nb\n", "a\nB\nc\n") and "-b\n+B\n+c\n" in first["patch"]
        assert (found["new.txt"]["additions"], found["new.txt"]["status"]) == (1, "added")
        pieces = found["pieces.txt"]
        assert pieces["patch"].count("@@") == 4 and pieces["additions"] == 2 and "before" not in pieces
        for each in await diff(one, sid):
            known = {key: value for key, value in each.items() if key not in ("before", "after")}
            schema("SnapshotFileDiff").validate(known)
        assert len(await diff(one, sid, messageID="msg_first")) == 3
        assert await diff(one, sid, messageID="msg_other") == []
        answer = await one.http.get(f"/session/{sid}/diff", params={"messageID": "x"})
        assert answer.status_code == 400


async def diff(one: Gateway, session_id: str, **query: str) -> list[dict[str, Any]]:
    answer = await one.http.get(f"/session/{session_id}/diff", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found
