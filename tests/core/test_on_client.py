"""What clients ask for: admission, what may be done while a message is not delivered, answers, the session itself."""

import pytest

from gateway.core.errors import Conflict
from gateway.core.inputs import (
    Abort,
    AgentAsk,
    AgentChild,
    AgentConfig,
    AgentMode,
    AgentReady,
    AgentText,
    Answer,
    Create,
    Delete,
    Demote,
    Promote,
    Reconcile,
    Replace,
    Revoke,
    Submit,
    Update,
    Wake,
    WithdrawVerdict,
)
from gateway.core.model import Accepted, Answered, By, Cancelled, Declined, Option, Selected
from gateway.core.replies import Wait
from gateway.core.session import Policy
from gateway.core.tree import create
from gateway.core.waits import settlement
from gateway.core.waits import verdict as fate
from tests.core.play import ABORT, Play, died, ended, request, say, submit, unwritten, verdict, written
from tests.core.world import T0

PART = "prt_" + "0" * 26
OPTIONS = (Option("yes", "Yes", "allow_once"), Option("no", "No", "reject_once"))


# --- admission --------------------------------------------------------------------------------------------------------


def test_the_same_id_three_times_at_once() -> None:
    p = Play().put(submit("a"), submit("a"), submit("a"))
    p.expect("""
        admitted a queue
        ~ agent starting
        !! StartAgent
        == pending a
        == pending a duplicate
        == pending a duplicate
    """)


@pytest.mark.parametrize("other", [{"text": "else"}, {"delivery": "steer"}])
def test_a_known_id_with_other_content_or_delivery(other: dict[str, str]) -> None:
    p = Play().running()
    p.put(submit("a", **other)).expect("""
        == Conflict
    """)


def test_the_same_admission_again_wherever_the_message_is() -> None:
    p = Play().running()
    p.put(submit("b"), submit("r"), submit("s", if_idle="store"))
    p.put(submit("b")).expect("""
        == pending b duplicate
    """)
    p.put(submit("a")).expect("""
        == delivered a duplicate
    """)
    p.put(Revoke(message_id=p.id("r"))).put(submit("r")).expect("""
        == revoked r duplicate
    """)


def test_what_replace_and_promote_did_since_is_not_compared() -> None:
    p = Play().running(steer=False)
    p.put(submit("b"))
    p.put(Replace(message_id=p.id("b"), content=say("new")), Promote(message_id=p.id("b")))
    p.put(submit("b")).expect("""
        == pending b duplicate
    """)
    p.put(submit("b", text="new")).expect("""
        == Conflict
    """)


def test_preconditions_are_not_asked_of_a_known_message() -> None:
    p = Play().running()
    p.put(submit("a", if_busy="refuse", if_idle="refuse")).expect("""
        == delivered a duplicate
    """)


def test_a_stored_message_waits_and_is_started_by_its_second_submission() -> None:
    p = Play().put(submit("a", if_idle="store"))
    p.expect("""
        admitted a queue held=stored
        == held a
    """)
    p.put(submit("a", if_idle="store")).expect("""
        == held a duplicate
    """)
    p.put(submit("a")).expect("""
        released a
        ~ agent starting
        !! StartAgent
        == pending a duplicate
    """)


def test_a_stored_message_that_is_started_goes_before_what_was_held() -> None:
    p = Play().put(submit("a", if_idle="store"), submit("b", if_idle="store"))
    p.put(submit("b")).expect("""
        released b
        released a
        promoted b
        ~ agent starting
        placed a
        !! StartAgent
        == pending b duplicate
    """)
    p.put(AgentReady()).has("offered O1 prompt b")


def test_the_second_submission_of_an_offered_message_takes_back_its_hold() -> None:
    p = Play().put(submit("a")).put(AgentReady()).put(ABORT).has("abort T1 returning a")
    p.put(submit("a")).expect("""
        released a
        == offered a duplicate
    """)
    p.put(unwritten(p, "O1")).has("returned a unwritten held=unwritten")


def test_preconditions() -> None:
    p = Play()
    p.put(submit("a", if_idle="refuse")).expect("""
        == NotRunning
    """)
    p.put(submit("a", if_busy="refuse")).has("== pending a")  # idle: accepted
    p.put(submit("b", if_busy="refuse")).expect("""
        == Busy
    """)  # not in a turn yet, but about to be
    p.put(AgentReady()).put(submit("c", if_idle="refuse")).has("== pending c")
    p.put(submit("d", if_busy="refuse")).expect("""
        == Busy
    """)


