"""What the agent says: messages, steps and parts with their ids, tools, requests, children, replays."""

from typing import Any

from gateway.core.content import Image, Text
from gateway.core.ids import MessageId
from gateway.core.inputs import (
    AgentAsk,
    AgentBlock,
    AgentChild,
    AgentCommands,
    AgentConfig,
    AgentFact,
    AgentMessage,
    AgentMode,
    AgentPlan,
    AgentReady,
    AgentRefs,
    AgentText,
    AgentTitle,
    AgentTool,
    AgentUnknown,
    AgentUsage,
    AgentUser,
    Create,
    Replayed,
    Submit,
    TurnBegan,
    Update,
)
from gateway.core.model import Child, Option, Outcome, Refs
from gateway.core.transcript import link
from gateway.core.tree import create
from tests.core.play import ABORT, Play, ended, say, submit, text, verdict, written
from tests.core.world import T0

PNG = Image("aGk=", "image/png")
OPTIONS = (Option("yes", "Yes", "allow_once"),)


def image(agent_id: str = "", role: Any = "agent") -> AgentBlock:
    return AgentBlock(role=role, block=PNG, agent_id=agent_id)


def whole(agent_id: str, *parts: Any, role: Any = "agent") -> AgentMessage:
    return AgentMessage(
        role=role, agent_id=agent_id, content=tuple(Text(x) if isinstance(x, str) else x for x in parts)
    )


def tool(call: str, status: Any = "in_progress", new: bool = False, **more: Any) -> AgentTool:
    return AgentTool(call_id=call, status=status, new=new, **more)


def turns(p: Play, count: int, start: int = 2) -> None:
    """Some turns without a word."""
    for n in range(start, start + count):
        p.put(ended(p, f"O{n - 1}"), submit(f"t{n}"))
        p.put(written(p, f"O{n}"))


# --- messages and steps -----------------------------------------------------------------------------------------------


def test_text_tool_text_without_ids() -> None:
    p = Play().running()
    p.put(text("one"), tool("c1", new=True), tool("c1", "completed"), text("two")).expect("""
        step S1 T1 answers=a
        part P1 S1 agent S1
        ~ P1 'one'
        part end P1 'one'
        tool c1 P2 S1 in_progress new
        tool c1 P2 S1 completed
        step end S1 continued
        step S2 T1 answers=a
        part P3 S2 agent S2
        ~ P3 'two'
    """)
    p.put(ended(p, "O1")).expect("""
        part end P3 'two'
        step end S2 end_turn
        ended T1 end_turn
        session
    """)


def test_a_message_of_the_agents_id_opens_the_step_under_it() -> None:
    p = (
        Play()
        .running()
        .put(text("one", "msg_1"))
        .expect("""
        step 1 T1 answers=a
        part P1 1 agent 1
        ~ P1 'one'
    """)
    )
    p.put(text(" more", "msg_1"), text(" and"), text("two", "msg_2")).expect("""
        ~ P1 ' more'
        ~ P1 ' and'
        part end P1 'one more and'
        part P2 1 agent 2
        ~ P2 'two'
    """)


def test_an_id_of_another_form_is_the_messages_and_the_step_is_minted() -> None:
    p = (
        Play()
        .running()
        .put(text("one", "x1"), tool("c1", new=True), text("two", "x1"))
        .expect("""
        step S1 T1 answers=a
        part P1 S1 agent x1
        ~ P1 'one'
        part end P1 'one'
        tool c1 P2 S1 in_progress new
        step end S1 continued
        step S2 T1 answers=a
        part P3 S2 agent x1 more
        ~ P3 'two'
    """)
    )
    assert p.transcript.content_of("agent", "x1") == (*say("one"), *say("two"))


def test_an_id_that_is_used_already_gives_no_step_its_id() -> None:
    p = Play().running()
    p.put(text("one", "msg_a")).expect("""
        step S1 T1 answers=a
        part P1 S1 agent a
        ~ P1 'one'
    """)  # the user's message is msg_a


def test_an_id_that_another_session_has_gives_no_step_its_id() -> None:
    p = Play().running()
    p.world.foreign.add("msg_x")
    p.put(text("one", "msg_x")).expect("""
        step S1 T1 answers=a
        part P1 S1 agent x
        ~ P1 'one'
    """)


