"""The stories that broke a first attempt, told whole. What is held when is in ``test_policies.py``."""

from gateway.core.errors import Conflict
from gateway.core.inputs import (
    Abort,
    AgentAsk,
    AgentReady,
    AgentTool,
    OfferExpired,
    Promote,
    Replace,
    Revoke,
    WithdrawVerdict,
)
from gateway.core.model import Option
from gateway.core.replies import Wait
from gateway.core.session import Policy
from gateway.core.turn import TurnState
from gateway.core.waits import verdict as fate
from tests.core.play import ABORT, Play, died, ended, say, submit, text, unwritten, verdict, written

OPTIONS = (Option("yes", "Yes", "allow_once"), Option("no", "No", "reject_once"))


def withdrawn(p: Play, name: str, question: int, done: bool, offer: str = "O2") -> WithdrawVerdict:
    return WithdrawVerdict(offer_id=p.id(offer), message_id=p.id(name), question=question, done=done)


def test_1_a_request_outside_a_turn_and_the_agent_dies() -> None:
    p = Play().idle()
    p.put(AgentAsk(agent_ref="r1", options=OPTIONS)).expect("""
        request R1 permission
    """)
    p.put(died()).expect("""
        settled R1 cancelled:agent_exit
        ~ agent absent error=agent_exit
    """)


def test_1_a_request_outside_a_turn_and_the_gateway_restarts() -> None:
    p = Play().idle()
    p.put(AgentAsk(agent_ref="r1", options=OPTIONS))
    p.restart().expect("""
        settled R1 cancelled:restart
    """)


def test_2_an_abort_while_an_interrupt_is_running() -> None:
    p = Play(Policy(steer_fallback="interrupt")).running(steer=False)
    p.put(submit("b", "steer")).expect("""
        admitted b steer
        cancelling T1 interrupt
        !! CancelTurn T1
        == pending b
    """)
    p.put(submit("c")).put(ABORT).expect("""
        abort T1
        cancelling T1 abort
        held b abort
        held c abort
    """)
    # recorded: after a reload the turn is known to be aborted, not interrupted
    assert p.state.abort_asked
    p.put(ended(p, "O1", "cancelled")).expect("""
        step S1 T1 answers=a
        placed b
        placed c
        step end S1 cancelled
        ended T1 cancelled
        session
    """)
    assert p.settled("b") == "held b why=abort"
    assert p.settled("c") == "held c why=abort"


def test_3_a_thought_and_a_text_under_one_id() -> None:
    p = Play().running()
    p.put(text("hm", "msg_x", "thought")).expect("""
        step x T1 answers=a
        part P1 x thought x
        ~ P1 'hm'
    """)
    p.put(text("ah", "msg_x")).expect("""
        part end P1 'hm'
        part P2 x agent x
        ~ P2 'ah'
    """)
    assert len({item.step.id for item in p.transcript.items[1:]}) == 1


def test_3_a_thought_and_a_text_under_one_id_in_two_steps() -> None:
    p = Play().running()
    p.put(text("hm", "msg_x", "thought"), AgentTool(call_id="c1", new=True, status="completed"))
    p.put(text("ah", "msg_x")).expect("""
        step end x continued
        step S1 T1 answers=a
        part P3 S1 agent x
        ~ P3 'ah'
    """)
    one, two = p.transcript.items[1:]
    assert one.step.id == "msg_x" != two.step.id


def test_4_a_verdict_after_the_end_of_its_turn() -> None:
    p = Play().running()
    p.put(submit("b", "steer")).expect("""
        admitted b steer
        offered O2 injected b
        !! OfferSteer O2 b
        == offered b
    """)
    p.put(submit("c")).expect("""
        admitted c queue
        == pending c
    """)
    p.put(ended(p, "O1")).expect("""
        step S1 T1 answers=a
        placed b
        placed c
        step end S1 end_turn
        ended T1 end_turn
        session
    """)  # c waits: an offer is undecided
    assert p.settled("b") is None
    p.put(verdict(p, "O2", "injected")).expect("""
        delivered b T1 injected
        placed c
        turn T2 prompt
        offered O3 prompt c
        !! OfferPrompt O3 c
    """)
    assert p.settled("b") == "ended b T1 end_turn"