def test_held_messages_do_not_make_a_session_busy() -> None:
    p = Play().put(submit("a", if_idle="store")).put(submit("b", if_busy="refuse"))
    p.expect("""
        released a
        admitted b steer
        ~ agent starting
        placed a
        !! StartAgent
        == pending b
    """)


def test_empty_content() -> None:
    p = Play()
    p.put(Submit(content=())).expect("""
        == ClientError
    """)
    p.put(Replace(message_id=p.world.names.ids.get("a", "msg_a"), content=())).expect("""
        == ClientError
    """)
    p.put(Reconcile(messages=(("r1", ()),))).expect("""
        == ClientError
    """)


def test_an_empty_id() -> None:
    p = Play()
    p.put(Submit(content=say("x"), message_id=""), Reconcile(messages=(("", say("x")),))).expect("""
        == ClientError
        == ClientError
    """)


def test_the_limit_counts_what_is_not_delivered() -> None:
    p = Play(Policy(max_pending=2)).running()
    p.put(submit("b"), submit("c"), submit("d")).expect("""
        admitted b queue
        admitted c queue
        == pending b
        == pending c
        == Limit
    """)
    p.put(submit("b")).has("== pending b duplicate")  # known: no limit
    p.put(Reconcile(messages=(("r1", say("x")),))).expect("""
        == Limit
    """)
    p.put(Revoke(message_id=p.id("b"))).put(submit("d")).has("== pending d")


def test_an_id_that_another_session_has() -> None:
    p = Play()
    p.world.foreign.add("msg_a")
    p.put(submit("a"), submit("b")).expect("""
        admitted b queue
        ~ agent starting
        !! StartAgent
        == Conflict
        == pending b
    """)
    p.put(submit("a", local_id=True)).has("== pending a")  # scoped to the session: another thing


def test_an_id_that_the_agent_uses_here() -> None:
    p = Play().running().put(AgentText(role="agent", text="x", agent_id="msg_x"))
    p.put(submit("x")).expect("""
        == Conflict
    """)


def test_minted_ids_and_part_ids() -> None:
    p = Play().put(Submit(content=(*say("x"), *say("y")), part_ids=(PART, "bad")))
    m = next(iter(p.state.inbox.values()))
    assert m.id == m.ascending_id and m.part_ids[0] == PART < m.part_ids[1]
    p.put(submit("z", local_id=True))
    z = p.state.inbox["msg_z"]
    assert z.ascending_id != z.id and z.ascending_id > m.ascending_id
    p.put(Submit(content=say("x"), message_id=z.ascending_id, delivery="steer")).expect("""
        == Conflict
    """)


def test_by_whom() -> None:
    by = By("ann", "opencode", "c1")
    p = Play().put(submit("a", by=by))
    assert p.decision is not None and {r.by for r in p.decision.records} == {by}
    p.put(AgentReady())
    assert {r.by for r in p.decision.records} == {None}


def test_a_refused_input_leaves_nothing_and_the_others_stand() -> None:
    p = Play().put(submit("a"), submit("a", text="x"), submit("b"), submit("c", if_idle="refuse"))
    p.expect("""
        admitted a queue
        ~ agent starting
        admitted b queue
        !! StartAgent
        == pending a
        == Conflict
        == pending b
        == NotRunning
    """)


# --- a whole history --------------------------------------------------------------------------------------------------


def test_reconcile() -> None:
    p = Play()
    p.put(Reconcile(messages=(("r1", say("one")), ("r2", say("two")), ("r1", say("one"))))).expect("""
        admitted r1 queue
        admitted r2 queue group=r1
        ~ agent starting
        !! StartAgent
        == reconciled r1 r2
    """)
    p.put(AgentReady()).expect("""
        ~ agent ready
        turn T1 prompt
        offered O1 prompt r1 r2
        !! OfferPrompt O1 r1 r2
    """)
    p.put(written(p, "O1")).put(submit("x"))
    p.put(Reconcile(messages=(("r1", say("other")), ("r3", say("three"))))).expect("""
        admitted r3 queue
        == reconciled r3 edited
    """)
    p.put(Reconcile(messages=(("r1", say("one")), ("r2", say("two"))))).expect("""
        == reconciled
    """)