def test_roles_have_their_own_ids() -> None:
    p = Play().running()
    p.put(text("hm", "1", "thought"), text("ah", "1"), text("hm", "1", "thought"), text("ah", "1")).expect("""
        step S1 T1 answers=a
        part P1 S1 thought 1
        ~ P1 'hm'
        part end P1 'hm'
        part P2 S1 agent 1
        ~ P2 'ah'
        part end P2 'ah'
        part P3 S1 thought 1 more
        ~ P3 'hm'
        part end P3 'hm'
        part P4 S1 agent 1 more
        ~ P4 'ah'
    """)


def test_an_id_that_was_last_seen_before_the_previous_turn_is_another_message() -> None:
    p = Play().running().put(text("one", "1"))
    turns(p, 1)
    p.put(text("still", "1")).expect("""
        step S2 T2 answers=t2
        part P2 S2 agent 1 more
        ~ P2 'still'
    """)
    turns(p, 2, start=3)
    p.put(text("new", "1"), tool("c", new=True), text("new too", "1")).expect("""
        step S4 T4 answers=t4
        part P3 S4 agent S4
        ~ P3 'new'
        part end P3 'new'
        tool c P4 S4 in_progress new
        step end S4 continued
        step S5 T4 answers=t4
        part P5 S5 agent S4 more
        ~ P5 'new too'
    """)


def test_without_an_id_a_message_goes_on_over_a_block() -> None:
    p = Play().running()
    p.put(text("look"), image(), text("there"), text("hm", role="thought"), text("again")).expect("""
        step S1 T1 answers=a
        part P1 S1 agent S1
        ~ P1 'look'
        part end P1 'look'
        block P2 S1 agent S1 more '[image]'
        part P3 S1 agent S1 more
        ~ P3 'there'
        part end P3 'there'
        part P4 S1 thought m1
        ~ P4 'hm'
        part end P4 'hm'
        part P5 S1 agent m2
        ~ P5 'again'
    """)


def test_a_block_of_a_message_with_an_id() -> None:
    p = Play().running()
    p.put(text("look", "m1"), image(), image("m1"), text("there"), image("m2")).expect("""
        step S1 T1 answers=a
        part P1 S1 agent m1
        ~ P1 'look'
        part end P1 'look'
        block P2 S1 agent m1 more '[image]'
        block P3 S1 agent m1 more '[image]'
        part P4 S1 agent m1 more
        ~ P4 'there'
        part end P4 'there'
        block P5 S1 agent m2 '[image]'
    """)


def test_a_steer_ends_the_message_and_the_step() -> None:
    p = Play().running().put(text("one"), submit("s", "steer"))
    p.put(verdict(p, "O2", "injected"), text("two")).expect("""
        part end P1 'one'
        step end S1 continued
        delivered s T1 injected
        step S2 T1 answers=s
        part P2 S2 agent S2
        ~ P2 'two'
    """)


def test_no_text_no_event() -> None:
    p = Play().running().put(text("one"))
    p.put(text("")).expect_nothing()
    p.put(submit("b"), text("")).expect("""
        admitted b queue
        == pending b
    """)


def test_more_text_is_the_hot_path() -> None:
    p = Play().running().put(text("one", "m1"))
    p.put(text(" two", "m1"), text(" three")).expect("""
        ~ P1 ' two'
        ~ P1 ' three'
    """)
    assert p.decision is not None and p.decision.busy and not p.decision.durable
    p.put(text(" four"), submit("b"), text(" five"), submit("a", text="x"), text(" six")).expect("""
        ~ P1 ' four'
        admitted b queue
        ~ P1 ' five'
        ~ P1 ' six'
        == pending b
        == Conflict
    """)
    p.put(ended(p, "O1")).has("part end P1 'one two three four five six'")


def test_children_and_parents_never_mint_the_same_id() -> None:
    """World checks that; here both open steps, parts and requests in one decision."""
    p = Play().running().put(AgentChild(child="kid", state="running"))
    p.put(
        text("p"),
        text("k", session="kid"),
        AgentAsk(agent_ref="r1", options=OPTIONS),
        AgentAsk(agent_ref="r2", agent_session="kid", options=OPTIONS),
        tool("c", new=True),
        tool("c", new=True, agent_session="kid"),
    )
    p.put(AgentReady())


# --- a message replaced -----------------------------------------------------------------------------------------------


