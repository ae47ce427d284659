"""What ACP v2 agents add: work beside the turn, the cancelling of one piece of it, patches, the name of a prompt."""

from gateway.core.errors import GatewayError, NotFound, NotRunning, NotSupported
from gateway.core.inputs import (
    AgentBackground,
    AgentChild,
    AgentGone,
    AgentTool,
    AgentUser,
    CancelWork,
    TurnBegan,
)
from gateway.core.model import Error
from tests.core.play import Play, ended, say, submit, text, written

ITEM = {"type": "terminal", "terminalId": "t1"}


def tool(**fields: object) -> AgentTool:
    return AgentTool(call_id="c1", **fields)  # type: ignore[arg-type]


# --- background ------------------------------------------------------------------------------------------------------


def test_background_is_told_when_it_changes_and_keeps_the_session_busy() -> None:
    p = Play().running()
    p.put(AgentBackground(items=(ITEM,))).expect("background 1")
    p.put(AgentBackground(items=(ITEM,))).expect_nothing()
    p.put(ended(p, "O1"))
    assert p.state.background == (ITEM,) and p.world.tree.busy
    p.put(AgentBackground(items=())).expect("background 0")
    assert not p.world.tree.busy


def test_background_ends_with_the_agent() -> None:
    p = Play().running()
    p.put(AgentBackground(items=(ITEM,)), ended(p, "O1"))
    p.put(AgentGone(error=Error("agent_exit", "gone"))).has("background 0")
    assert p.state.background == ()


def test_background_ends_with_the_gateway() -> None:
    p = Play().running()
    p.put(AgentBackground(items=(ITEM,)), ended(p, "O1"))
    p.restart().has("background 0")
    assert p.state.background == ()


# --- cancelling one piece --------------------------------------------------------------------------------------------


def test_a_tool_call_that_offers_it_is_cancelled() -> None:
    p = Play().running()
    p.put(tool(status="in_progress", can_cancel=True))
    p.put(CancelWork(kind="tool_call", id="c1")).expect("!! CancelWork root tool_call c1")
    p.put(tool(status="completed"))
    assert refused(p, CancelWork(kind="tool_call", id="c1"), NotSupported)


def refused(p: Play, wish: CancelWork, error: type[GatewayError]) -> bool:
    return isinstance(p.put(wish).reply, error) and not [line for line in p._told if line.startswith("!!")]


def test_what_does_not_offer_it_is_not() -> None:
    p = Play().running()
    assert refused(p, CancelWork(kind="tool_call", id="c1"), NotFound)
    p.put(tool(status="in_progress"))
    assert refused(p, CancelWork(kind="tool_call", id="c1"), NotSupported)
    p.put(tool(can_cancel=True), tool(can_cancel=False))
    assert refused(p, CancelWork(kind="tool_call", id="c1"), NotSupported)


def test_without_an_agent_there_is_nothing_to_cancel() -> None:
    p = Play().running()
    p.put(tool(status="in_progress", can_cancel=True))
    p.put(AgentGone(error=Error("agent_exit", "gone")))
    assert refused(p, CancelWork(kind="tool_call", id="c1"), NotRunning)
    assert refused(p, CancelWork(kind="terminal", id="t1"), NotRunning)


def test_a_childs_call_is_cancelled_under_the_agents_name_of_the_child() -> None:
    p = Play().running()
    p.put(AgentChild(child="kid", state="running"))
    p.put(AgentTool(call_id="c2", status="in_progress", can_cancel=True, agent_session="kid"))
    child = p.child("kid").id
    p.put((child, CancelWork(kind="tool_call", id="c2"))).expect("!! CancelWork kid tool_call c2")


def test_a_terminal_is_the_adapters_matter() -> None:
    p = Play().running()
    p.put(CancelWork(kind="terminal", id="t1")).expect("!! CancelWork root terminal t1")


# --- patches and names -----------------------------------------------------------------------------------------------


def test_meta_is_patched_key_by_key() -> None:
    p = Play().running()
    p.put(tool(status="in_progress", meta_patch={"a": 1, "b": 2}))
    p.put(tool(meta_patch={"a": None, "c": 3}))
    assert p.transcript.tool("c1").meta == {"b": 2, "c": 3}  # type: ignore[union-attr]
    p.put(tool(meta_patch={"b": None, "c": None}))
    assert p.transcript.tool("c1").meta is None  # type: ignore[union-attr]


def test_a_prompt_has_the_name_that_the_agent_gave_it_whatever_it_made_of_its_words() -> None:
    p = Play().running()
    offer = p.id("O1")
    p.put(AgentUser(content=(), agent_id="u1", offer_id=offer)).expect("alias a u1")
    p.put(AgentUser(content=say("Please: a"), agent_id="u1")).expect_nothing()
    p.put(text("x"), ended(p, "O1"), submit("b"))
    p.put(written(p, "O2"))
    p.put(AgentUser(content=(), agent_id="u2", offer_id=offer)).expect_nothing()  # of a prompt that is over


def test_a_turn_of_the_agents_own_takes_no_name_of_a_prompt() -> None:
    p = Play().running()
    offer = p.id("O1")
    p.put(text("x"), ended(p, "O1"), TurnBegan())
    p.put(AgentUser(content=(), agent_id="u1", offer_id=offer)).expect_nothing()
