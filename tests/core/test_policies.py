"""What is held, and when: no safety invariant sees it, so it is told as playbooks. And who is answered how."""

import pytest

from gateway.core import events as ev
from gateway.core.inputs import AgentAsk, AgentGone, AgentReady, AgentTool, GraceOver, TurnBegan
from gateway.core.model import Option
from gateway.core.session import Policy
from gateway.core.waits import idle
from tests.core.play import ABORT, Play, died, ended, submit, text, unwritten, verdict, written

OPTIONS = (Option("yes", "Yes", "allow_once"), Option("no", "No", "reject_once"))


def held(p: Play) -> dict[str, str]:
    """Of each message that is not delivered: why it is held, or where it is."""
    return {p.world.names(m.id): m.held or m.state for m in p.state.inbox.values()}


def test_abort_each_message_by_its_own_wish() -> None:
    p = Play().running(steer=False)
    p.put(submit("h", "steer"), submit("r", on_abort="revoke"), submit("k", on_abort="keep"))
    p.put(ABORT).expect("""
        abort T1
        cancelling T1 abort
        held h abort
        revoked r
        !! CancelTurn T1
    """)
    assert (p.settled("h"), p.settled("r"), p.settled("k")) == ("held h why=abort", "revoked r", None)
    p.put(ended(p, "O1", "cancelled")).expect("""
        step S1 T1 answers=a
        placed h
        placed k
        step end S1 cancelled
        ended T1 cancelled
        session
        turn T2 prompt
        offered O2 prompt k
        placed h
        !! OfferPrompt O2 k
    """)
    p.put(written(p, "O2")).put(ended(p, "O2")).has("ended T2 end_turn")
    assert held(p) == {"h": "abort"} and idle(p.root)


def test_abort_of_offered_steers_follows_their_wish_when_they_come_back() -> None:
    p = Play().running()
    p.put(submit("h", "steer"), submit("r", "steer", on_abort="revoke"), submit("k", "steer", on_abort="keep"))
    p.put(verdict(p, "O2", "refused"))  # h alone was offered at first
    assert held(p) == {"h": "pending", "r": "pending", "k": "pending"}
    p.put(ended(p, "O1")).has("offered O3 prompt h r k")
    p.put(ABORT).expect("""
        abort T2 returning h r
        cancelling T2 abort
    """)
    p.put(unwritten(p, "O3")).expect("""
        returned h unwritten held=unwritten
        returned r unwritten held=unwritten
        revoked r
        returned k unwritten held=unwritten
        ended T2 unwritten error=agent_exit
        session
    """)


@pytest.mark.parametrize("wish, after", [("hold", "abort"), ("revoke", None), ("keep", "pending")])
def test_abort_and_a_steer_that_is_refused_afterwards(wish: str, after: str | None) -> None:
    p = Play().running()
    p.put(submit("b", "steer", on_abort=wish)).put(ABORT)
    assert held(p) == {"b": "offered"}  # nobody is told before the verdict
    p.put(verdict(p, "O2", "refused"))
    assert held(p).get("b") == after
    assert p.settled("b") == {"hold": "held b why=abort", "revoke": "revoked b", "keep": None}[wish]


@pytest.mark.parametrize("wish", ["hold", "revoke", "keep"])
def test_abort_and_a_steer_that_is_injected_all_the_same(wish: str) -> None:
    p = Play().running()
    p.put(submit("b", "steer", on_abort=wish)).put(ABORT)
    p.put(verdict(p, "O2", "injected")).expect("""
        delivered b T1 injected
    """)
    p.put(ended(p, "O1", "cancelled"))
    assert p.settled("b") == "ended b T1 cancelled"


def test_a_submit_after_the_abort_does_not_save_what_is_to_be_revoked() -> None:
    p = Play().running()
    p.put(submit("r", "steer", on_abort="revoke")).put(ABORT)
    p.put(submit("n")).expect("""
        admitted n queue
        == pending n
    """)
    p.put(verdict(p, "O2", "refused")).expect("""
        returned r refused
        revoked r
    """)