def test_a_whole_message_that_was_not_there() -> None:
    p = (
        Play()
        .running()
        .put(whole("m1", "one", PNG, "two"))
        .expect("""
        step S1 T1 answers=a
        part P1 S1 agent m1
        ~ P1 'one'
        part end P1 'one'
        block P2 S1 agent m1 more '[image]'
        part P3 S1 agent m1 more
        ~ P3 'two'
        part end P3 'two'
    """)
    )
    p.put(whole("m2")).expect_nothing()


def test_a_message_replaced() -> None:
    p = Play().running().put(text("one", "m1"), image("m1"))
    p.put(whole("m1", "new")).expect("""
        message m1 drops P1 P2 has P1='new'
    """)
    assert p.transcript.content_of("agent", "m1") == say("new")
    p.put(text(" more", "m1")).expect("""
        part P3 S1 agent m1 more
        ~ P3 ' more'
    """)
    assert p.transcript.content_of("agent", "m1") == (*say("new"), *say(" more"))
    p.put(whole("m1", "a", PNG, "c")).expect("""
        part end P3 ' more'
        message m1 drops P1 P3 has P1='a' P4='[image]' P5='c'
    """)
    assert p.transcript.content_of("agent", "m1") == (*say("a"), PNG, *say("c"))
    assert [x.first for x in p.transcript.parts_of("agent", "m1")] == [True, False, False]


def test_a_message_replaced_while_it_is_spoken() -> None:
    p = Play().running().put(text("one", "m1"))
    p.put(whole("m1", "new")).expect("""
        part end P1 'one'
        message m1 drops P1 has P1='new'
    """)
    p.put(text(" more")).expect("""
        part P2 S1 agent m1 more
        ~ P2 ' more'
    """)


def test_a_message_of_several_steps_replaced() -> None:
    p = Play().running().put(text("one", "m1"), tool("c1", new=True), text("two", "m1"))
    p.put(whole("m1", "all", "of it")).expect("""
        part end P3 'two'
        message m1 drops P1 P3 has P1='all' P4='of it'
    """)
    first, second = p.transcript.items[1:]
    assert [type(x).__name__ for x in first.parts] == ["TextPart", "ToolPart", "TextPart"] and not second.parts
    p.put(text("and", "m1")).expect("""
        part P5 S2 agent m1 more
        ~ P5 'and'
    """)


def test_a_message_emptied_and_filled_again() -> None:
    p = Play().running().put(text("one", "m1"))
    p.put(whole("m1")).expect("""
        part end P1 'one'
        message m1 drops P1 has nothing
    """)
    p.put(whole("m1", "new")).expect("""
        part P2 S1 agent m1 more
        ~ P2 'new'
        part end P2 'new'
    """)


def test_a_message_of_the_turn_before_replaced() -> None:
    p = Play().running().put(text("one", "m1"))
    turns(p, 1)
    p.put(text("x", "m2"))
    p.put(whole("m1", "new")).expect("""
        message m1 drops P1 has P1='new'
    """)


# --- tools ------------------------------------------------------------------------------------------------------------


def test_a_tool_call() -> None:
    p = Play().running()
    p.put(tool("c1", "pending", True, title="T", content=[1])).expect("""
        step S1 T1 answers=a
        tool c1 P1 S1 pending new
    """)
    p.put(tool("c1", "in_progress", append=[2])).expect("""
        tool c1 P1 S1 in_progress
    """)
    p.put(tool("c1", "completed", output={"x": 1}))
    call = p.transcript.tool("c1")
    assert (call.title, call.content, call.output, call.status) == ("T", [1, 2], {"x": 1}, "completed")
    assert call.created <= call.started < call.ended
    p.put(tool("c1", "in_progress"))
    assert p.transcript.tool("c1").ended is None


def test_text_goes_on_beside_an_update_of_a_tool() -> None:
    p = Play().running().put(tool("c1", new=True), text("one"))
    p.put(tool("c1", "completed"), text(" two")).expect("""
        tool c1 P1 S1 completed
        ~ P2 ' two'
    """)


def test_a_tool_id_used_again_in_a_later_turn() -> None:
    p = Play().running().put(tool("c1", "completed", True))
    p.put(tool("c1", "completed", True)).expect("""
        tool c1 P1 S1 completed
    """)  # the same turn: the same call
    turns(p, 1)
    p.put(tool("c1", "completed")).expect("""
        tool c1 P1 S1 completed
    """)  # not announced: an update of the old one
    p.put(tool("c1", "pending", True)).expect("""
        step S2 T2 answers=t2
        tool c1 P2 S2 pending new
    """)
    assert p.transcript.tool("c1").turn_id == p.id("T2")


