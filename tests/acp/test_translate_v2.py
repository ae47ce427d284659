"""``adapters/acp/translate_v2*``: one golden line an update of the wire, and what no agent should send but some do.

``golden/acp/updates_v2.jsonl``: what real agents (claude-agent-acp, codex-acp) and the unstable schema write, with its
facts beside it, as ``test_translate_v1`` shows them.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.acp import translate_server_v1 as to_v1
from adapters.acp import translate_server_v2 as to_v2
from adapters.acp import translate_v1_calls as v1_calls
from adapters.acp import translate_v2 as v2
from adapters.acp import translate_v2_calls as calls
from adapters.acp import wire
from adapters.acp.translate_v2_content import diff
from gateway.core import inputs
from gateway.core.ids import PartId, StepId, TurnId
from gateway.core.model import ToolCall
from tests.acp.test_translate_v1 import shown

GOLDEN = Path(__file__).parent.parent / "golden" / "acp"
LINES = [json.loads(line) for line in (GOLDEN / "updates_v2.jsonl").read_text().splitlines()]
Json = dict[str, Any]


def brief(fact: inputs.AgentFact) -> Json:
    """As the golden file has it: what is only kept is not repeated."""
    out = shown(fact)
    for key in ("raw", "told"):
        if out["kind"] in ("AgentUnknown", "StateTold", "TerminalTold"):
            out.pop(key, None)
    return out


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['from']}-{line['update'].get('sessionUpdate')}")
def test_golden(line: Json) -> None:
    raw = json.dumps(line["update"]).encode()
    assert [brief(fact) for fact in v2.decode(raw)] == line["facts"]
    for fact in v2.decode(json.dumps(dict(reversed(line["update"].items()))).encode(), "kid"):
        assert fact.agent_session == "kid"
        if fact.source is not None:
            assert fact.source.wire == "acp2" and json.loads(bytes(fact.source.raw)) == line["update"]


def test_every_kind_is_there() -> None:
    kinds = {line["update"].get("sessionUpdate") for line in LINES}
    schema = Path(__file__).parents[1] / "clients/node_modules/@agentclientprotocol/sdk/schema/v2/schema.unstable.json"
    if schema.exists():
        union = json.loads(schema.read_text())["$defs"]["SessionUpdate"]["anyOf"]
        known = {v["properties"]["sessionUpdate"].get("const") for v in union} - {None}
        assert known - kinds == {"agent_thought_chunk", "terminal_output_chunk"}  # in other tests


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "messageId content toolCallId status title kind locations rawInput _meta capabilities plan planId configOptions "
    "availableCommands sessionId state background used size terminalId output exitStatus data changes patch"
).split()
KINDS = sorted({str(line["update"].get("sessionUpdate")) for line in LINES})


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6))
def test_nothing_is_raised(kind: str, fields: Json) -> None:
    facts = v2.decode(json.dumps({"sessionUpdate": kind, **fields}).encode())
    assert facts or (kind == "user_message" and "content" not in fields)


def test_a_plain_chunk_takes_the_fast_way_only_when_it_is_plain() -> None:
    def line(**more: Any) -> bytes:
        update = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": "a"}}
        params = {"sessionId": "s", "update": {**update, **more}}
        return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()

    assert wire.plain.decode(line()).params.update.message_id == "m"
    with pytest.raises(msgspec.ValidationError):
        wire.plain.decode(line(_meta={"a": 1}))


# --- content ---------------------------------------------------------------------------------------------------------

EDIT = """diff --git a/w/a.txt b/w/a.txt
index 1..2 100644
--- a/w/a.txt
+++ b/w/a.txt
@@ -1,3 +1,3 @@
 one
-two
+zwei
 three