def test_reconcile_ignores_what_was_revoked() -> None:
    p = Play().put(submit("a")).put(Revoke(message_id="msg_a"))
    p.put(Reconcile(messages=(("msg_a", say("a")),))).expect("""
        == reconciled
    """)


def test_reconcile_while_busy() -> None:
    p = Play().running()
    p.put(Reconcile(messages=(("r1", say("one")),), if_busy="refuse")).expect("""
        == Busy
    """)
    p.put(Reconcile(messages=(("msg_a", say("a")),), if_busy="refuse")).expect("""
        == reconciled
    """)


def test_a_group_goes_together_only_where_it_stands_together() -> None:
    p = Play().running(steer=False)
    p.put(Reconcile(messages=(("r1", say("one")), ("r2", say("two"))))).put(submit("c"))
    p.put(Promote(message_id=p.id("r2")), Demote(message_id=p.id("r2")))  # now behind c
    p.put(ended(p, "O1")).has("offered O2 prompt r1")
    p.put(written(p, "O2")).put(ended(p, "O2")).has("offered O3 prompt c")


# --- what is not delivered --------------------------------------------------------------------------------------------


def test_revoke_the_second_of_three() -> None:
    p = Play().running().put(submit("b"), submit("c"), submit("d"))
    p.put(Revoke(message_id=p.id("c"))).expect("""
        revoked c
        == revoked c
    """)
    p.put(Revoke(message_id=p.id("c"))).expect("""
        == revoked c
    """)  # twice is a success
    p.put(ended(p, "O1")).has("offered O2 prompt b")
    p.put(written(p, "O2")).put(ended(p, "O2")).has("offered O3 prompt d")


def test_replace_keeps_id_and_place() -> None:
    p = Play().running().put(submit("b"), submit("c"))
    before = p.state.inbox["msg_b"]
    p.put(Replace(message_id=p.id("b"), content=(*say("new"), *say("more")))).expect("""
        replaced b 'new|more'
        == replaced b
    """)
    after = p.state.inbox["msg_b"]
    assert (after.place, after.created, after.part_ids[0]) == (before.place, before.created, before.part_ids[0])
    p.put(ended(p, "O1")).has("offered O2 prompt b")


def test_promote_and_demote() -> None:
    p = Play().running().put(submit("b"), submit("c"), submit("d", "steer"))
    p.put(Promote(message_id=p.id("c"))).expect("""
        promoted c
        placed b
        == promoted c
    """)  # the steer d is unanswered
    p.put(Promote(message_id=p.id("c"))).expect("""
        == promoted c
    """)
    p.put(Demote(message_id=p.id("c"))).expect("""
        demoted c
        placed c
        == demoted c
    """)
    p.put(Demote(message_id=p.id("b"))).expect("""
        == demoted b
    """)
    p.put(Demote(message_id=p.id("d"))).expect("""
        == Conflict
    """)
    p.put(verdict(p, "O2", "injected"))
    p.put(Promote(message_id=p.id("c"))).expect("""
        promoted c
        offered O3 injected c
        placed b
        !! OfferSteer O3 c
        == promoted c
    """)


def test_what_is_delivered_or_unknown() -> None:
    p = Play().running()
    for wish in (Revoke, Promote, Demote):
        p.put(wish(message_id="msg_a")).expect("== already_delivered a")
        p.put(wish(message_id="msg_no")).expect("== unknown no")
    p.put(Replace(message_id=p.id("a"), content=say("x"))).expect("== already_delivered a")


def test_revoke_in_the_second_layer() -> None:
    p = Play().running().put(submit("b", "steer"))
    p.put(Revoke(message_id=p.id("b"))).expect("""
        ~ question b 1 revoke
        !! Withdraw b 1
        == wait b 1
    """)
    wait = p.reply
    assert isinstance(wait, Wait) and fate(p.root, wait) is None
    p.put(WithdrawVerdict(offer_id=p.id("O2"), message_id=p.id("b"), question=1, done=True)).expect("""
        revoked b
    """)
    answer = fate(p.root, wait)
    assert answer is not None and (answer.kind, answer.uncertain) == ("revoked", False)