def test_5_order_is_judged_when_offered() -> None:
    p = Play().running(steer=False)
    p.put(submit("b")).put(submit("c", on_abort="keep")).put(ABORT).expect("""
        abort T1
        cancelling T1 abort
        held b abort
        !! CancelTurn T1
    """)
    p.put(ended(p, "O1", "cancelled")).expect("""
        step S1 T1 answers=a
        placed b
        placed c
        step end S1 cancelled
        ended T1 cancelled
        session
        turn T2 prompt
        offered O2 prompt c
        placed b
        !! OfferPrompt O2 c
    """)  # c is offered while b is held
    p.put(submit("b")).expect("""
        released b
        == pending b duplicate
    """)  # now b is free again: c was first all the same
    p.put(written(p, "O2")).expect("""
        delivered c T2 prompt
        placed b
    """)
    p.put(ended(p, "O2")).expect("""
        step S2 T2 answers=c
        placed b
        step end S2 end_turn
        ended T2 end_turn
        session
        turn T3 prompt
        offered O3 prompt b
        !! OfferPrompt O3 b
    """)


def test_6_two_replaces_of_an_offered_steer() -> None:
    p = Play().running()
    p.put(submit("b", "steer"))
    p.put(Replace(message_id=p.id("b"), content=say("one"))).expect("""
        ~ question b 1 replace
        !! Withdraw b 1 'one'
        == wait b 1
    """)
    first = p.reply
    p.put(Replace(message_id=p.id("b"), content=say("two"))).expect("""
        ~ question b 2 replace
        == wait b 2
    """)  # not asked yet
    second = p.reply
    assert isinstance(first, Wait) and isinstance(second, Wait)
    p.put(withdrawn(p, "b", 1, True)).expect("""
        replaced b 'one' question=1
        !! Withdraw b 2 'two'
    """)
    done = fate(p.root, first)
    assert done is not None and done.kind == "replaced" and fate(p.root, second) is None
    p.put(verdict(p, "O2", "injected")).expect("""
        delivered b T1 injected
    """)
    late = fate(p.root, second)
    assert late is not None and late.kind == "already_delivered"
    assert p.transcript.user("msg_b").content == say("one")


def test_6_a_replace_the_agent_cannot_do_is_done_if_the_message_comes_back() -> None:
    p = Play().running()
    p.put(submit("b", "steer"))
    p.put(Replace(message_id=p.id("b"), content=say("one")))
    p.put(withdrawn(p, "b", 1, False)).expect("""
        ~ cannot b 1
    """)
    p.put(verdict(p, "O2", "refused")).expect("""
        returned b refused
        replaced b 'one' question=1
    """)
    p.put(ended(p, "O1")).has("offered O3 prompt b")
    assert p.decision is not None
    assert p.decision.effects[0].messages[0].content == say("one")


def test_7_uncertain_stays_through_a_resubmission() -> None:
    p = Play().running()
    p.put(submit("b", "steer"))
    p.put(died()).expect("""
        returned b lost held=lost uncertain
        step S1 T1 answers=a
        placed b
        step end S1 error
        ended T1 error error=agent_exit
        session
        ~ agent absent error=agent_exit
    """)
    assert p.settled("b") == "held b why=lost uncertain error=agent_exit"
    p.put(submit("b", "steer")).expect("""
        released b
        ~ agent starting
        !! StartAgent
        == pending b duplicate uncertain
    """)
    p.put(Revoke(message_id=p.id("b"))).expect("""
        revoked b uncertain
        == revoked b uncertain
    """)
    assert p.settled("b") == "revoked b uncertain"
    p.put(submit("b", "steer")).expect("""
        == revoked b duplicate uncertain
    """)  # and stays revoked


def test_7_uncertain_stays_through_an_abort_that_revokes() -> None:
    p = Play().running()
    p.put(submit("b", "steer", on_abort="revoke"))
    p.put(died())
    p.put(submit("b", "steer", on_abort="revoke")).has("released b")
    p.put(ABORT).expect("""
        abort -
        revoked b uncertain
    """)


