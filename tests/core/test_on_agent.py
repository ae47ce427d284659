"""Facts of the agent's life and of delivery that no policy or story tells: partial verdicts, stale facts, batches."""

from gateway.core.inputs import (
    AgentAsk,
    AgentAskWithdrawn,
    AgentChild,
    AgentReady,
    AgentText,
    OfferExpired,
    PromptEnded,
    PromptUnwritten,
    PromptWritten,
    Quiet,
    Replace,
    SteerVerdict,
    TurnBegan,
)
from gateway.core.model import Error, Option, Tokens
from tests.core.play import ABORT, Play, died, ended, say, submit, text, unwritten, verdict, written

OPTIONS = (Option("yes", "Yes", "allow_once"),)


def two_steers() -> Play:
    """s and t waited for an answer, and are offered together in O2."""
    p = Play().running()
    p.put(AgentAsk(agent_ref="r1", options=OPTIONS)).put(submit("s", "steer"), submit("t", "steer"))
    return p.put(AgentAskWithdrawn(agent_ref="r1")).expect("""
        settled R1 cancelled:withdrawn
        offered O2 injected s t
        !! OfferSteer O2 s t
    """)


def test_a_verdict_on_one_of_an_offer() -> None:
    p = two_steers()
    p.put(verdict(p, "O2", "injected", "t")).expect("""
        delivered t T1 injected
        placed s
    """)
    p.put(verdict(p, "O2", "refused")).expect("""
        returned s refused
    """)  # what is left of it


def test_facts_about_forgotten_offers_are_ignored() -> None:
    p = Play().idle()
    for fact in (
        PromptWritten(offer_id=p.id("O1")),
        PromptUnwritten(offer_id=p.id("O1"), error=Error("x", "x")),
        SteerVerdict(offer_id=p.id("O1"), verdict="injected"),
        SteerVerdict(offer_id="off_none", verdict="accepted"),
        OfferExpired(offer_id=p.id("O1")),
        ended(p, "O1"),
    ):
        p.put(fact).expect_nothing()


def test_an_offer_that_was_accepted_does_not_expire() -> None:
    p = Play().running().put(submit("s", "steer"))
    p.put(verdict(p, "O2", "accepted")).put(verdict(p, "O2", "accepted")).expect_nothing()
    p.put(OfferExpired(offer_id=p.id("O2"))).expect_nothing()


def test_an_offered_prompt_does_not_expire() -> None:
    p = Play().put(submit("a")).put(AgentReady())
    p.put(OfferExpired(offer_id=p.id("O1"))).expect_nothing()


def test_a_late_injection_delivers_what_was_sent_not_what_was_put_in_its_place() -> None:
    p = Play().running().put(submit("s", "steer"))
    p.put(verdict(p, "O2", "lost")).expect("""
        returned s lost held=lost uncertain
    """)
    p.put(Replace(message_id=p.id("s"), content=say("new"))).expect("""
        replaced s 'new'
        == replaced s uncertain
    """)
    p.put(verdict(p, "O2", "injected"))
    assert p.transcript.user("msg_s").content == say("s")


def test_a_late_refusal_of_one_of_a_lost_offer() -> None:
    p = two_steers()
    p.put(verdict(p, "O2", "lost")).put(verdict(p, "O2", "refused", "t")).expect("""
        returned t refused held=lost
    """)
    assert p.state.inbox[p.id("t")].uncertain  # until it is delivered or revoked
    p.put(verdict(p, "O2", "injected")).expect("""
        delivered s T1 injected
        placed t
    """)  # of what is left


def test_an_injection_in_the_turn_that_the_agent_began() -> None:
    """The steer was offered in T1; the turn that has it is T2."""
    p = Play().running().put(submit("s", "steer"))
    p.put(ended(p, "O1"))
    p.put(TurnBegan(), verdict(p, "O2", "injected")).expect("""
        turn T2 agent
        delivered s T2 injected
    """)
    assert p.settled("s") is None


def test_the_agent_begins_a_turn_only_when_idle() -> None:
    p = Play().running()
    p.put(TurnBegan()).expect_nothing()
    p.put(ended(p, "O1"))
    p.put(text("late"), TurnBegan()).expect("""
        step S2 T1 answers=a
        part P1 S2 agent S2
        ~ P1 'late'
        part end P1 'late'
        step end S2 end_turn
        turn T2 agent
    """)
    p.put(submit("q")).has("== pending q")
    p.put(ended(p, None)).has("offered O2 prompt q")