def test_a_submit_after_the_abort_saves_what_is_to_be_held() -> None:
    p = Play().running()
    p.put(submit("h", "steer")).put(ABORT)
    p.put(submit("n")).expect("""
        released h
        admitted n steer
        == pending n
    """)
    p.put(verdict(p, "O2", "refused")).expect("""
        returned h refused
    """)
    p.put(ended(p, "O1", "cancelled")).has("offered O3 prompt h n")


def test_a_submit_after_the_abort_does_not_save_an_uncertain_one_that_was_sent_again() -> None:
    p = Play().running().put(submit("u", "steer")).put(died())
    p.put(submit("u", "steer")).put(AgentReady()).has("offered O3 prompt u")
    p.put(ABORT).has("abort T2 returning u")
    p.put(submit("n")).expect("""
        admitted n queue
        == pending n
    """)
    p.put(submit("u", "steer")).has("released u")  # its own submission does


def test_only_a_submit_with_start_releases() -> None:
    p = Play().running(steer=False)
    p.put(submit("h")).put(ABORT)
    p.put(submit("s", "steer", if_idle="refuse")).expect("""
        admitted s steer
        placed h
        == pending s
    """)
    p.put(submit("t", if_idle="store")).expect("""
        admitted t queue
        == pending t
    """)
    p.put(ended(p, "O1", "cancelled")).has("offered O2 prompt s")
    assert held(p)["h"] == "abort"


def test_abort_when_nothing_runs() -> None:
    p = Play()
    p.put(ABORT).expect_nothing()
    p.put(submit("a"), submit("k", on_abort="keep"))  # the agent is starting
    p.put(ABORT).expect("""
        abort -
        held a abort
    """)
    p.put(ABORT).expect_nothing()
    p.put(AgentReady()).has("offered O1 prompt k")


def test_abort_cancels_a_request_that_is_open_outside_a_turn() -> None:
    p = Play().idle()
    p.put(AgentAsk(agent_ref="r1", options=OPTIONS))
    p.put(ABORT).expect("""
        abort -
        settled R1 cancelled:abort
        !! AnswerAgent r1 cancelled:abort
    """)


def test_abort_answers_requests_and_late_ones_too() -> None:
    p = Play().running()
    p.put(AgentAsk(agent_ref="r1", tool=AgentTool(call_id="c1", new=True), options=OPTIONS))
    p.put(ABORT).expect("""
        abort T1
        settled R1 cancelled:abort
        cancelling T1 abort
        !! AnswerAgent r1 cancelled:abort
        !! CancelTurn T1
    """)
    p.put(AgentAsk(agent_ref="r2", options=OPTIONS)).expect("""
        !! AnswerAgent r2 cancelled:abort
    """)
    p.put(ABORT).expect_nothing()
    p.put(ended(p, "O1", "cancelled")).expect("""
        tool c1 P1 S1 cancelled
        step end S1 cancelled
        ended T1 cancelled
        session
    """)
    p.put(AgentTool(call_id="c1", status="completed")).expect("""
        tool c1 P1 S1 completed
    """)  # the agent's word is the last


def test_an_agent_that_ignores_cancel_is_killed_and_the_turn_is_cancelled() -> None:
    p = Play().running(steer=False)
    p.put(submit("h")).put(ABORT)
    p.put(GraceOver(turn_id=p.id("T1"))).expect("""
        !! KillAgent
    """)
    p.put(submit("n")).has("released h", "admitted n steer")
    p.put(died()).expect("""
        step S1 T1 answers=a
        placed n
        placed h
        step end S1 cancelled
        ended T1 cancelled
        session
        ~ agent absent error=agent_exit
        ~ agent starting
        !! StartAgent
    """)  # what was sent after the abort goes on


def test_grace_over_for_a_turn_that_ended_does_nothing() -> None:
    p = Play().running()
    p.put(ABORT).put(ended(p, "O1", "cancelled"))
    p.put(GraceOver(turn_id=p.id("T1"))).expect_nothing()