def test_an_update_of_a_tool_after_everything() -> None:
    p = Play().running()
    p.put(tool("c1", new=True)).put(ended(p, "O1")).expect("""
        step end S1 end_turn
        ended T1 end_turn
        session
    """)  # an ordinary end leaves it be: it may run on
    p.put(tool("c1", "failed")).expect("""
        tool c1 P1 S1 failed
    """)


def test_a_request_with_its_tool() -> None:
    p = Play().running()
    p.put(AgentAsk(agent_ref="r1", tool=tool("c1", "pending", title="rm"), options=OPTIONS)).expect("""
        step S1 T1 answers=a
        tool c1 P1 S1 pending new
        request R1 permission tool=c1
    """)
    request = next(iter(p.state.requests.values()))
    assert (request.title, request.call_id) == ("rm", "c1") and request.step_id == p.transcript.items[-1].step.id


def test_a_request_after_the_turn_was_aborted_before_it_was_written() -> None:
    p = Play().put(submit("a")).put(AgentReady()).put(ABORT)
    p.put(AgentAsk(agent_ref="r1", options=OPTIONS)).expect("""
        !! AnswerAgent r1 cancelled:abort
    """)


# --- users as the agent tells them ------------------------------------------------------------------------------------


def test_an_echo_of_ours_gives_an_alias() -> None:
    p = Play().running()
    p.put(AgentUser(content=say("a"), agent_id="u1")).expect("""
        alias a u1
    """)
    p.put(AgentUser(content=say("a"), agent_id="u1")).expect_nothing()
    p.put(AgentUser(content=say("a"), agent_id="u2")).has("delivered u2 T1 imported")  # it has a name already


def test_an_echo_in_one_go_with_the_delivery() -> None:
    p = Play().put(submit("a")).put(AgentReady())
    p.put(written(p, "O1"), AgentUser(content=say("a"), agent_id="u1")).expect("""
        delivered a T1 prompt
        session title=a
        alias a u1
    """)


def test_echoes_of_two_messages_in_any_order() -> None:
    p = Play().running()
    p.put(submit("s", "steer")).put(verdict(p, "O2", "injected"))
    p.put(AgentUser(content=say("s"), agent_id="u2"), AgentUser(content=say("a"), agent_id="u1")).expect("""
        alias s u2
        alias a u1
    """)


def test_an_echo_block_by_block() -> None:
    p = Play().put(Submit(content=(*say("look"), PNG), message_id=MessageId("msg_a"))).put(AgentReady())
    p.put(written(p, "O1"))
    p.put(AgentUser(content=say("look"), agent_id="u1"), AgentUser(content=(PNG,), agent_id="u1")).expect("""
        alias a u1
    """)


def test_a_message_from_elsewhere_is_imported() -> None:
    p = Play().running().put(text("x"), submit("q"))
    p.put(AgentUser(content=say("typed"), agent_id="u1")).expect("""
        part end P1 'x'
        step end S1 continued
        delivered u1 T1 imported
        alias u1 u1
        placed q
    """)
    p.put(submit("q2"), text("y")).has("step S2 T1 answers=m1")


# --- children ---------------------------------------------------------------------------------------------------------


def test_a_child_session() -> None:
    p = Play().running()
    p.put(AgentChild(child="kid", title="K", description="D", state="running", cwd="/k")).expect("""
        @kid session created parent
        child kid state=running new
        @kid turn T2 agent
    """)
    p.put(text("hi", session="kid"), tool("c1", agent_session="kid", new=True)).expect("""
        @kid step S1 T2
        @kid part P1 S1 agent S1
        @kid ~ P1 'hi'
        @kid part end P1 'hi'
        @kid tool c1 P2 S1 in_progress new
    """)
    p.put(AgentChild(child="kid", state="requires_action", title="K2")).expect("""
        child kid state=requires_action
        @kid session title=K2
    """)
    p.put(AgentChild(child="kid", state="idle", outcome="end_turn")).expect("""
        child kid state=idle
        @kid step end S1 end_turn
        @kid ended T2 end_turn
        @kid session
    """)
    p.put(AgentChild(child="kid", state="idle")).expect("""
        child kid state=idle
    """)
    p.put(text("late", session="kid")).expect("""
        @kid step S2 T2
        @kid part P3 S2 agent S2
        @kid ~ P3 'late'
    """)
    info = p.child("kid").info
    assert (info.parent_id, info.root_id, info.cwd, info.title) == (p.root.id, p.root.id, "/k", "K2")
    assert p.transcript.children[info.id] == Child(info.id, "kid", "K2", "D", "idle", cwd="/k")


