"""A person's own command: a turn without the agent, which is told of it with the next prompt."""

from gateway.core.content import Text
from gateway.core.effects import OfferPrompt
from gateway.core.ids import MessageId
from gateway.core.inputs import AgentReady, AgentUser, CommandEnded, CommandSaid, PromptEnded, RunCommand, TurnBegan
from gateway.core.model import ToolCall
from gateway.core.session import Policy
from tests.core.play import ABORT, Play, died, ended, say, submit, unwritten, written

LS = RunCommand(command="ls", message_id=MessageId("msg_c"))


def call(p: Play) -> ToolCall:
    found: ToolCall | None = p.transcript.tool(p.transcript.items[-1].parts[-1].call.call_id)
    assert found is not None
    return found


def end(p: Play, output: str = "a\n", exit_code: int | None = 0, **more: str) -> CommandEnded:
    return CommandEnded(turn_id=p.state.turn_id, output=output, exit_code=exit_code, **more)


def offered(p: Play) -> OfferPrompt:
    assert p.decision is not None
    [effect] = [e for e in p.decision.effects if isinstance(e, OfferPrompt)]
    return effect


def test_it_needs_no_agent_and_the_next_prompt_tells_of_it() -> None:
    p = Play().put(LS).has("turn T1 command", "delivered c T1 command", "!! StartCommand T1 'ls'", "== delivered c")
    assert (call(p).status, call(p).input, call(p).kind) == ("in_progress", {"command": "ls"}, "execute")
    p.put(CommandSaid(turn_id=p.state.turn_id, output="a"))
    assert call(p).content[0]["content"]["text"] == "a"
    p.put(end(p, exit_code=3)).has("ended T1 end_turn")
    assert call(p).status == "completed" and call(p).meta == {"terminal_exit": {"exit_code": 3, "signal": None}}
    assert p.settled("c") == "ended c T1 end_turn"
    p.put(submit("a")).has("!! StartAgent")
    p.put(AgentReady(own_id="s"))
    told = "The following tool was executed by the user:\n$ ls\na\n[exit code 3]\n"
    assert offered(p).content == (Text(told), Text("a"))
    # the agent may show it back, a block at a time: neither is somebody else's message
    p.put(written(p, "O1"), AgentUser(content=say(told)), AgentUser(content=say("a"), agent_id="u1"))
    assert [m.id for m in p.transcript.users()] == ["msg_c", "msg_a"]
    p.put(ended(p, "O1")).put(submit("b"))
    assert offered(p).context == (), "once"


def test_told_again_until_a_prompt_was_written_and_not_with_a_slash_command() -> None:
    p = Play().idle().put(RunCommand(command="ls"))
    p.put(end(p)).put(submit("b"))
    assert offered(p).context
    p.put(unwritten(p, "O2")).put(submit("slash", text="/init"))
    assert offered(p).context == ()
    p.put(written(p, "O3")).put(ended(p, "O3"))
    assert offered(p).context and [m.id for m in offered(p).messages] == ["msg_b"]


def test_it_waits_for_nobody_and_what_is_sent_meanwhile_waits_for_it() -> None:
    p = Play().put(submit("a")).put(LS).expect("== Busy")  # its agent starts
    p = Play().running().put(LS).expect("== Busy")
    p.put(ended(p, "O1")).put(LS)
    p.put(submit("s", "steer"), submit("q")).expect("""
        admitted s steer
        admitted q queue
        == pending s
        == pending q
    """)
    p.put(RunCommand(command="pwd")).expect("== Busy")
    p.put(end(p)).has("ended T2 end_turn", "offered O2 prompt s")


def test_interrupting_is_not_its_end() -> None:
    p = Play(Policy("interrupt")).idle(steer=False).put(LS).put(submit("s", "steer"))
    assert p.state.turn == "running"


def test_an_abort_ends_it_and_holds_what_waits() -> None:
    p = Play().put(LS).put(submit("q"))
    p.put(ABORT).expect("""
        abort T1
        cancelling T1 abort
        held q abort
        !! StopCommand T1
    """)
    p.put(ABORT).expect_nothing()
    p.put(end(p, exit_code=None, signal="SIGTERM")).has("ended T1 cancelled")
    assert call(p).status == "cancelled" and call(p).content[0]["content"]["text"] == "a\n"


def test_the_agent_has_no_part_in_it() -> None:
    p = Play().idle().put(LS)
    p.put(PromptEnded(outcome="end_turn")).put(died())
    assert p.state.turn == "running" and p.state.agent == "absent"
    p.put(end(p)).has("ended T2 end_turn")


def test_an_agent_that_begins_by_itself_has_the_next_turn() -> None:
    p = Play().idle().put(LS).put(submit("q"))
    p.put(TurnBegan()).expect("~ agent works")
    p.put(end(p)).has("ended T2 end_turn", "turn T3 agent")
    assert p.state.turn == "running" and p.state.inbox[MessageId("msg_q")].state == "pending"
    p.put(PromptEnded(outcome="end_turn")).has("ended T3 end_turn", "!! OfferPrompt O2 q")


def test_an_agent_that_has_ended_its_own_turn_before_the_command() -> None:
    p = Play().idle().put(LS).put(submit("q"))
    p.put(TurnBegan()).put(PromptEnded(outcome="end_turn")).expect("~ agent rests")
    p.put(end(p)).has("ended T2 end_turn", "!! OfferPrompt O2 q")
    p = Play().idle().put(LS).put(TurnBegan()).put(died())
    p.put(end(p)).has("ended T2 end_turn")
    assert p.state.turn == "idle"


def test_the_same_again_is_the_same_and_another_is_a_conflict() -> None:
    p = Play().put(LS)
    p.put(LS).expect("== delivered c duplicate")
    p.put(end(p)).put(LS).expect("== delivered c duplicate")
    p.put(RunCommand(command="rm", message_id=MessageId("msg_c"))).expect("== Conflict")
    p.put(submit("c", text="ls")).expect("== Conflict")
    p.put(RunCommand(command="  ")).expect("== ClientError")


def test_a_restart_ends_it() -> None:
    p = Play().put(LS).restart()
    assert p.state.turn == "idle" and call(p).status == "cancelled"
    late = CommandEnded(turn_id=call(p).turn_id, output="late", exit_code=0)
    p.put(late).expect_nothing()
    p.put(submit("a")).put(AgentReady(own_id="s"))
    assert "[cancelled]" in offered(p).content[0].text  # type: ignore[union-attr]


def test_one_that_cannot_be_started() -> None:
    p = Play().put(LS)
    p.put(end(p, "", None, error="no such folder")).has("ended T1 end_turn")
    assert call(p).status == "failed" and call(p).content[0]["content"]["text"] == "no such folder"