def test_death_holds_everything() -> None:
    p = Play().running()
    p.put(submit("q"), submit("k", on_abort="keep"), submit("s", "steer"))
    p.put(died()).expect("""
        returned s lost held=lost uncertain
        step S1 T1 answers=a
        placed s
        placed q
        placed k
        step end S1 error
        ended T1 error error=agent_exit
        session
        held q agent_exit
        held k agent_exit
        ~ agent absent error=agent_exit
    """)
    assert idle(p.root)
    p.put(submit("n")).expect("""
        released q
        released k
        admitted n steer
        ~ agent starting
        placed q
        placed k
        !! StartAgent
        == pending n
    """)  # the next submit: all but the uncertain go
    p.put(AgentReady()).has("offered O3 prompt n")
    assert held(p) == {"q": "pending", "k": "pending", "s": "lost", "n": "offered"}


def test_an_agent_that_is_stopped_while_idle_holds_nothing() -> None:
    p = Play().idle()
    p.put(AgentGone()).expect("""
        ~ agent absent
    """)
    p.put(submit("b")).expect("""
        admitted b queue
        ~ agent starting
        !! StartAgent
        == pending b
    """)


def test_an_agent_that_cannot_be_started_is_not_started_again_and_again() -> None:
    p = Play()
    p.put(submit("a"), submit("b"))
    p.put(died("auth_required")).expect("""
        ~ agent absent error=auth_required
        held a agent_exit
        held b agent_exit
    """)
    assert p.settled("a") == "held a why=agent_exit error=auth_required"


def test_an_error_answer_holds_everything() -> None:
    p = Play().running(steer=False)
    p.put(submit("q"), submit("s", "steer"))
    p.put(ended(p, "O1", "error", "auth_required")).expect("""
        step S1 T1 answers=a
        placed s
        placed q
        step end S1 error
        ended T1 error error=auth_required
        session
        held s auth_required
        held q auth_required
    """)
    assert p.settled("a") == "ended a T1 error error=auth_required"


def test_an_error_answer_holds_a_steer_that_comes_back_later() -> None:
    p = Play().running()
    p.put(submit("s", "steer"))
    p.put(ended(p, "O1", "error", "auth_required")).has("ended T1 error error=auth_required")
    p.put(verdict(p, "O2", "refused")).expect("""
        returned s refused held=auth_required
    """)


