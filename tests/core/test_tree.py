"""The tree: several inputs in one decision, what a refused one leaves, what is claimed, what is busy, the snapshot."""

from gateway.core import events as ev
from gateway.core.ids import MessageId
from gateway.core.inputs import AgentAsk, AgentChild, AgentReady, AgentUser, Answer, PromptEnded, Quiet, Recover, Submit
from gateway.core.model import Cancelled, Option
from gateway.core.session import Session, dump, load
from gateway.core.tree import Tree, claims
from tests.core.play import Play, ended, say, submit, text, written

OPTIONS = (Option("yes", "Yes", "allow_once"),)


def test_one_decision_is_the_same_as_many() -> None:
    """Inputs decided together make what they make one by one, but for times and minted ids."""
    together, apart = Play().running(), Play().running()
    items = (submit("b"), text("one"), submit("c", "steer"), text(" two", "m1"), ended(together, "O1"), text("late"))
    together.put(*items)
    lines = list(together._told)
    told: list[str] = []
    for item in items:
        apart.put(item if not isinstance(item, PromptEnded) else ended(apart, "O1"))
        told += apart._told

    def kinds(found: list[str], *marks: str) -> list[str]:
        return [line for line in found if line.startswith(marks)]

    for marks in (("<<",), ("!!",), ("==",)):
        assert kinds(lines, *marks) == kinds(told, *marks)


def test_a_failed_commit_changes_nothing_and_the_same_inputs_can_be_decided_again() -> None:
    p = Play().running()
    before = repr(p.root)
    p.world.step(submit("b"), text("x"), lost=True)
    assert repr(p.root) == before
    p.put(submit("b"), text("x")).has("admitted b queue", "~ P1 'x'")


def test_a_refused_first_input_with_a_child_that_began_before_it() -> None:
    p = Play().running()
    p.put(AgentChild(child="kid", state="running"), submit("a", text="x"), text("k", session="kid")).expect("""
        @kid session created parent
        child kid state=running new
        @kid turn T2 agent
        @kid step S1 T2
        @kid part P1 S1 agent S1
        @kid ~ P1 'k'
        == Conflict
    """)


def test_claims_are_the_ids_that_are_unique_in_the_gateway() -> None:
    p = Play().put(submit("a"), submit("l", local_id=True), Submit(content=say("x"))).put(AgentReady())
    p.put(written(p, "O1"), text("one", "msg_s"), AgentUser(content=say("typed"), agent_id="u1"))
    found = [value for records in p.world.records.values() for value, _ in claims(records)]
    assert "msg_a" in found and "msg_s" in found and "msg_l" not in found and "u1" not in found
    assert len(found) == len(set(found)) == 5


def test_busy() -> None:
    p = Play()
    told = []
    for item in (submit("h", if_idle="store"), submit("a"), AgentReady()):
        p.put(item)
        told.append(p.decision.busy)
    assert told == [False, True, True]
    p.put(written(p, "O1")).put(ended(p, "O1"))
    assert p.decision.busy  # h was released, and is offered
    p.put(written(p, "O2")).put(ended(p, "O2"))
    assert not p.decision.busy
    assert p.put(text("late")).decision.busy and not p.put(Quiet()).decision.busy
    assert p.put(AgentAsk(agent_ref="r", options=OPTIONS)).decision.busy
    assert not p.put(Answer(request_id=p.id("R1"), outcome=Cancelled())).decision.busy


def test_context_is_what_stands_beside_an_event() -> None:
    p = Play().put(submit("a"))
    tree = p.world.tree
    info, pending = tree.context(p.decision.records[0])
    assert info is p.root.info and pending is None  # the message is in the event
    p.put(submit("b"))
    p.put(AgentReady()).put(written(p, "O1"), text("x"))
    placed = next(r for r in p.decision.records if isinstance(r.event, ev.MessagePlaced))
    assert tree.context(placed)[1] == p.state.inbox[MessageId("msg_b")]


def test_a_snapshot_forgets_what_only_ephemeral_events_said() -> None:
    p = Play().running().put(submit("s", "steer"))
    again = load(p.root.id, dump(p.root), ())
    assert (again.state.agent, again.state.can_steer) == ("absent", False)
    assert again.state.offers == p.state.offers


def test_recovery_of_a_session_at_rest_says_nothing() -> None:
    p = Play().idle()
    p.restart().expect_nothing()
    p.put(Recover(checkpoints={})).expect_nothing()


def test_a_tree_of_loaded_sessions_knows_its_children() -> None:
    p = Play().running().put(AgentChild(child="kid", state="running"))
    sessions = [load(i, None, p.world.records[i]) for i in p.world.tree.sessions]
    assert Tree.of(sessions).by_agent == p.world.tree.by_agent == {"kid": p.child("kid").id}


def test_repr_shows_the_state_and_the_inbox() -> None:
    p = Play().running(steer=False).put(submit("b")).put(submit("c", "steer"))
    shown = repr(p.root)
    assert "running" in shown and "msg_b:queue/pending" in shown and "msg_c:steer/pending" in shown
    assert repr(Session(p.root.id)).endswith("inbox=[] offers=[]>")