@@ -9 +9 @@ def f():
-nine
\\ No newline at end of file
+--- neun
\\ No newline at end of file
"""
ADD = """diff --git a/w/n.txt b/w/n.txt
new file mode 100644
--- /dev/null
+++ b/w/n.txt
@@ -0,0 +1,2 @@
+a
+
"""


def item(patch: str | None, *changes: tuple[str, str]) -> Json:
    told = {"type": "diff", "changes": [{"operation": op, "path": path} for op, path in changes]}
    return told if patch is None else {**told, "patch": {"format": "git_patch", "text": patch}}


def test_a_patch_is_a_diff_for_each_hunk() -> None:
    whole = item(EDIT + ADD, ("modify", "/w/a.txt"), ("add", "/w/n.txt"))
    found = diff(whole)
    assert [(d["path"], d["oldText"], d["newText"]) for d in found] == [
        ("/w/a.txt", "one\ntwo\nthree\n", "one\nzwei\nthree\n"),
        ("/w/a.txt", "nine", "--- neun"),
        ("/w/n.txt", None, "a\n\n"),
    ]
    assert [d["_meta"]["trunkline"]["acp2"] for d in found] == [whole, None, None]


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (item(None, ("delete", "/c")), "delete /c"),
        (item("Binary files differ", ("modify", "/p.png")), "Binary files differ"),
        ({"type": "diff", "changes": [{"operation": "move", "oldPath": "/a", "newPath": "/b"}]}, "move /b"),
        ({"type": "diff", "changes": 5}, ""),
    ],
)
def test_what_cannot_be_a_diff_is_text(told: Json, text: str) -> None:
    (only,) = diff(told)
    assert only["content"] == {"type": "text", "text": text}


def test_v2_clients_get_it_back_and_v1_clients_only_what_they_know() -> None:
    """From the core's content: for who comes later."""
    whole = item(EDIT, ("modify", "/w/a.txt"))
    plain: Json = {"type": "content", "content": {"type": "text", "text": "x"}}
    (fact,) = v2.decode(
        json.dumps({"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [whole, plain]}).encode()
    )
    assert isinstance(fact, inputs.AgentTool)
    call = ToolCall("c", PartId("p"), StepId("s"), TurnId("t"), 1, content=fact.content, can_cancel=True)
    assert to_v2.tool_body(call)["content"] == [whole, plain]
    assert to_v2.tool_body(call)["capabilities"] == {"cancel": {}}
    ended = msgspec.structs.replace(call, status="completed")
    assert "capabilities" not in to_v2.tool_body(ended)
    assert [sorted(each) for each in to_v1.tool_body(call)["content"]] == [
        *(["newText", "oldText", "path", "type"], ["newText", "oldText", "path", "type"], ["content", "type"])
    ]


# --- results and requests --------------------------------------------------------------------------------------------


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


PR = {"capabilities": {"session": {"inject": {"modes": ["steer"], "steerInStream": ["finish"], "pending": {}}}}}
RFD = {"agentCapabilities": {"session": {"inject": {"modes": ["queue", "steer"], "pending": {"replace": True}}}}}


@pytest.mark.parametrize(
    ("told", "steer", "inject", "replace"),
    [
        (PR, True, True, False),
        (RFD, True, True, True),
        ({"capabilities": {"session": {"inject": {"modes": ["queue"]}}}}, False, False, False),
        (
            {"capabilities": {"session": {"inject": None}}, "_meta": {"steering": {"supported": True}}},
            True,
            False,
            False,
        ),
        ({}, False, False, False),
    ],
)
def test_ways_to_steer(told: Json, steer: bool, inject: bool, replace: bool) -> None:
    can = calls.abilities(raw({"protocolVersion": 2, **told}))
    assert (can.steer, can.inject, can.replace) == (steer, inject, replace)


def test_abilities_of_a_real_agent() -> None:
    line = json.loads((GOLDEN / "turns_claude_v2.jsonl").read_text().splitlines()[0])
    can = calls.abilities(raw(line["initialize"]))
    assert (can.name, can.protocol, can.image, can.audio, can.embedded) == ("Claude Agent", 2, True, False, True)
    assert can.mcp == {"stdio", "http"} and can.fork and can.resume and not can.steer


def test_the_mode_is_an_option() -> None:
    line = json.loads((GOLDEN / "turns_claude_v2.jsonl").read_text().splitlines()[1])
    state = v1_calls.session_state(raw(line["session/new"]))
    assert (state.mode, state.mode_by_option) == ("auto", "mode") and "plan" in [m["id"] for m in state.modes]
    mode, config = state.facts()
    assert isinstance(mode, inputs.AgentMode) and isinstance(config, inputs.AgentConfig) and config.mode == "auto"


OPTIONS = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}, {"optionId": "n", "name": "No", "kind": "_odd"}]


@pytest.mark.parametrize(
    ("subject", "call_id", "description"),
    [
        ({"type": "tool_call", "toolCall": {"toolCallId": "c", "title": "rm", "kind": "execute"}}, "c", ""),
        ({"type": "command", "command": "rm -r /", "cwd": "/"}, None, "rm -r /"),
        ({"type": "_odd", "toolCall": {"toolCallId": "c"}}, None, ""),
        (None, None, ""),
    ],
)
def test_permission(subject: Any, call_id: str | None, description: str) -> None:
    ask = calls.permission(
        raw({"sessionId": "s", "title": "May I?", "subject": subject, "options": OPTIONS}), "r", "kid"
    )
    assert (ask.title, ask.description, ask.agent_session) == ("May I?", description, "kid")
    assert (ask.tool.call_id if ask.tool else None) == call_id
    assert [o.kind for o in ask.options] == ["allow_once", "_odd"]