def test_tokens_add_up() -> None:
    p = Play().running()
    p.put(PromptEnded(outcome="end_turn", offer_id=p.id("O1"), tokens=Tokens(input=3, output=2, cost=0.5)))
    p.put(submit("b")).put(written(p, "O2"))
    p.put(PromptEnded(outcome="end_turn", offer_id=p.id("O2"), tokens=Tokens(input=4, total=9)))
    assert p.root.info.tokens == Tokens(input=7, output=2, total=9, cost=0.5)
    assert p.transcript.items[-1].step.tokens == Tokens(input=4, total=9)


def test_quiet_ends_what_is_open_outside_a_turn() -> None:
    p = (
        Play()
        .idle()
        .put(text("late"))
        .expect("""
        step S2 T1 answers=a
        part P1 S2 agent S2
        ~ P1 'late'
    """)
    )
    p.put(Quiet()).expect("""
        part end P1 'late'
        step end S2 end_turn
    """)
    p.put(Quiet()).expect_nothing()
    p.put(submit("b")).put(written(p, "O2"), text("x")).put(Quiet()).expect_nothing()


def test_late_text_and_the_next_prompt_in_one_go() -> None:
    p = Play().running()
    p.put(text("one"), ended(p, "O1"), text(" two"), submit("b")).expect("""
        step S1 T1 answers=a
        part P1 S1 agent S1
        ~ P1 'one'
        part end P1 'one'
        step end S1 end_turn
        ended T1 end_turn
        session
        step S2 T1 answers=a
        part P2 S2 agent S2
        ~ P2 ' two'
        admitted b queue
        turn T2 prompt
        offered O2 prompt b
        !! OfferPrompt O2 b
        == offered b
    """)
    p.put(text(" three")).expect("""
        ~ P2 ' three'
    """)
    p.put(written(p, "O2")).expect("""
        part end P2 ' two three'
        step end S2 end_turn
        delivered b T2 prompt
    """)


def test_facts_and_wishes_in_one_go() -> None:
    p = Play().running().put(submit("s", "steer"))
    p.put(verdict(p, "O2", "injected"), submit("t", "steer"), ended(p, "O1"), ABORT, submit("n")).expect("""
        delivered s T1 injected
        admitted t steer
        offered O3 injected t
        step S1 T1 answers=s
        placed t
        step end S1 end_turn
        ended T1 end_turn
        session
        abort - returning t
        released t
        admitted n steer
        !! OfferSteer O3 t
        == offered t
        == pending n
    """)


def test_death_ends_children_and_their_requests() -> None:
    p = Play().running()
    p.put(
        AgentChild(child="kid", state="running"),
        AgentText(role="agent", text="k", agent_session="kid"),
        AgentAsk(agent_ref="r1", agent_session="kid", options=OPTIONS),
    )
    p.put(died()).expect("""
        @kid settled R1 cancelled:agent_exit
        @kid part end P1 'k'
        @kid step end S1 error
        @kid ended T2 error error=agent_exit
        @kid session
        step S2 T1 answers=a
        step end S2 error
        ended T1 error error=agent_exit
        session
        ~ agent absent error=agent_exit
    """)


def test_a_late_delivery_without_a_word_gives_the_next_turn_no_empty_step() -> None:
    p = Play().running().put(submit("s", "steer"))
    p.put(ended(p, "O1"), verdict(p, "O2", "injected"), submit("b")).has("delivered s T1 injected", "turn T2 prompt")
    p.put(unwritten(p, "O3")).expect("""
        returned b unwritten held=unwritten
        ended T2 unwritten error=agent_exit
        session
    """)


def test_a_steer_in_a_turn_of_the_agents_own_gets_a_step() -> None:
    p = Play().idle().put(TurnBegan()).put(submit("s", "steer"))
    p.put(verdict(p, "O2", "injected"), ended(p, None)).expect("""
        delivered s T2 injected
        step S2 T2 answers=s
        step end S2 end_turn
        ended T2 end_turn
        session
    """)


def test_ready_tells_its_own_id_once() -> None:
    p = (
        Play()
        .put(AgentReady(own_id="x"))
        .expect("""
        ~ agent ready
        session agent_session=x
    """)
    )
    p.put(AgentReady(own_id="x", can_steer=True)).expect("""
        ~ agent ready steer
    """)


def test_a_request_that_the_agent_withdraws() -> None:
    p = Play().running().put(AgentAsk(agent_ref="r1", options=OPTIONS))
    p.put(AgentAskWithdrawn(agent_ref="r1")).expect("""
        settled R1 cancelled:withdrawn
    """)
    p.put(AgentAskWithdrawn(agent_ref="r1")).expect_nothing()