def test_a_childs_child() -> None:
    p = Play().running().put(AgentChild(child="kid", state="running"))
    p.put(AgentChild(child="baby", agent_session="kid", state="running"), text("da", session="baby")).expect("""
        @baby session created parent
        @kid child baby state=running new
        @baby turn T3 agent
        @baby step S1 T3
        @baby part P1 S1 agent S1
        @baby ~ P1 'da'
    """)
    assert p.child("baby").info.parent_id == p.child("kid").id and p.child("baby").info.root_id == p.root.id


def test_a_stranger_is_refused_and_the_rest_stands() -> None:
    p = Play().running()
    p.put(text("x", session="nobody"), text("y")).expect("""
        step S1 T1 answers=a
        part P1 S1 agent S1
        ~ P1 'y'
        == NotFound
    """)


def test_a_child_in_need_of_an_answer_holds_the_steers() -> None:
    p = Play().running().put(AgentChild(child="kid", state="running"))
    p.put(AgentAsk(agent_ref="r1", agent_session="kid", options=OPTIONS))
    p.put(submit("s", "steer")).expect("""
        admitted s steer
        == pending s
    """)


def test_session_messages_and_references() -> None:
    p = Play().running().put(AgentChild(child="kid", state="running"))
    p.put(AgentRefs(agent_id="x", refs=Refs(sender_session="me"), content=say("do it"))).expect("""
        refs x sender_session=me
        step S1 T1 answers=a
        part P1 S1 session x
        ~ P1 'do it'
        part end P1 'do it'
    """)
    p.put(text(" now", "x", "session"), AgentRefs(agent_id="x", refs=Refs(recipient_message="y"))).expect("""
        part P2 S1 session x more
        ~ P2 ' now'
        refs x sender_session=me recipient_message=y
    """)
    assert p.transcript.refs["x"] == Refs(sender_session="me", recipient_message="y")


def test_link() -> None:
    out, into = Refs(recipient_message="y"), Refs(sender_message="x")
    assert link(out, into, "x", "y", outgoing=True) and link(into, out, "y", "x", outgoing=False)
    assert link(out, Refs(), "x", "y", outgoing=True) and link(Refs(), into, "x", "y", outgoing=True)
    assert not link(Refs(), Refs(), "x", "x", outgoing=True)  # never by equal ids
    assert not link(out, Refs(sender_message="z"), "x", "y", outgoing=True)  # a conflict
    assert not link(Refs(recipient_message="z"), into, "x", "y", outgoing=True)
    assert not link(None, into, "x", "y", outgoing=True) and not link(out, None, "x", "y", outgoing=True)


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_what_the_agent_says_of_itself() -> None:
    p = Play().idle()
    p.put(
        AgentPlan(entries=[{"content": "x"}]),
        AgentPlan(entries=[], plan_id="p2"),
        AgentPlan(entries=None, plan_id="p2"),
        AgentUsage(used=5, size=10),
        AgentMode(mode="plan"),
        AgentConfig(options=[1], model="m", mode="code"),
        AgentCommands(commands=[2]),
        AgentTitle(title="T"),
        AgentUnknown(kind="new", raw={"k": 1}),
    ).expect("""
        plan
        plan
        plan
        usage
        modes
        session mode=plan
        config
        session mode=code model=m
        commands
        session title=T
        update new
    """)
    t = p.transcript
    assert (t.plans, t.usage.used, t.mode, t.config, t.commands) == ({"": [{"content": "x"}]}, 5, "plan", [1], [2])
    p.put(Update(title="mine"), AgentTitle(title="T2")).expect("""
        session title=mine named
        == SessionInfo
    """)


# --- replays ----------------------------------------------------------------------------------------------------------