def test_revoke_of_a_message_that_the_agent_cannot_give_back() -> None:
    p = Play().running().put(submit("b", "steer"))
    p.put(Revoke(message_id=p.id("b")))
    wait = p.reply
    p.put(WithdrawVerdict(offer_id=p.id("O2"), message_id=p.id("b"), question=1, done=False)).expect("""
        ~ cannot b 1
    """)
    assert fate(p.root, wait) is None
    p.put(verdict(p, "O2", "injected"))
    answer = fate(p.root, wait)
    assert answer is not None and answer.kind == "already_delivered"


def test_a_revoke_that_was_refused_is_done_when_the_message_comes_back() -> None:
    p = Play().running().put(submit("b", "steer"))
    p.put(Revoke(message_id=p.id("b")))
    p.put(WithdrawVerdict(offer_id=p.id("O2"), message_id=p.id("b"), question=1, done=False))
    p.put(verdict(p, "O2", "refused")).expect("""
        returned b refused
        revoked b
    """)


def test_a_prompt_that_is_being_written_cannot_be_asked_back() -> None:
    p = Play().put(submit("a")).put(AgentReady())
    p.put(Revoke(message_id=p.id("a"))).expect("""
        ~ question a 1 revoke
        == wait a 1
    """)
    p.put(unwritten(p, "O1")).expect("""
        returned a unwritten held=unwritten
        revoked a
        ended T1 unwritten error=agent_exit
        session
    """)


def test_an_answer_to_another_question_is_ignored() -> None:
    p = Play().running().put(submit("b", "steer")).put(Revoke(message_id="msg_b"))
    for question, offer in ((2, "O2"), (1, "O1")):
        p.put(WithdrawVerdict(offer_id=p.id(offer), message_id=p.id("b"), question=question, done=True))
        p.expect_nothing()


# --- requests ---------------------------------------------------------------------------------------------------------


def asked(kind: str = "permission") -> Play:
    return Play().running().put(AgentAsk(agent_ref="r1", kind=kind, options=OPTIONS))


def test_the_first_answer_wins() -> None:
    p = asked()
    p.put(
        Answer(request_id=request(p, "R1"), outcome=Selected("no")),
        Answer(request_id=request(p, "R1"), outcome=Selected("yes")),
    ).expect("""
        settled R1 no
        !! AnswerAgent r1 no
        == no first
        == no
    """)
    p.put(Answer(request_id="per_none", outcome=Selected("yes"))).expect("== NotFound")


@pytest.mark.parametrize(
    "kind, outcome, told",
    [
        ("permission", Selected("maybe"), None),
        ("permission", Accepted({}), None),
        ("elicitation", Selected("yes"), None),
        ("permission", Declined(), "no"),
        ("elicitation", Declined("no!"), "declined:no!"),
        ("elicitation", Accepted({}), "accepted"),
        ("permission", Cancelled(), "cancelled"),
    ],
)
def test_answers(kind: str, outcome: Answered, told: str | None) -> None:
    p = asked(kind)
    p.put(Answer(request_id=request(p, "R1"), outcome=outcome))
    if told is None:
        p.expect("== ClientError")
    else:
        p.expect(f"settled R1 {told}\n!! AnswerAgent r1 {told}\n== {told} first")


def test_steers_wait_while_a_request_is_open() -> None:
    p = (
        asked()
        .put(submit("s", "steer"))
        .expect("""
        admitted s steer
        == pending s
    """)
    )
    p.put(Answer(request_id=request(p, "R1"), outcome=Selected("yes"))).expect("""
        settled R1 yes
        offered O2 injected s
        !! AnswerAgent r1 yes
        !! OfferSteer O2 s
        == yes first
    """)


# --- the session ------------------------------------------------------------------------------------------------------


def test_an_agent_is_bound_once() -> None:
    p = (
        Play()
        .put(Update(agent="claude"))
        .expect("""
        session agent=claude
        == SessionInfo
    """)
    )
    p.put(Update(agent="claude")).expect("""
        == SessionInfo
    """)
    p.put(Update(agent="codex")).expect("""
        == Conflict
    """)


