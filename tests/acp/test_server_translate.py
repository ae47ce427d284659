"""What ACP clients are told of each event: one golden line a message of the wire, valid by the SDK's schemas.

``golden/acp/server.jsonl``: an update of a v1 agent, or an event that no update makes, and what v1 and v2 clients get.
Run this file as a program to write it anew; then read the difference.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.acp import translate_replay as replay
from adapters.acp import translate_server_calls as calls
from adapters.acp import translate_server_v1 as v1
from adapters.acp import translate_server_v2 as v2
from adapters.acp import translate_v1 as agent
from adapters.acp.wire_server import initialized
from gateway.core import events as ev
from gateway.core.content import Audio, Image, Other, Resource, ResourceLink, Text
from gateway.core.errors import AuthRequired, ClientError, Forbidden, GatewayError, Limit, NotFound, NotRunning
from gateway.core.ids import MessageId, PartId, RequestId, SessionId, StepId, TurnId
from gateway.core.inputs import AgentChild, AgentReady, AgentText, Create, PromptEnded, TurnBegan
from gateway.core.model import (
    Accepted,
    Cancelled,
    Child,
    Declined,
    Error,
    Option,
    Refs,
    Request,
    Selected,
    SessionInfo,
    Source,
    Tokens,
    ToolCall,
    UserMessage,
)
from gateway.core.replies import Verdict
from gateway.core.tree import Tree, create
from tests.acp.clients import schema

GOLDEN = Path(__file__).parent.parent / "golden" / "acp"
Json = dict[str, Any]
NOW = 1_764_000_000_000
ENTROPY = bytes(range(64))

schemas = pytest.mark.usefixtures("npm_clients")

# Updates that are not what the schema says: agents do that, and they pass to clients of the same version.
ODD = ("of_next_year", "teleport", "_of_next_year", "nonsense")


class World:
    """A session in a turn, with a child ``a2aa``; facts go in, events come out."""

    def __init__(self) -> None:
        self.tree, decision = create(Create(cwd="/w", agent="demo"), NOW, ENTROPY)
        self.tree.apply(decision.records)
        self.now = NOW
        self.put(AgentReady(own_id="root"), TurnBegan(), AgentChild(child="a2aa", title="sub", can_cancel=True))

    def put(self, *facts: Any) -> list[ev.Record]:
        self.now += 1
        decision = self.tree.decide([(self.tree.root_id, fact) for fact in facts], self.now, ENTROPY)
        for reply in decision.replies:
            if isinstance(reply, GatewayError):
                raise reply
        self.tree.apply(decision.records)
        return list(decision.records)

    @property
    def names(self) -> dict[str, str]:
        return {"root": "ses_root", **{own: "ses_child" for own in self.tree.by_agent}}


def lines() -> list[Json]:
    return [json.loads(line) for line in (GOLDEN / "updates_v1.jsonl").read_text().splitlines()]


def encoded(updates: list[Any]) -> list[Json]:
    return [json.loads(msgspec.json.encode(u.body)) for u in updates]


def steady(value: Any, world: World) -> Any:
    """Without what is another at each run."""
    text = json.dumps(value)
    child = next(iter(world.tree.by_agent.values()))
    text = text.replace(child, "ses_child").replace(world.tree.root_id, "ses_root")
    return json.loads(text)


def of_update(update: Json) -> tuple[World, Json, list[ev.Record]]:
    world = World()
    facts = agent.decode(msgspec.json.encode(update))
    records = world.put(*facts)
    both = {
        name: [u for r in records for u in encoded(made.updates(r.event, world.names))]
        for name, made in (("v1", v1), ("v2", v2))
    }
    return world, steady(both, world), records


def call(**more: Any) -> ToolCall:
    return ToolCall("call_1", PartId("prt_1"), StepId("msg_1"), TurnId("t"), NOW, **{"title": "do", **more})


MESSAGE = UserMessage(
    MessageId("msg_9"),
    (
        Text("hi"),
        Image("AA==", "image/png"),
        Audio("AA==", "audio/wav"),
        Resource("file:///a", text="x"),
        ResourceLink("file:///b", "b", size=3),
    ),
    (),
    "msg_9",
    NOW,
    TurnId("t"),
)
DIFF = {"type": "diff", "path": "/w/a.txt", "oldText": "one\ntwo\n", "newText": "one\nthree"}
INFO = SessionInfo(SessionId("ses_1"), SessionId("ses_1"), "/w", NOW, NOW, title="A title")
TWO = Source("acp2", msgspec.Raw(b'{"sessionUpdate":"agent_message","messageId":"m","content":[]}'))


def made() -> Iterator[tuple[str, ev.Event]]:
    """Events that no update of a v1 agent makes, or that come without its words."""
    part = (PartId("prt_2"), StepId("msg_1"), NOW)
    yield "delivered", ev.MessageDelivered(MESSAGE)
    yield "session", ev.SessionUpdated(INFO)
    yield "untitled", ev.SessionUpdated(msgspec.structs.replace(INFO, title=""))
    yield "text", ev.TextDelta(PartId("p"), "m", StepId("s"), "agent", "hello")
    yield "thought", ev.TextDelta(PartId("p"), "m", StepId("s"), "thought", "hm")
    yield "tool", ev.ToolUpdated(call(kind="edit", content=[DIFF], input={"a": 1}), first=True)
    yield "tool cancelled", ev.ToolUpdated(call(status="cancelled", kind="teleport"))
    yield "tool of a new file", ev.ToolUpdated(call(content=[{**DIFF, "oldText": None}]), first=True)
    yield "replaced", ev.MessageReplaced("m", "agent", (), (ev.ReplacedPart(*part, text="new"),))
    yield "replaced by v2", ev.MessageReplaced("m", "agent", (), (ev.ReplacedPart(*part, text="new"),), TWO)
    yield "block", ev.BlockAdded(*part[:1], "m", part[1], TurnId("t"), "agent", NOW, Image("AA==", "image/png"))
    yield (
        "foreign block",
        ev.BlockAdded(
            *part[:1], "m", part[1], TurnId("t"), "agent", NOW, Other({"type": "_hologram", "data": 1}), source=TWO
        ),
    )
    yield "plan", ev.PlanUpdated([{"content": "a", "priority": "low", "status": "pending"}])
    yield "plan gone", ev.PlanUpdated(None, "p")
    yield "usage", ev.UsageUpdated(5, 100, 0.5)
    yield "mode", ev.ModesUpdated("code", [{"id": "code", "name": "Code"}])
    yield "commands", ev.CommandsUpdated([{"name": "init", "description": "d", "input": {"hint": "what"}}])
    yield (
        "commands of v2",
        ev.CommandsUpdated(
            [{"type": "command", "name": "init", "description": "d", "input": {"type": "text", "hint": "what"}}]
        ),
    )
    yield "child", ev.ChildUpdated(Child(SessionId("ses_c"), "c", "bob", state="running", can_cancel=True))
    yield (
        "child failed",
        ev.ChildUpdated(Child(SessionId("ses_c"), "c", "bob", state="idle", error=Error("agent_error", "broke"))),
    )
    yield "refs", ev.MessageRefs("m", Refs("root", "a2aa", "", "m2"))


def golden() -> Iterator[Json]:
    for line in lines():
        _, both, _ = of_update(line["update"])
        yield {"update": line["update"], **both}
    world = World()
    for name, event in made():
        yield {
            "event": name,
            "v1": encoded(v1.updates(event, world.names)),
            "v2": encoded(v2.updates(event, world.names)),
        }


def test_golden() -> None:
    found = list(golden())
    expected = [json.loads(line) for line in (GOLDEN / "server.jsonl").read_text().splitlines()]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one == other


@pytest.mark.parametrize("line", lines(), ids=lambda line: line["update"].get("sessionUpdate", "?"))
def test_what_came_on_v1_goes_to_v1_as_it_was(line: Json) -> None:
    """Byte for byte, but for the session ids of children; merged text is merged."""
    update = line["update"]
    world, _, records = of_update(update)
    raw = msgspec.json.encode(update)
    out = [u for r in records for u in v1.updates(r.event, world.names)]
    kind = update.get("sessionUpdate")
    if kind in ("subagent_update", "session_message"):
        assert [u.kind for u in out if u.kind == kind] == [kind]
        return
    if kind in ("user_message_chunk", "plan_update", "plan_removed") or not line["fact"]["source"]:
        return  # ours is told by us; plans with an id, and plain text, are told anew
    if kind == "tool_call_update" and records[-1].event.first:  # type: ignore[union-attr]
        return  # the call was never announced: it is now
    assert raw in [bytes(u.body) for u in out if isinstance(u.body, msgspec.Raw)], out


@schemas
@pytest.mark.parametrize("version", [1, 2])
def test_golden_lines_are_valid(version: int) -> None:
    seen = set()
    for line in golden():
        if any(word in json.dumps(line) for word in ODD) or line.get("event") == "foreign block":
            continue
        for update in line[f"v{version}"]:
            schema.check_update(version, update)
            seen.add(update["sessionUpdate"])
    assert len(seen) >= 14


@schemas
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("agent_name", ["", "demo"])
def test_initialize_is_valid(version: int, agent_name: str) -> None:
    schema.check(version, "InitializeResponse", initialized(version, "1", agent_name))


@schemas
def test_states_are_valid() -> None:
    used = Tokens(1, 2)
    error = Error("auth_required", "log in", {"code": -32000, "authMethods": ["key"]})
    updates = [
        v2.state("running", ["ses_child"]),
        v2.state("requires_action"),
        v2.idle("end_turn", None, used),
        v2.idle("error", error, None, ["ses_child"]),
        v2.idle("interrupted", None, None),
        v2.idle("unwritten", Error("agent_exit", "gone"), None),
        v2.idle("cancelled", None, None),
    ]
    for update in updates:
        schema.check_update(2, update.body)
    assert updates[3].body["error"]["code"] == -32000
    assert updates[4].body["error"]["data"]["reason"] == "interrupted"


@schemas
def test_requests_are_valid() -> None:
    options = (Option("once", "Allow", "allow_once"), Option("no", "Reject", "reject_once"))
    raw = {
        "sessionId": "root",
        "toolCall": {"toolCallId": "call_1", "title": "do", "content": [DIFF], "rawInput": None},
        "options": [{"optionId": "once", "name": "Allow", "kind": "allow_once"}],
        "_meta": {"x": 1},
    }
    newer = {"sessionId": "root", "title": "May I?", "options": raw["options"], "subject": None}
    for told in (None, raw, newer):
        request = Request(RequestId("per_1"), "permission", "do", NOW, "1", call_id="call_1", options=options, raw=told)
        for known in (None, call(content=[DIFF])):
            one = v1.permission("ses_1", request, known)
            two = v2.permission("ses_1", request, known)
            schema.check(1, "RequestPermissionRequest", one)
            schema.check(2, "RequestPermissionRequest", two)
            assert one["sessionId"] == two["sessionId"] == "ses_1"
    assert v1.permission("ses_1", msgspec.structs.replace(request, raw=raw), None) == {**raw, "sessionId": "ses_1"}
    form = {"mode": "form", "message": "m", "requestId": 3, "requestedSchema": {"type": "object", "properties": {}}}
    for told in (form, None):
        asked = Request(RequestId("que_1"), "elicitation", "m", NOW, "1", raw=told)
        params = calls.elicitation("ses_1", asked)
        assert "requestId" not in params
        for version in (1, 2):
            schema.check(version, "CreateElicitationRequest", params)
    url = calls.elicitation("ses_1", Request(RequestId("que_2"), "elicitation", "m", NOW, "1", url="https://x"))
    schema.check(2, "CreateElicitationRequest", url)


def test_answers() -> None:
    def answer(kind: str, value: Any) -> Any:
        return calls.answer(kind, msgspec.Raw(msgspec.json.encode(value)))

    assert answer("permission", {"outcome": {"outcome": "selected", "optionId": "once"}}) == Selected("once")
    for odd in ({}, None, [], {"outcome": None}, {"outcome": {"outcome": "selected"}}, {"outcome": {"outcome": "_x"}}):
        assert isinstance(answer("permission", odd), Cancelled), odd
    assert answer("elicitation", {"action": "accept", "content": {"a": 1}}) == Accepted({"a": 1})
    assert answer("elicitation", {"action": "decline"}) == Declined()
    for odd in ({}, None, {"action": "cancel"}, {"action": "_x"}):
        assert isinstance(answer("elicitation", odd), Cancelled), odd


def test_errors_and_their_codes() -> None:
    found = {
        type(error).__name__: (calls.refusal(error).code, calls.refusal(error).data["reason"])
        for error in (
            NotFound("x", session_id="ses_1"),
            Forbidden("x"),
            ClientError("x"),
            NotRunning("x"),
            AuthRequired("x"),
            Limit("x"),
        )
    }
    assert found == {
        "NotFound": (-32002, "not_found"),
        "Forbidden": (-32602, "forbidden"),
        "ClientError": (-32602, "bad_request"),
        "NotRunning": (-32010, "no_running_turn"),
        "AuthRequired": (-32000, "auth_required"),
        "Limit": (-32603, "limit_reached"),
    }
    assert calls.refusal(NotFound("x", session_id="ses_1")).data["sessionId"] == "ses_1"
    login = calls.refusal(AuthRequired("log in", agent={"code": -32000, "authMethods": ["key"]}))
    assert login.message == "log in" and login.data["authMethods"] == ["key"]


def test_verdicts() -> None:
    message_id = MessageId("m")
    assert calls.verdict(Verdict("revoked", message_id), "revoked") == {}
    assert calls.verdict(Verdict("replaced", message_id), "replaced") == {"messageId": "m"}
    uncertain = calls.verdict(Verdict("revoked", message_id, uncertain=True), "revoked")
    assert uncertain == {"_meta": {"trunkline": {"uncertain": True}}}
    for kind, wished, code, reason in (
        ("unknown", "revoked", -32002, "unknown_message_id"),
        ("already_delivered", "replaced", -32010, "already_delivered"),
        ("revoked", "replaced", -32010, "revoked"),
    ):
        with pytest.raises(calls.Refused) as caught:
            calls.verdict(Verdict(kind, message_id), wished)  # type: ignore[arg-type]
        assert (caught.value.code, caught.value.data["reason"]) == (code, reason)


def test_options_of_both_versions() -> None:
    one = [
        {
            "id": "model",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": "a",
            "options": [{"group": "g", "name": "G", "options": [{"value": "a", "name": "A"}]}],
        },
        {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": True},
    ]
    world = World()
    transcript = world.tree.root.transcript
    transcript.config = one
    transcript.mode, transcript.modes = "code", [{"id": "code", "name": "Code"}, {"id": "ask", "name": "Ask"}]
    two = v2.config(transcript)
    assert [o["configId"] for o in two] == ["mode", "model", "fast"]
    assert two[1]["options"][0]["groupId"] == "g"
    assert v1.config(two[1:]) == one  # there and back
    assert v1.modes(transcript) == {"currentModeId": "code", "availableModes": transcript.modes}
    if schema.FOLDER.exists():
        schema.check(2, "NewSessionResponse", {"sessionId": "s", **v2.session_state(transcript)})
        schema.check(1, "NewSessionResponse", {"sessionId": "s", **v1.session_state(transcript)})


def test_a_patch_of_two_texts() -> None:
    patch = v2.git_patch("/w/a.txt", "one\ntwo\n", "one\nthree")
    assert patch.splitlines() == [
        "diff --git a/w/a.txt b/w/a.txt",
        "--- a/w/a.txt",
        "+++ b/w/a.txt",
        "@@ -1,2 +1,2 @@",
        " one",
        "-two",
        "+three",
        "\\ No newline at end of file",
    ]
    new = v2.git_patch("/n", None, "x\n")
    assert "new file mode 100644" in new and "--- /dev/null" in new and "+x" in new
    long = v2.git_patch("/n", "a\n" * 120_000, "b\n" * 120_000)
    assert "@@ -1,120000 +1,120000 @@" in long


@pytest.mark.parametrize("wire", ["acp1", "acp2"])
def test_a_replay_at_any_point_and_the_rest(wire: str) -> None:
    """Live text up to a mark and what was missed after it: the same as all of it."""
    world = World()
    mark = replay.Mark()
    live: list[str] = []

    def put(*facts: Any) -> None:
        for record in world.put(*facts):
            if record.session_id == world.tree.root_id:
                mark.see(record.event)
                if isinstance(record.event, ev.TextDelta):
                    live.append(record.event.text)

    put(AgentText(role="agent", text="one ", agent_id="msg_a"), AgentText(role="agent", text="two ", agent_id="msg_a"))
    seen, told = msgspec.structs.replace(mark), "".join(live)
    put(AgentText(role="agent", text="three", agent_id="msg_a"), AgentText(role="agent", text="four", agent_id="msg_b"))
    put(PromptEnded(outcome="end_turn"))
    transcript = world.tree.root.transcript

    def text(updates: list[Any]) -> str:
        chunks = [u.body for u in updates if u.kind == "agent_message_chunk"]
        return "".join(c["content"]["text"] for c in chunks)

    whole = replay.history(transcript, wire, {})
    assert text(whole) == "one two threefour"
    assert told + text(replay.missed(transcript, wire, {}, seen)) == text(whole)
    assert replay.missed(transcript, wire, {}, replay.end(transcript)) == []
    lost = replay.missed(transcript, wire, {}, replay.Mark("prt_gone"))
    assert text(lost) == text(whole)


def test_long_text_comes_in_pieces() -> None:
    event = ev.TextDelta(PartId("p"), "m", StepId("s"), "agent", "x" * 250_000)
    assert [len(u.body["content"]["text"]) for u in v1.updates(event, {})] == [100_000, 100_000, 50_000]


def test_a_message_id_that_is_another_here() -> None:
    raw = {
        "sessionUpdate": "agent_message_chunk",
        "messageId": "1",
        "content": {"type": "text", "text": "x"},
        "_meta": {"a": 1},
    }
    event = ev.TextDelta(
        PartId("p"), "msg_m", StepId("s"), "agent", "x", Source("acp1", msgspec.Raw(msgspec.json.encode(raw)))
    )
    for made_ in (v1, v2):
        assert made_.updates(event, {})[0].body == {**raw, "messageId": "msg_m"}


def test_pages_go_on_whatever_changes() -> None:
    def info(n: int, updated: int) -> SessionInfo:
        return msgspec.structs.replace(INFO, id=SessionId(f"ses_{n}"), updated=updated)

    sessions = [info(n, 1000 - n) for n in range(150)]
    first = calls.page(sessions, None)
    assert len(first["sessions"]) == 100
    moved = [info(99, 2000), *(s for s in sessions if s.id != "ses_99")]  # the last one told is the newest now
    second = calls.page(moved, first["nextCursor"])
    assert [s["sessionId"] for s in second["sessions"]] == [f"ses_{n}" for n in range(100, 150)]
    assert "nextCursor" not in second


def test_a_tree_is_what_the_world_says() -> None:
    assert isinstance(World().tree, Tree)


if __name__ == "__main__":
    out = GOLDEN / "server.jsonl"
    out.write_text("".join(json.dumps(line) + "\n" for line in golden()))
    sys.stdout.write(f"{out}: read the difference\n")