HISTORY: tuple[AgentFact, ...] = (
    AgentUser(content=say("a"), agent_id="u1"),
    AgentText(role="agent", text="said", agent_id="m1"),
    AgentUser(content=say("se"), agent_id="u2"),
    AgentUser(content=say("cond"), agent_id="u2"),
    AgentText(role="thought", text="hm", agent_id="m2"),
    AgentTool(call_id="c1", new=True, status="completed"),
    AgentChild(child="kid", state="running"),
    AgentText(role="agent", text="k", agent_session="kid"),
    AgentText(role="agent", text="?", agent_session="stranger"),
    AgentCommands(commands=[1]),
)


def test_a_replay_fills_a_session_without_history() -> None:
    p = (
        Play()
        .put(Replayed(facts=HISTORY), AgentReady())
        .expect("""
        turn T1 replay
        delivered u1 T1 imported
        alias u1 u1
        step S1 T1 answers=m1
        part P1 S1 agent m1
        ~ P1 'said'
        part end P1 'said'
        step end S1 end_turn
        ended T1 end_turn
        session
        turn T2 replay
        delivered u2 T2 imported
        alias u2 u2
        step S2 T2 answers=m2
        part P2 S2 thought m2
        ~ P2 'hm'
        part end P2 'hm'
        tool c1 P3 S2 completed new
        @kid session created parent
        child kid state=running new
        @kid turn T3 agent
        @kid step S3 T3
        @kid part P4 S3 agent S3
        @kid ~ P4 'k'
        commands
        step end S2 end_turn
        ended T2 end_turn
        session
        child kid state=unknown
        @kid part end P4 'k'
        @kid step end S3 end_turn
        @kid ended T3 end_turn
        @kid session
        ~ agent ready
    """)
    )
    assert [m.content for m in p.transcript.users()] == [say("a"), say("second")]
    p.put(AgentUser(content=say("a"), agent_id="u1")).expect_nothing()


def test_a_replay_teaches_a_session_with_history_only_aliases_and_state() -> None:
    p = Play().idle()
    p.put(submit("b", text="second")).put(written(p, "O2")).put(ended(p, "O2"))
    p.restart()
    p.put(Replayed(facts=HISTORY), AgentReady()).expect("""
        alias a u1
        alias b u2
        @kid session created parent
        child kid new
        commands
        ~ agent ready
    """)
    assert p.transcript.aliases == {"u1": "msg_a", "u2": "msg_b"}


def test_aliases_are_learnt_in_order() -> None:
    p = Play().idle()
    for name in "bc":
        p.put(submit(name, text="same")).put(written(p, f"O{'abc'.index(name) + 1}"))
        p.put(ended(p, f"O{'abc'.index(name) + 1}"))
    p.put(Replayed(facts=tuple(AgentUser(content=say("same"), agent_id=x) for x in ("u1", "u2", "u3")))).expect("""
        alias b u1
        alias c u2
    """)


def test_a_replay_in_the_middle_of_a_turn_starts_none() -> None:
    p = Play()
    p.put(TurnBegan()).put(Replayed(facts=HISTORY)).expect("""
        @kid session created parent
        child kid new
        commands
    """)


def test_parts_and_steps_keep_their_turn_when_the_next_is_on_its_way() -> None:
    p = Play().idle().put(text("late"))
    p.put(submit("b"), image()).expect("""
        admitted b queue
        turn T2 prompt
        offered O2 prompt b
        part end P1 'late'
        block P2 S2 agent S2 more '[image]'
        !! OfferPrompt O2 b
        == offered b
    """)
    assert {part.turn_id for part in p.transcript.items[-1].parts} == {p.id("T1")}


def test_outcomes_reach_the_child() -> None:
    outcome: Outcome = "cancelled"
    p = Play().running().put(AgentChild(child="kid", state="running"), tool("c", new=True, agent_session="kid"))
    p.put(AgentChild(child="kid", state="idle", outcome=outcome)).expect("""
        child kid state=idle
        @kid tool c P1 S1 cancelled
        @kid step end S1 cancelled
        @kid ended T2 cancelled
        @kid session
    """)


def test_create_is_deterministic() -> None:
    one, two = (create(Create(cwd="/w"), T0, b"e" * 16) for _ in range(2))
    assert one[1] == two[1]


def test_ordinals_are_not_used_again() -> None:
    """AG-UI calls a message's parts id, id#2 …, and never opens one again. (World checks the rest.)"""
    p = Play().running().put(text("one", "m1"), image(), text("two"))
    p.put(whole("m1", "all")).put(text("more"), image("m1"))
    assert [part.ordinal for part in p.transcript.parts_of("agent", "m1")] == [1, 4, 5]