def test_8_abort_while_prompting() -> None:
    p = Play()
    p.put(submit("a"), submit("b")).put(AgentReady()).expect("""
        ~ agent ready
        turn T1 prompt
        offered O1 prompt a
        !! OfferPrompt O1 a
    """)
    p.put(ABORT).expect("""
        abort T1 returning a
        cancelling T1 abort
        held b abort
    """)  # nobody is told that a is held
    p.put(written(p, "O1")).expect("""
        delivered a T1 prompt
        session title=a
        placed b
        !! CancelTurn T1
    """)
    p.put(ended(p, "O1", "cancelled")).expect("""
        step S1 T1 answers=a
        placed b
        step end S1 cancelled
        ended T1 cancelled
        session
    """)
    assert p.settled("a") == "ended a T1 cancelled"
    assert p.settled("b") == "held b why=abort"


def test_8_abort_while_prompting_and_the_prompt_comes_back() -> None:
    p = Play()
    p.put(submit("a"), submit("b", on_abort="revoke")).put(AgentReady())
    p.put(ABORT).expect("""
        abort T1 returning a
        cancelling T1 abort
        revoked b
    """)
    p.put(unwritten(p, "O1")).expect("""
        returned a unwritten held=unwritten
        ended T1 unwritten error=agent_exit
        session
    """)


def test_9_a_refused_steer_waits_for_the_turns_end() -> None:
    p = Play().running()
    p.put(submit("b", "steer"))
    p.put(verdict(p, "O2", "refused")).expect("""
        returned b refused
    """)
    p.put(text("x")).has("~ P1 'x'")
    p.put(submit("c", "steer")).expect("""
        admitted c steer
        == pending c
    """)  # nor is it overtaken
    p.put(ended(p, "O1")).expect("""
        part end P1 'x'
        step end S1 end_turn
        ended T1 end_turn
        session
        turn T2 prompt
        offered O3 prompt b c
        !! OfferPrompt O3 b c
    """)


def test_9_a_prompt_that_cannot_be_written_is_held_at_once() -> None:
    p = Play()
    p.put(submit("a"), submit("b")).put(AgentReady())
    p.put(unwritten(p, "O1")).expect("""
        returned a unwritten held=unwritten
        ended T1 unwritten error=agent_exit
        session
        held b unwritten
    """)
    assert p.settled("a") == "held a why=unwritten"


def test_10_a_submit_within_the_cancel() -> None:
    p = Play().running(steer=False)
    p.put(submit("s", "steer")).put(submit("q"))
    p.put(ABORT).expect("""
        abort T1
        cancelling T1 abort
        held s abort
        held q abort
        !! CancelTurn T1
    """)
    p.put(submit("n")).expect("""
        released s
        released q
        admitted n steer
        placed q
        == pending n
    """)
    p.put(ended(p, "O1", "cancelled")).expect("""
        step S1 T1 answers=a
        placed s
        placed n
        placed q
        step end S1 cancelled
        ended T1 cancelled
        session
        turn T2 prompt
        offered O2 prompt s n
        !! OfferPrompt O2 s n
    """)  # one turn with the held steer and the new one
    p.put(written(p, "O2")).put(ended(p, "O2")).expect("""
        step S2 T2 answers=n
        placed q
        step end S2 end_turn
        ended T2 end_turn
        session
        turn T3 prompt
        offered O3 prompt q
        !! OfferPrompt O3 q
    """)  # then the queue


def test_a_late_injection_delivers_what_was_given_up() -> None:
    p = Play().running()
    p.put(submit("b", "steer"))
    p.put(OfferExpired(offer_id=p.id("O2"))).expect("""
        returned b lost held=lost uncertain
    """)
    p.put(verdict(p, "O2", "injected", agent_id="u7")).expect("""
        delivered b T1 injected
        alias b u7
    """)


def test_a_promoted_message_is_a_steer_even_if_its_offer_comes_back() -> None:
    p = Play()
    p.put(submit("a"), submit("b")).put(AgentReady())
    p.put(Promote(message_id=p.id("a"))).expect("""
        promoted a
        == promoted a
    """)
    p.put(unwritten(p, "O1"))
    p.put(submit("c")).put(AgentReady())
    assert p.state.turn is TurnState.PROMPTING
    assert p.state.inbox[p.id("a")].state == p.state.inbox[p.id("c")].state == "offered"
    assert p.state.inbox[p.id("b")].state == "pending"


def test_conflict_changes_nothing() -> None:
    p = Play().running()
    p.put(submit("a", text="other"), Abort()).has("== Conflict")
    assert isinstance(p.decision.replies[0], Conflict)