@pytest.mark.parametrize("outcome", ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"])
def test_after_any_ordinary_end_the_queue_goes_on(outcome: str) -> None:
    p = Play().running()
    p.put(submit("b"))
    p.put(ended(p, "O1", outcome)).has("offered O2 prompt b")


def test_restart_run() -> None:
    p = Play().running()
    p.put(text("so far"), AgentTool(call_id="c1", new=True, status="in_progress"))
    p.put(submit("s", "steer"), submit("q"), submit("t", if_idle="store"))
    p.restart("run").expect("""
        returned s lost held=lost uncertain
        tool c1 P2 S1 cancelled
        step end S1 interrupted
        ended T1 interrupted
        session
        ~ agent starting
        !! StartAgent
    """)
    assert held(p) == {"s": "lost", "q": "pending", "t": "pending"}
    assert p.settled("a") == "ended a T1 interrupted"


def test_restart_hold() -> None:
    p = Play().running()
    p.put(submit("s", "steer"), submit("q"))
    p.restart("hold").expect("""
        returned s lost held=lost uncertain
        step S1 T1 answers=a
        placed s
        placed q
        step end S1 interrupted
        ended T1 interrupted
        session
        held q restart
    """)
    assert held(p) == {"s": "lost", "q": "restart"}


def test_restart_with_open_text_keeps_the_checkpoint() -> None:
    p = Play().running().put(text("so far"))
    p.restart().expect("""
        part end P1 'so far'
        step end S1 interrupted
        ended T1 interrupted
        session
    """)


def test_an_accepted_steer_is_begun_by_the_agent_itself() -> None:
    p = Play().running()
    p.put(submit("s", "steer")).put(verdict(p, "O2", "accepted")).expect("""
        ~ accepted O2
    """)
    p.put(submit("q"))
    p.put(ended(p, "O1")).expect("""
        step S1 T1 answers=a
        placed s
        placed q
        step end S1 end_turn
        ended T1 end_turn
        session
    """)  # q waits: the agent holds s
    p.put(TurnBegan()).expect("""
        turn T2 agent
    """)
    p.put(verdict(p, "O2", "injected")).expect("""
        delivered s T2 injected
        placed q
    """)
    p.put(ended(p, None)).expect("""
        step S2 T2 answers=s
        placed q
        step end S2 end_turn
        ended T2 end_turn
        session
        turn T3 prompt
        offered O3 prompt q
        !! OfferPrompt O3 q
    """)
    assert p.settled("s") == "ended s T2 end_turn"


def test_a_second_steer_while_one_is_accepted() -> None:
    p = Play().running()
    p.put(submit("s", "steer")).put(verdict(p, "O2", "accepted"))
    p.put(submit("t", "steer")).expect("""
        admitted t steer
        offered O3 injected t
        !! OfferSteer O3 t
        == offered t
    """)
    p.put(verdict(p, "O3", "injected"), verdict(p, "O2", "injected")).expect("""
        delivered t T1 injected
        placed s
        delivered s T1 injected
    """)


def test_interrupt_by_setting() -> None:
    p = Play(Policy(steer_fallback="interrupt")).running()
    p.put(submit("q"), submit("s", "steer"))  # steerable: offered, not interrupted
    p.put(verdict(p, "O2", "refused")).expect("""
        returned s refused
        cancelling T1 interrupt
        !! CancelTurn T1
    """)
    p.put(ended(p, "O1", "cancelled")).has("offered O3 prompt s")


def test_no_word_of_idle_ends_a_prompt_that_is_on_its_way() -> None:
    p = Play().idle()
    p.put(submit("b")).has("offered O2 prompt b")
    p.put(ended(p, None)).expect_nothing()
    p.put(ended(p, "O1")).expect_nothing()
    p.put(written(p, "O2")).has("delivered b T2 prompt")
    p.put(ended(p, "O2")).has("ended T2 end_turn")


def test_the_end_of_a_prompt_says_that_it_was_written() -> None:
    p = Play().put(submit("a")).put(AgentReady())
    p.put(ended(p, "O1")).expect("""
        delivered a T1 prompt
        session title=a
        step S1 T1 answers=a
        step end S1 end_turn
        ended T1 end_turn
        session
    """)


def test_a_verdict_of_the_wrong_kind_changes_nothing() -> None:
    p = Play().put(submit("a")).put(AgentReady(can_steer=True))
    p.put(verdict(p, "O1", "injected"), verdict(p, "O1", "lost")).expect_nothing()
    p.put(written(p, "O1")).put(submit("s", "steer"))
    p.put(written(p, "O2"), unwritten(p, "O2")).expect_nothing()


def test_a_turn_says_whether_the_session_rests_after_it() -> None:
    def ends(p: Play) -> list[bool]:
        assert p.decision is not None
        return [r.event.more for r in p.decision.records if isinstance(r.event, ev.TurnEnded)]

    p = Play().running().put(submit("b"))
    assert ends(p.put(ended(p, "O1"))) == [True]
    assert ends(p.put(written(p, "O2")).put(ended(p, "O2"))) == [False]
    p = Play().running().put(submit("b"))
    assert ends(p.put(ended(p, "O1", "error", "agent_error"))) == [False]  # it is held
    p = Play().running().put(submit("b"), ABORT)
    assert ends(p.put(ended(p, "O1", "cancelled"))) == [False]
    p = Play().running().put(submit("k", on_abort="keep"), ABORT)
    assert ends(p.put(ended(p, "O1", "cancelled"))) == [True]
    p = Play().running().put(submit("b"))
    assert ends(p.put(died())) == [False]
