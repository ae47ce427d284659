"""Terminals of a v1 agent in ``_meta``, as codex-acp tells them: every wire gets the output, each in its own shape."""

import base64
from typing import Any

import msgspec

from adapters.acp import translate_server_v2 as v2
from adapters.acp import translate_v1 as v1
from adapters.acp.turns import TurnsV1
from gateway.core.events import ToolUpdated
from gateway.core.ids import PartId, StepId, TurnId
from gateway.core.inputs import AgentTool
from gateway.core.model import ToolCall

Json = dict[str, Any]
INFO = {"terminal_info": {"cwd": "/w", "terminal_id": "c1"}}
SHOWN = {"toolCallId": "c1", "kind": "execute", "title": "make", "content": [{"type": "terminal", "terminalId": "c1"}]}


def delta(text: str) -> Json:
    return {"terminal_output_delta": {"data": text, "terminal_id": "c1"}}


def ended(code: int) -> Json:
    return {"terminal_exit": {"exit_code": code, "signal": None, "terminal_id": "c1"}}


def told(turns: TurnsV1, said: str = "tool_call_update", **update: Any) -> AgentTool:
    [fact] = v1.decode(msgspec.json.encode({"sessionUpdate": said, "toolCallId": "c1", **update}))
    [fact] = turns.take(fact)
    assert isinstance(fact, AgentTool)
    return fact


def words(fact: AgentTool) -> list[str]:
    assert isinstance(fact.content, list)
    return [each["content"]["text"] for each in fact.content]


def test_the_output_of_a_command_is_the_content_of_its_call() -> None:
    turns = TurnsV1("codex")
    assert words(told(turns, "tool_call", **SHOWN, _meta=INFO)) == [""]
    assert words(told(turns, _meta=delta("one\n"))) == ["one\n"]
    done = told(turns, status="failed", _meta={**delta("two\n"), **ended(3)})
    assert words(done) == ["one\ntwo\n\n[exit code 3]"]


def test_it_may_be_replaced() -> None:
    turns = TurnsV1("codex")
    told(turns, "tool_call", **SHOWN, _meta={**INFO, **delta("draft")})
    whole = {"terminal_output": {"data": "final", "terminal_id": "c1"}}
    assert words(told(turns, status="completed", _meta=whole)) == ["final"]


def test_a_read_has_no_terminal_and_its_output_all_the_same() -> None:
    turns = TurnsV1("codex")
    told(turns, "tool_call", kind="read", title="Read f")
    done = told(turns, status="completed", rawOutput={"exit_code": 0}, _meta=delta("what f says"))
    assert words(done) == ["what f says"]


def test_the_source_stays_as_it_came() -> None:
    fact = told(TurnsV1("codex"), "tool_call", **SHOWN, _meta=delta("one"))
    assert fact.source is not None and b"terminal_output_delta" in bytes(fact.source.raw)


def test_long_output_is_not_told_over_and_over() -> None:
    turns = TurnsV1("codex")
    told(turns, "tool_call", **SHOWN, _meta=INFO)
    contents = [told(turns, _meta=delta("x" * 10)).content for _ in range(1000)]
    assert sum(isinstance(each, list) for each in contents) < 100
    assert words(told(turns, status="completed", _meta=ended(0))) == ["x" * 10_000]


def test_malformed_meta_changes_nothing() -> None:
    turns = TurnsV1("codex")
    for meta in ({"terminal_output_delta": "no"}, {"terminal_output_delta": {"data": 1}}, {"terminal_exit": None}):
        assert told(turns, _meta=meta).content is msgspec.UNSET


def test_a_v2_client_is_shown_a_terminal() -> None:
    turns = TurnsV1("codex")
    fact = told(turns, "tool_call", **SHOWN, status="completed", _meta={**INFO, **delta("one\n"), **ended(0)})
    call = ToolCall("c1", PartId("p"), StepId("s"), TurnId("t"), 1, status="completed", content=fact.content)
    updates = v2.updates(ToolUpdated(call=call, source=fact.source), {})
    bodies = [msgspec.json.decode(msgspec.json.encode(update.body)) for update in updates]
    output = base64.b64encode(b"one\n").decode()
    assert [body["sessionUpdate"] for body in bodies] == ["terminal_update", "tool_call_update"]
    assert bodies[0]["output"] == {"data": output} and bodies[0]["exitStatus"]["exitCode"] == 0
    assert bodies[1]["content"] == [{"type": "terminal", "terminalId": "c1"}]