def test_what_a_person_chose_is_told_to_the_agent() -> None:
    p = Play(mode="plan").put(submit("a"))
    p.put(AgentMode(mode="default", modes=[]), AgentConfig(options=[], model="m1"), AgentReady()).expect("""
        modes
        session mode=default
        config
        session model=m1
        ~ agent ready
        turn T1 prompt
        offered O1 prompt a
        !! ConfigureAgent mode=plan
        !! OfferPrompt O1 a
    """)
    p.put(Update(model="m2")).expect("""
        session asked_model=m2
        !! ConfigureAgent mode=plan model=m2
        == SessionInfo
    """)
    p.put(Update(config=("effort", "high"))).has("!! ConfigureAgent config=('effort', 'high')")
    p.put(Update(title="mine", archived=5, meta={"x": 1})).has("session title=mine named archived=5 meta={'x': 1}")


def test_options_need_a_running_agent() -> None:
    p = Play().put(Update(config=("effort", "high"))).expect("== Conflict")
    p.put(Update(mode="plan")).expect("""
        session mode=plan asked_mode=plan
        == SessionInfo
    """)


def test_a_child_takes_no_messages() -> None:
    p = Play().running().put(AgentChild(child="kid", state="running"))
    child = p.child("kid").id
    p.put((child, submit("x"))).expect("== ClientError")
    p.put((child, Abort())).expect("== NotSupported")
    p.put(AgentChild(child="kid", can_cancel=True), AgentAsk(agent_ref="r1", agent_session="kid", options=OPTIONS))
    p.put((child, Abort())).expect("""
        @kid settled R1 cancelled:abort
        !! AnswerAgent r1 cancelled:abort
        !! CancelChild kid
    """)
    p.put((child, Update(title="t"))).has("@kid session title=t named")


def test_a_deleted_session_is_not_there_any_more() -> None:
    p = Play().running().put(AgentAsk(agent_ref="r1", options=OPTIONS))
    p.put(Delete(), submit("b"), AgentText(role="agent", text="x"), died()).expect("""
        settled R1 cancelled:deleted
        session deleted
        !! AnswerAgent r1 cancelled:deleted
        == NotFound
        == NotFound
        == NotFound
    """)
    assert not p.decision.busy  # nothing for a restart to look at
    p.put(Delete()).expect("== NotFound")
    with pytest.raises(Exception, match="Session not found"):
        settlement(p.root, "msg_a")


def test_create() -> None:
    with pytest.raises(Exception, match="absolute"):
        create(Create(cwd="here"), T0, b"x" * 16)
    p = Play(title="mine")
    assert p.root.info.named and p.root.info.title == "mine"
    p.put(Create(cwd="/x")).expect("== ClientError")
    p.put(("ses_none", submit("a"))).expect("== NotFound")
    assert not isinstance(p.reply, Conflict)


def test_wake_starts_the_agent_once_and_without_a_message() -> None:
    p = (
        Play()
        .put(Wake(), Wake())
        .expect("""
        ~ agent starting
        !! StartAgent
    """)
    )
    p.put(AgentReady()).put(Wake()).expect_nothing()


def test_an_abort_reaches_children_that_work_on_after_their_parents_turn() -> None:
    kids = (AgentChild(child="kid", state="running", can_cancel=True), AgentChild(child="deaf", state="running"))
    p = Play().running().put(*kids)
    p.put(Abort()).expect("""
        abort T1
        cancelling T1 abort
        !! CancelTurn T1
    """)  # the agent passes that on
    p = Play().running().put(*kids)
    p.put(ended(p, "O1"))
    p.put(Abort()).expect("""
        abort -
        !! CancelChild kid
    """)
    p.put(AgentChild(child="kid", state="idle"), AgentChild(child="deaf", state="idle"))
    p.put(Abort()).expect_nothing()


def test_a_word_with_an_answer_goes_as_a_steer_where_the_agent_is_told_the_option_alone() -> None:
    p = Play().running()
    p.put(AgentAsk(agent_ref="r1", options=OPTIONS))
    no = next(o.id for o in OPTIONS if o.kind == "reject_once")
    p.put(Answer(request_id=request(p, "R1"), outcome=Selected(no, "use git"))).has(
        f"settled R1 {no}", "admitted m1 steer", "offered O2 injected m1"
    )
    assert p.state.inbox[p.id("m1")].content == say("use git")
    p = Play()
    p.put(submit("a")).put(AgentReady(can_steer=True, hears=True)).put(written(p, "O1"))
    p.put(AgentAsk(agent_ref="r1", options=OPTIONS))
    p.put(Answer(request_id=request(p, "R1"), outcome=Selected(no, "use git")))
    assert not p.state.inbox
