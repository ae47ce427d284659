"""Permission rules of the settings: which requests they answer, with what, and what everyone is told of it."""

import pytest

from gateway.core.events import RequestSettled
from gateway.core.inputs import AgentAsk, AgentChild, AgentTool
from gateway.core.model import By, Option, Selected
from gateway.core.session import Policy
from tests.core.play import ABORT, Play, ended, submit, written

ALWAYS = Option("always", "Always", "allow_always")
ONCE = Option("once", "Once", "allow_once")
NO = Option("no", "No", "reject_once")
NEVER = Option("never", "Never", "reject_always")
ALL = (ALWAYS, ONCE, NEVER, NO)


def asks(kind: str | None = "edit", options: tuple[Option, ...] = ALL, session: str = "", call: str = "c1") -> AgentAsk:
    fields = {"kind": kind} if kind else {}
    tool = AgentTool(call_id=call, status="pending", title="touch", agent_session=session, **fields)
    return AgentAsk(agent_ref="r1", tool=tool, options=options, agent_session=session)


def play(**permissions: str) -> Play:
    rules = {("*" if kind == "other_kinds" else kind): rule for kind, rule in permissions.items()}
    return Play(Policy(permissions=rules)).running()  # type: ignore[arg-type]


def answers(p: Play) -> list[str]:
    return [line for line in p._told if line.startswith("!! AnswerAgent")]


def test_allow_is_once_and_the_event_says_who() -> None:
    p = play(edit="allow")
    p.put(asks()).expect("""
        step S1 T1 answers=a
        tool c1 P1 S1 pending new
        tool c1 P1 S1 pending
        settled R1 once rule=allow tool=c1
        !! AnswerAgent r1 once
    """)
    assert p.transcript.tool("c1").rule == "allow"
    assert p.decision is not None
    record = next(r for r in p.decision.records if isinstance(r.event, RequestSettled))
    assert record.by == By("policy", "gateway")
    assert (record.event.option_kind, record.event.turn_id) == ("allow_once", p.id("T1"))
    assert not p.state.requests and p.state.settled[record.event.request_id] == Selected("once")


def test_deny_is_the_agents_own_no_and_never_a_lasting_one() -> None:
    p = play(edit="deny")
    p.put(asks()).has("settled R1 no rule=deny tool=c1", "!! AnswerAgent r1 no")
    assert p.transcript.tool("c1").rule == "deny"


def test_deny_without_a_no_is_cancelled() -> None:
    p = play(edit="deny")
    p.put(asks(options=(ONCE, NEVER))).has("settled R1 cancelled:policy rule=deny tool=c1")
    assert answers(p) == ["!! AnswerAgent r1 cancelled:policy"]


@pytest.mark.parametrize("options", [(ALWAYS, NO), (Option("x", "X", "sure"),), ()])
def test_allow_needs_an_option_for_just_this_once(options: tuple[Option, ...]) -> None:
    """Never an "always", never a kind that we do not know: people are asked."""
    p = play(edit="allow")
    p.put(asks(options=options)).has("request R1 permission tool=c1")
    assert not answers(p) and len(p.state.requests) == 1


@pytest.mark.parametrize(
    ("kind", "rules", "told"),
    [
        ("edit", {}, "asked"),
        ("edit", {"edit": "ask", "other_kinds": "allow"}, "asked"),
        ("edit", {"execute": "allow"}, "asked"),
        ("edit", {"other_kinds": "allow"}, "once"),
        ("edit", {"edit": "allow", "other_kinds": "deny"}, "once"),
        ("delete", {"edit": "allow", "other_kinds": "deny"}, "no"),
        ("its own word", {"edit": "allow", "other_kinds": "deny"}, "no"),
        ("its own word", {"edit": "allow"}, "asked"),
        (None, {"other": "deny"}, "no"),  # a call without a kind is one of "other"
    ],
)
def test_which_rule_counts(kind: str | None, rules: dict[str, str], told: str) -> None:
    p = play(**rules).put(asks(kind))
    wanted = [] if told == "asked" else [f"!! AnswerAgent r1 {told}"]
    assert answers(p) == wanted and len(p.state.requests) == (told == "asked")


def test_the_kind_that_an_earlier_update_told() -> None:
    p = play(execute="deny")
    p.put(AgentTool(call_id="c1", status="pending", kind="execute", new=True))
    p.put(asks(None)).has("!! AnswerAgent r1 no")


def test_a_question_and_a_permission_of_no_tool_go_to_people() -> None:
    p = play(other_kinds="deny")
    form = AgentAsk(agent_ref="r1", kind="elicitation", title="Name?", tool=asks().tool)
    p.put(form).has("request R1 elicitation tool=c1")
    p.put(AgentAsk(agent_ref="r2", title="Sure?", options=ALL)).has("request R2 permission")
    assert len(p.state.requests) == 2


def test_a_request_of_a_child() -> None:
    p = play(edit="allow").put(AgentChild(child="kid", state="running"))
    p.put(asks(session="kid")).has("@kid settled R1 once rule=allow tool=c1", "!! AnswerAgent r1 once")
    assert p.child("kid").transcript.tool("c1").rule == "allow"


def test_a_cancelled_turn_allows_nothing() -> None:
    p = play(edit="allow").put(ABORT)
    p.put(asks()).expect("""
        !! AnswerAgent r1 cancelled:abort
    """)


def test_the_next_call_is_asked_for_anew() -> None:
    """A rule answers each request by itself, and another call of the same name has not been ruled upon."""
    p = play(edit="allow")
    p.put(asks()).put(ended(p, "O1"), submit("b")).put(written(p, "O2"))
    p.put(AgentTool(call_id="c1", status="pending", new=True))
    assert p.transcript.tool("c1").rule == ""
    p.put(asks()).has("!! AnswerAgent r1 once")


def test_it_is_told_again_after_a_restart() -> None:
    p = play(edit="deny")
    p.put(asks()).put(ended(p, "O1"))
    p.restart()
    assert p.transcript.tool("c1").rule == "deny"


@pytest.mark.parametrize(
    "rule, kinds", [("allow", ("allow_always", "allow_once")), ("deny", ("reject_once", "allow_always"))]
)
def test_an_option_that_says_two_things_goes_to_people(rule: str, kinds: tuple[str, str]) -> None:
    options = tuple(Option("x", kind, kind) for kind in kinds)
    play(edit=rule).put(asks(options=options)).has("request R1 permission tool=c1")
