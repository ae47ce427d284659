"""``adapters/acp/translate_*``: one golden line a message of the wire, and what no agent should send but some do.

``golden/acp/updates_v1.jsonl``: what real agents (claude-agent-acp, codex-acp, opencode) and ACP's unstable schema
write, with the fact of the core beside it: its kind and the fields that are not at their default; ``source`` says
whether the raw update is kept.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.acp import rpc, wire
from adapters.acp import translate_v1 as v1
from adapters.acp import translate_v1_calls as calls
from adapters.acp.translate_content import block, encode_block, encode_prompt
from adapters.acp.translate_runs import TextRun, coalesce
from gateway.core import content, inputs
from gateway.core.model import Accepted, Cancelled, Declined, Option, Selected, Tokens

GOLDEN = Path(__file__).parent.parent / "golden" / "acp"
LINES = [json.loads(line) for line in (GOLDEN / "updates_v1.jsonl").read_text().splitlines()]


def shown(fact: inputs.AgentFact) -> dict[str, Any]:
    """A fact as the golden file has it."""
    out: dict[str, Any] = {"kind": type(fact).__name__}
    for field in msgspec.structs.fields(fact):
        value = getattr(fact, field.name)
        if field.name == "source":
            out["source"] = value is not None
        elif value is not msgspec.UNSET and value != field.default:
            # The kind of a tool is a field too.
            out["kind_" if field.name == "kind" else field.name] = json.loads(msgspec.json.encode(value))
    return out


def decode(update: Any) -> inputs.AgentFact:
    (fact,) = v1.decode(json.dumps(update).encode())
    return fact


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['from']}-{line['update'].get('sessionUpdate')}")
def test_golden(line: dict[str, Any]) -> None:
    assert shown(decode(line["update"])) == line["fact"]


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line["update"].get("sessionUpdate")))
def test_order_of_keys_and_nulls_mean_nothing(line: dict[str, Any]) -> None:
    update = dict(reversed(line["update"].items()))
    clears = update["sessionUpdate"] == "subagent_update"
    more = {} if clears else {k: None for k in ("messageId", "_meta", "title", "status", "content") if k not in update}
    if line["fact"]["kind"] != "AgentUnknown":  # it keeps them
        assert shown(decode({**more, **update})) == line["fact"]
    (child,) = v1.decode(json.dumps(update).encode(), "kid")
    assert child.agent_session == "kid"


@pytest.mark.parametrize(
    "update",
    [
        {},
        [],
        5,
        {"sessionUpdate": 7},
        {"sessionUpdate": "agent_message_chunk"},
        {"sessionUpdate": "agent_message_chunk", "content": "text"},
        {"sessionUpdate": "user_message_chunk", "content": None},
        {"sessionUpdate": "tool_call", "title": "no id"},
        {"sessionUpdate": "plan", "entries": None},
        {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "content": "x"}},
        {"sessionUpdate": "usage_update", "used": "many"},
        {"sessionUpdate": "subagent_update", "sessionId": None},
        {"sessionUpdate": "session_message", "messageId": None},
        {"sessionUpdate": "current_mode_update"},
        {"sessionUpdate": "config_option_update", "configOptions": {}},
        {"sessionUpdate": "session_info_update", "title": None},
        {"sessionUpdate": "of_next_year", "x": 1},
    ],
)
def test_what_is_unknown_or_malformed_is_kept(update: Any) -> None:
    raw = json.dumps(update).encode()
    (fact,) = v1.decode(raw)
    assert isinstance(fact, inputs.AgentUnknown)
    assert fact.source and bytes(fact.source.raw) == raw and fact.source.wire == "acp1"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    "content entries toolCallId status plan sessionId state messageId title capabilities error used size cost".split()
)
KEYS += "configOptions availableCommands currentModeId toolCall options modes models usage agentCapabilities".split()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted({line["update"]["sessionUpdate"] for line in LINES})),
    st.dictionaries(st.sampled_from(KEYS), json_values, max_size=6),
)
def test_nothing_raises(kind: str, fields: dict[str, Any]) -> None:
    raw = msgspec.Raw(json.dumps({"sessionUpdate": kind, **fields}).encode())
    assert len(v1.decode(raw)) == 1
    calls.permission(raw, "r")
    calls.elicitation(raw, "r")
    calls.abilities(raw)
    calls.session_state(raw).facts()
    calls.tokens(wire.as_object(raw))


# --- blocks --------------------------------------------------------------------------------------------------------

BLOCKS = [
    {"type": "text", "text": "a"},
    {"type": "text", "text": "a", "annotations": {"priority": 1}, "_meta": {"x": 1}},
    {"type": "image", "data": "AA==", "mimeType": "image/png", "uri": "file:///a.png"},
    {"type": "image", "data": "AA==", "mimeType": "image/png"},
    {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "x", "mimeType": "text/plain"}},
    {"type": "resource", "resource": {"uri": "file:///a", "blob": "AA=="}},
    {"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain", "title": "A", "size": 3},
    {"type": "hologram", "data": 1},
    {"type": "image"},
]


@pytest.mark.parametrize("value", BLOCKS, ids=lambda b: b["type"])
def test_blocks_there_and_back(value: dict[str, Any]) -> None:
    assert encode_block(block(value)) == value


def test_blocks_are_known() -> None:
    kinds = [type(block(value)).__name__ for value in BLOCKS]
    assert kinds == "Text Text Image Image Audio Resource Resource ResourceLink Other Other".split()
    assert block("odd") == content.Other("odd")


def test_what_an_agent_cannot_take_is_told_in_words_or_as_a_link() -> None:
    blocks = (
        content.Image("AA==", "image/png", "file:///d/a.png"),
        content.Image("AA==", "image/png"),
        content.Audio("AA==", "audio/wav"),
        content.Resource("file:///d/n.txt", text="note"),
        content.Resource("file:///d/b.bin", blob="AA=="),
        content.ResourceLink("file:///d/c", "c"),
    )
    assert encode_prompt(blocks, image=False, audio=False, embedded=False) == [
        {"type": "resource_link", "uri": "file:///d/a.png", "name": "a.png", "mimeType": "image/png"},
        {"type": "text", "text": "[an image, image/png: this agent takes no images]"},
        {"type": "text", "text": "[a sound, audio/wav: this agent takes no audio]"},
        {"type": "text", "text": "file:///d/n.txt:\nnote"},
        {"type": "resource_link", "uri": "file:///d/b.bin", "name": "b.bin"},
        {"type": "resource_link", "uri": "file:///d/c", "name": "c"},
    ]
    assert encode_prompt(blocks, image=True, audio=True, embedded=True) == [encode_block(b) for b in blocks]


# --- merging -------------------------------------------------------------------------------------------------------


def chunk(text: str, message_id: str | None = "m", session: str = "s", role: str = "message", **more: Any) -> bytes:
    update = {"sessionUpdate": f"agent_{role}_chunk", "content": {"type": "text", "text": text}, **more}
    if message_id is not None:
        update["messageId"] = message_id
    params = {"sessionId": session, "update": update}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode() + b"\n"


def runs(*lines: bytes) -> list[Any]:
    peer: rpc.Peer[None] = rpc.Peer(fast=wire.plain)
    return [
        (m.session_id, m.role, m.text, m.agent_id) if isinstance(m, TextRun) else type(m).__name__
        for m in coalesce(peer.feed(b"".join(lines)))
    ]


def test_chunks_of_one_read_merge_within_their_message() -> None:
    assert runs(chunk("a"), chunk("b"), chunk("c", role="thought"), chunk("d", "n"), chunk("e", "n", "t")) == [
        ("s", "agent", "ab", "m"),
        ("s", "thought", "c", "m"),
        ("s", "agent", "d", "n"),
        ("t", "agent", "e", "n"),
    ]
    assert runs(chunk("a", None), chunk("b", None, messageId=None), chunk("c", None, _meta=None)) == [
        ("s", "agent", "abc", "")
    ]


def test_what_is_more_than_text_is_not_merged() -> None:
    assert runs(chunk("a"), chunk("b", _meta={"x": 1}), chunk("c"), chunk("d")) == [
        ("s", "agent", "a", "m"),
        "Notification",
        ("s", "agent", "cd", "m"),
    ]
    rich = chunk("a").replace(b'"text": "a"', b'"text": "a", "annotations": {}')
    assert runs(rich) == ["Notification"]


def test_a_replay_is_put_together() -> None:
    user, text = inputs.AgentUser, inputs.AgentText
    a, b = content.Text("a"), content.Text("b")
    facts = [
        user(content=(a,), agent_id="u"),
        user(content=(b,), agent_id="u"),
        user(content=(a,), agent_id="v"),
        text(role="agent", text="x", agent_id="m"),
        text(role="agent", text="y", agent_id="m"),
        text(role="thought", text="z", agent_id="m"),
    ]
    assert v1.join_users(facts) == (
        user(content=(a, b), agent_id="u"),
        user(content=(a,), agent_id="v"),
        text(role="agent", text="xy", agent_id="m"),
        text(role="thought", text="z", agent_id="m"),
    )


# --- requests and results ------------------------------------------------------------------------------------------


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def test_permission() -> None:
    params = {
        "toolCall": {"toolCallId": "c", "title": "rm x", "kind": "execute", "status": "pending", "rawInput": {"a": 1}},
        "options": [
            {"optionId": "once", "kind": "allow_once", "name": "Allow once"},
            {"optionId": "odd", "kind": "allow_on_sundays", "name": None},
            {"name": "without an id"},
        ],
        "sessionId": "s",
    }
    ask = calls.permission(raw(params), "7", "kid")
    assert (ask.agent_ref, ask.kind, ask.title, ask.agent_session) == ("7", "permission", "rm x", "kid")
    assert ask.options == (Option("once", "Allow once", "allow_once"), Option("odd", "odd", "allow_on_sundays"))
    assert ask.tool and (ask.tool.call_id, ask.tool.input, ask.tool.new) == ("c", {"a": 1}, False)
    assert ask.raw == params


def test_elicitation() -> None:
    form = {"sessionId": "s", "mode": "form", "message": "Who?", "requestedSchema": {"type": "object"}}
    ask = calls.elicitation(raw(form), "1")
    assert (ask.kind, ask.title, ask.schema, ask.url) == ("elicitation", "Who?", {"type": "object"}, "")
    page = {
        "requestId": 3,
        "mode": "url",
        "message": "Log in",
        "url": "https://x",
        "elicitationId": "e",
        "toolCallId": "c",
    }
    ask = calls.elicitation(raw(page), "1")
    assert (ask.url, ask.schema) == ("https://x", None) and ask.tool and ask.tool.call_id == "c"


def test_answers() -> None:
    selected, cancelled = {"outcome": {"outcome": "selected", "optionId": "o"}}, {"outcome": {"outcome": "cancelled"}}
    assert calls.encode_answer("permission", Selected("o")) == selected
    for answer in (Cancelled("abort"), Declined(), Accepted({"a": 1})):
        assert calls.encode_answer("permission", answer) == cancelled
    assert calls.encode_answer("elicitation", Accepted({"a": 1})) == {"action": "accept", "content": {"a": 1}}
    assert calls.encode_answer("elicitation", Declined("no")) == {"action": "decline"}
    for other in (Cancelled(), Selected("o")):
        assert calls.encode_answer("elicitation", other) == {"action": "cancel"}


def test_abilities() -> None:
    result = {
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "embeddedContext": False, "audio": None},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": {"close": {}, "resume": None},
        },
        "agentInfo": {"name": "a", "title": None, "version": "1.2"},
        "authMethods": [{"id": "key", "name": "Key"}],
        "_meta": {"steering": {"supported": True}},
    }
    can = calls.abilities(raw(result))
    assert (can.name, can.version, can.protocol, can.auth, can.raw) == ("a", "1.2", 1, ("key",), result)
    assert (can.load, can.resume, can.close, can.image, can.audio, can.embedded) == (
        True,
        False,
        True,
        True,
        False,
        False,
    )
    assert can.mcp == {"http"} and can.steer
    assert not calls.abilities(raw({"protocolVersion": 1, "agentCapabilities": None})).steer


def test_session_state_of_modes_options_and_legacy_models() -> None:
    mode = {"id": "mode", "category": "mode", "type": "select", "currentValue": "build", "name": "Mode"}
    mode["options"] = [{"group": "g", "options": [{"value": "build", "name": "Build"}]}, {"value": "plan", "name": "P"}]  # type: ignore[assignment]
    state = calls.session_state(raw({"sessionId": "s", "configOptions": [mode], "modes": None}))
    assert (state.mode, state.mode_by_option, state.model_by_method) == ("build", "mode", False)
    assert state.modes == [{"id": "build", "name": "Build"}, {"id": "plan", "name": "P"}]
    models = {"currentModelId": "m1", "availableModels": [{"modelId": "m1", "name": "One", "description": None}]}
    modes = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]}
    state = calls.session_state(raw({"modes": modes, "models": models}))
    assert state.model_by_method and not state.mode_by_option
    assert [shown(fact) for fact in state.facts()] == [
        {"kind": "AgentMode", "mode": "ask", "modes": [{"id": "ask", "name": "Ask"}], "source": False},
        {
            "kind": "AgentConfig",
            "model": "m1",
            "options": [
                {
                    "id": "model",
                    "name": "Model",
                    "category": "model",
                    "type": "select",
                    "currentValue": "m1",
                    "options": [{"value": "m1", "name": "One"}],
                }
            ],
            "source": False,
        },
    ]
    assert calls.session_state(raw({"sessionId": "s"})).facts() == []


def test_the_end_of_a_turn() -> None:
    assert v1.outcome("max_tokens") == ("max_tokens", True)
    assert v1.outcome("of_next_year") == v1.outcome(None) == ("end_turn", False)
    usage = {"inputTokens": 1, "outputTokens": 2, "thoughtTokens": None, "cachedReadTokens": 4, "totalTokens": 7}
    assert calls.tokens({"usage": usage}) == Tokens(1, 2, 0, 4, 0, 7)
    assert calls.tokens({"usage": None}) is calls.tokens({}) is None
