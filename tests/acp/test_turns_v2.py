"""``adapters/acp/turns_v2``, ``steering``: orders of messages that an agent may choose, one a test. No I/O."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from adapters.acp import rpc
from adapters.acp import translate_v2 as v2
from adapters.acp.steering import Answered, ByInject, ByMethod
from adapters.acp.turns_v2 import TurnsV2
from gateway.core import effects, inputs
from gateway.core.content import Content, Text
from gateway.core.ids import MessageId, OfferId, TurnId
from gateway.core.inputs import AgentFact, PromptEnded, TurnBegan
from tests.acp.support import pending

Json = dict[str, Any]
OFFER = OfferId("off_1")
HI = (Text("hi"),)


class Told:
    """The facts of a session whose agent says what a test says."""

    def __init__(self, landed: dict[str, list[AgentFact]] | None = None) -> None:
        self.landed = landed or {}
        self.turns = TurnsV2("agent", lambda agent_id, content: self.landed.pop(agent_id, None))

    def say(self, kind: str, of: str = "", **fields: Any) -> list[AgentFact]:
        update = json.dumps({"sessionUpdate": kind, **fields}).encode()
        return [told for fact in v2.decode(update, of) for told in self.turns.take(fact)]

    def state(self, word: str, **fields: Any) -> list[AgentFact]:
        return self.say("state_update", state=word, **fields)

    def user(self, message_id: str, text: str = "hi") -> list[AgentFact]:
        return self.say("user_message", messageId=message_id, content=[{"type": "text", "text": text}])

    def answer(self, **result: Any) -> list[AgentFact]:
        return self.turns.answered(OFFER, msgspec.Raw(json.dumps(result).encode()), None)

    def refuse(self, code: int) -> list[AgentFact]:
        return self.turns.answered(OFFER, None, rpc.RpcError(code, "no"))


def kinds(facts: Sequence[AgentFact]) -> list[str]:
    return [type(fact).__name__ for fact in facts]


def ended(facts: Sequence[AgentFact], offer: OfferId | None = OFFER, outcome: str = "end_turn") -> bool:
    return [(f.offer_id, f.outcome) for f in facts if isinstance(f, PromptEnded)] == [(offer, outcome)]


@pytest.mark.parametrize("order", ["echo answer running", "running echo answer", "answer running echo"])
def test_a_prompt(order: str) -> None:
    t = Told()
    t.turns.written(OFFER)
    said = []
    for word in order.split():
        said += {"echo": lambda: t.user("m1"), "answer": lambda: t.answer(messageId="m1")}.get(
            word, lambda: t.state("running")
        )()
    assert said == [inputs.AgentUser(content=(), agent_id="m1", offer_id=OFFER)]
    assert ended(t.state("idle"))
    assert t.state("idle") == [] and t.state("idle", stopReason="end_turn") == []  # snapshots repeat


def test_an_idle_snapshot_before_the_prompt_is_inserted_ends_nothing() -> None:
    t = Told()
    t.turns.written(OFFER)
    assert t.state("idle") == [] and t.state("idle", stopReason="end_turn") == []
    t.user("m1")
    t.answer(messageId="m1")
    assert t.state("idle") == []  # of the background, before it says that it runs
    t.state("running")
    assert ended(t.state("idle", stopReason="max_tokens"), outcome="max_tokens")


def test_a_turn_of_the_agents_own_that_a_prompt_crosses() -> None:
    t = Told()
    assert t.state("running") == [TurnBegan()]
    t.turns.written(OFFER)  # the gateway did not know yet
    assert t.state("running") == []
    assert not [f for f in t.state("idle", stopReason="end_turn") if isinstance(f, PromptEnded)]
    t.user("m1")
    t.answer(messageId="m1")
    assert t.state("idle") == [] and t.state("running") == []
    assert ended(t.state("idle"))


def test_a_prompt_that_crosses_the_beginning_of_such_a_turn() -> None:
    t = Told()
    t.turns.written(OFFER)
    assert t.state("running") == []
    assert t.state("idle", stopReason="end_turn") == []
    assert kinds(t.user("m1")) == ["AgentUser"] and t.answer(messageId="m1") == []
    assert t.state("idle") == [] and t.state("running") == []
    assert ended(t.state("idle"))


def test_an_agent_that_answers_after_the_end() -> None:
    t = Told()
    t.turns.written(OFFER)
    t.state("running")
    assert t.state("idle", stopReason="refusal") == []
    facts = t.answer(messageId="m1")
    assert kinds(facts) == ["AgentUser", "PromptEnded"] and ended(facts, outcome="refusal")


def test_an_agent_that_answers_as_v1_does() -> None:
    t = Told()
    t.turns.written(OFFER)
    assert ended(t.answer(stopReason="max_tokens"), outcome="max_tokens")


def test_a_prompt_that_was_not_inserted() -> None:
    t = Told()
    t.turns.written(OFFER)
    assert ended(t.refuse(-32800), outcome="cancelled")
    assert t.state("idle", stopReason="cancelled") == []
    t.turns.written(OFFER)
    t.state("running")
    (failed,) = t.refuse(-32000)
    assert isinstance(failed, PromptEnded) and failed.error and failed.error.code == "auth_required"
    assert t.state("idle", stopReason="error", error={"code": -32000, "message": "no"}) == []


def test_states_that_are_not_idle() -> None:
    t = Told()
    assert t.state("requires_action") == [TurnBegan()]
    assert t.state("running") == [] and t.state("unknown") == [] and t.state("_tired") == []
    assert ended(t.state("idle", stopReason="_odd"), None)


def test_an_error_of_a_turn() -> None:
    t = Told()
    t.turns.written(OFFER)
    t.user("m1")
    t.state("running")
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    error = {"code": 429, "message": "slow down", "data": {"retry": 5}}
    (end,) = t.state("idle", stopReason="error", error=error, usage=usage)
    assert isinstance(end, PromptEnded) and end.error and end.tokens and end.tokens.total == 3
    assert (end.error.message, end.error.data) == ("slow down", {"code": 429, "data": {"retry": 5}})


def test_background_is_told_when_it_changes() -> None:
    t = Told()
    work = [{"type": "terminal", "terminalId": "t1"}, {"type": "subagent", "sessionId": "kid"}]
    assert t.state("idle", background=work) == [inputs.AgentBackground(items=(work[0],))]
    assert t.state("idle", background=work) == [] and t.state("idle") == []
    assert t.state("idle", background=[]) == [inputs.AgentBackground(items=())]


def test_a_childs_own_state() -> None:
    t = Told()
    assert t.state("running") == [TurnBegan()]
    assert t.say("state_update", of="kid", state="running") == []  # nobody announced it
    t.say("subagent_update", sessionId="kid", state={"state": "running"})
    assert t.say("state_update", of="kid", state="running") == []
    (asks,) = t.say("state_update", of="kid", state="requires_action")
    assert isinstance(asks, inputs.AgentChild) and (asks.child, asks.state) == ("kid", "requires_action")
    (over,) = t.say("state_update", of="kid", state="idle", stopReason="cancelled")
    assert isinstance(over, inputs.AgentChild) and (over.state, over.outcome, over.agent_session) == (
        *("idle", "cancelled"),
        "",
    )


# --- user messages ---------------------------------------------------------------------------------------------------


def test_chunks_of_our_own_message_say_nothing_new() -> None:
    t = Told()
    t.turns.written(OFFER)
    chunk = {"messageId": "m1", "content": {"type": "text", "text": "h"}}
    assert kinds(t.say("user_message_chunk", **chunk)) == ["AgentUser"]
    assert t.say("user_message_chunk", **chunk) == [] and t.turns.flush() == []


def test_a_message_from_elsewhere_is_told_when_it_is_whole() -> None:
    t = Told()
    assert t.say("user_message", messageId="m9", content=[]) == [] and t.turns.flush() == []
    for word in ("a", "b"):
        assert t.say("user_message_chunk", messageId="m9", content={"type": "text", "text": word}) == []
    assert t.state("running") == [inputs.AgentUser(content=(Text("a"), Text("b")), agent_id="m9"), TurnBegan()]
    assert t.user("m9") == []
    assert t.user("m10") == [] and kinds(t.turns.flush()) == ["AgentUser"]


def test_a_steer_that_waited_for_the_end_begins_a_turn() -> None:
    verdict = inputs.SteerVerdict(offer_id=OFFER, verdict="injected", agent_id="m2")
    t = Told({"m2": [verdict]})
    assert t.user("m2") == [TurnBegan(), verdict]
    t.landed["m3"] = [verdict]
    assert t.state("running") == [] and t.user("m2") == [] and t.user("m3") == [verdict]
    assert ended(t.state("idle", stopReason="end_turn"), None)


# --- a replay --------------------------------------------------------------------------------------------------------


def test_an_agent_that_works_on_is_joined_in_its_turn() -> None:
    t = Told()
    (state,) = v2.decode(b'{"sessionUpdate":"state_update","state":"running","background":[{"type":"tool_call"}]}')
    assert t.turns.replayed(state) == []
    assert kinds(t.turns.ready()) == ["AgentBackground", "TurnBegan"]
    assert ended(t.state("idle"), None)


# --- terminals -------------------------------------------------------------------------------------------------------


def output(t: Told, data: bytes) -> None:
    t.say("terminal_output_chunk", terminalId="t", data=base64.b64encode(data).decode())


def texts(facts: Sequence[AgentFact]) -> list[str]:
    return [f.content[0]["content"]["text"] for f in facts if isinstance(f, inputs.AgentTool)]


def test_the_output_of_a_terminal_is_shown_as_it_grows_but_not_over_and_over() -> None:
    t = Told()
    shown = [{"type": "terminal", "terminalId": "t"}]
    assert texts(t.say("tool_call_update", toolCallId="c", content=shown)) == [""]
    seen = 0
    for _ in range(1000):
        output(t, b"a line of output\n")
        seen += len(t.turns.flush())
    assert 20 < seen < 80
    t.say("terminal_update", terminalId="t", exitStatus={"exitCode": 1})
    (last,) = texts(t.turns.flush())
    assert last == "a line of output\n" * 1000 + "\n[exit code 1]"
    assert t.turns.flush() == []


def test_output_is_bounded_and_broken_data_is_skipped() -> None:
    t = Told()
    t.say("tool_call_update", toolCallId="c", content=[{"type": "terminal", "terminalId": "t"}])
    for _ in range(100):
        output(t, b"\x1b[31mx\x1b[0m" * 500)
    t.say("terminal_output_chunk", terminalId="t", data="§§")
    output(t, b"\xff end")
    (call,) = [f for f in t.state("idle") if isinstance(f, inputs.AgentTool)]
    text = call.content[0]["content"]["text"]
    assert text.endswith("\ufffd end") and "\x1b[31m" not in text and text.startswith("[") and len(text) < 70_000


# --- steers ----------------------------------------------------------------------------------------------------------


class Line:
    own_id = "s1"

    def __init__(self) -> None:
        self.asked: list[tuple[str, Json, Answered]] = []
        self.facts: list[AgentFact] = []
        self.writes = True

    def blocks(self, content: Content) -> list[Json]:
        return [{"type": "text", "text": each.text} for each in content if isinstance(each, Text)]

    def steer_call(self, method: str, params: Json, answered: Answered) -> bool:
        if self.writes:
            self.asked.append((method, params, answered))
        return self.writes

    def add(self, *facts: AgentFact) -> None:
        self.facts += facts

    def timed_out(self, error: rpc.RpcError) -> bool:
        return error.code == 0

    def answer(self, **result: Any) -> str:
        """Answer the oldest request."""
        method, _, answered = self.asked.pop(0)
        answered(msgspec.Raw(json.dumps(result).encode()), None)
        return method

    def fail(self, code: int, **data: Any) -> None:
        self.asked.pop(0)[2](None, rpc.RpcError(code, "no", data or None))

    def told(self) -> list[Any]:
        """What was told since: (verdict, message) of steers, and whether a withdraw was done."""
        facts, self.facts = self.facts, []
        return [
            (f.verdict, f.message_id) if isinstance(f, inputs.SteerVerdict) else f.done
            for f in facts
            if isinstance(f, inputs.SteerVerdict | inputs.WithdrawVerdict)
        ]


def offer(*texts: str) -> effects.OfferSteer:
    messages = [msgspec.structs.replace(pending(text), id=MessageId(text)) for text in texts]
    return effects.OfferSteer(OFFER, TurnId("trn_1"), tuple(messages))


def wish(name: str, content: Content | None = None) -> effects.Withdraw:
    return effects.Withdraw(OFFER, MessageId(name), 7, content)


def test_injects_go_one_after_the_other() -> None:
    line = Line()
    steers = ByInject(line, replace=True)
    steers.offer(offer("a", "b"))
    assert [params["content"][0]["text"] for _, params, _ in line.asked] == ["a"]
    line.answer(messageId="m1")
    line.answer(messageId="m2")
    assert line.told() == [("accepted", None)]
    (landed,) = steers.landed("m2", ()) or []
    assert isinstance(landed, inputs.SteerVerdict) and (landed.message_id, landed.agent_id) == ("b", "m2")
    assert steers.landed("m2", ()) is None and steers.landed("m9", HI) is None


def test_a_refusal_keeps_the_order() -> None:
    line = Line()
    steers = ByInject(line, replace=True)
    steers.offer(offer("a", "b", "c"))
    line.answer(messageId="m1")
    line.fail(-32010, reason="no_running_turn")
    assert line.told() == [("refused", "b"), ("refused", "c"), ("accepted", None)]
    line.writes = False
    steers.offer(offer("d"))
    assert line.told() == [("refused", "d")]


def test_a_message_that_lands_before_its_inject_is_answered() -> None:
    line = Line()
    steers = ByInject(line, replace=True)
    steers.offer(offer("hi"))
    steers.withdraw(wish("hi"))
    verdict, no = steers.landed("m1", HI) or []
    assert isinstance(verdict, inputs.SteerVerdict) and verdict.agent_id == "m1"
    assert isinstance(no, inputs.WithdrawVerdict) and not no.done
    line.answer(messageId="m1")
    assert line.told() == [("accepted", None)] and not line.asked


@pytest.mark.parametrize(
    ("code", "data", "told"),
    [
        (-32010, {"reason": "already_delivered"}, [False]),
        (-32602, {"reason": "already_delivered"}, [False]),
        (-32601, {}, [False]),
        (-32002, {"reason": "unknown_message_id"}, [("lost", "a"), False]),
        (-32002, {}, [("lost", "a"), False]),
        (-32602, {"reason": "unknown_message_id"}, [("lost", "a"), False]),
        (0, {}, [False]),
    ],
)
def test_verdicts_on_a_revoke(code: int, data: Json, told: list[Any]) -> None:
    """Both texts of the proposal."""
    line = Line()
    steers = ByInject(line, replace=True)
    steers.offer(offer("a"))
    line.answer(messageId="m1")
    line.told()
    steers.withdraw(wish("a"))
    assert line.asked[0][:2] == ("session/revoke_inject", {"sessionId": "s1", "messageId": "m1"})
    line.fail(code, **data)
    assert line.told() == told
    assert (steers.landed("m1", ()) is None) == (len(told) == 2)


def test_replace() -> None:
    line = Line()
    steers = ByInject(line, replace=True)
    steers.offer(offer("a"))
    line.answer(messageId="m1")
    steers.withdraw(wish("a", HI))
    assert line.asked[0][1]["content"] == [{"type": "text", "text": "hi"}]
    assert line.answer(messageId="m1") == "session/replace_inject" and line.told()[-1] is True
    cannot = ByInject(line, replace=False)
    cannot.offer(offer("a"))
    line.answer(messageId="m2")
    cannot.withdraw(wish("a", HI))
    assert line.told()[-1] is False and not line.asked


def test_an_inject_that_is_not_answered_is_lost() -> None:
    line = Line()
    steers = ByInject(line, replace=True)
    steers.offer(offer("a", "b"))
    line.fail(0)
    assert line.told() == [("lost", "a")]
    line.answer(messageId="m2")
    assert line.told() == [("accepted", None)]


@pytest.mark.parametrize("echo_first", [True, False])
def test_the_extension_on_v2(echo_first: bool) -> None:
    line = Line()
    steers = ByMethod(line, echoes=True)
    steers.offer(offer("a", "b"))
    assert len(line.asked) == 1
    if echo_first:
        assert kinds(steers.landed("m1", HI) or []) == ["SteerVerdict"]
        line.answer(outcome="injected")
    else:
        line.answer(outcome="injected")
        assert kinds(steers.landed("m1", HI) or []) == ["AgentUser"]
    assert steers.landed("m2", HI) is None
    steers.offer(offer("c"))
    line.answer(outcome="promptRequired", reason="noRunningTurn")
    assert line.told()[-1] == ("refused", None) and steers.landed("m3", HI) is None
