"""The ascending layout: order, the wrap of its 48 bits, determinism."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core import ids
from gateway.core.content import Image, Text
from gateway.core.inputs import AgentBlock, AgentMessage, AgentText, AgentTool
from gateway.core.transcript import StepItem
from tests.core.play import Play, ended, submit, text, written
from tests.core.world import WRAP

MASK = (1 << 48) - 1
clocks = st.integers(1, MASK)
entropies = st.binary(min_size=16, max_size=64)


def test_layout() -> None:
    value = ids.ascending("msg", 0x123456789ABC, b"e" * 16)
    assert value.startswith("msg_123456789abc") and len(value) == 4 + 12 + 14
    assert ids.is_ascending(value, "msg") and not ids.is_ascending(value, "prt")
    assert not ids.is_ascending(value[:-1], "msg") and not ids.is_ascending(value[:-1] + "-", "msg")
    assert not ids.is_ascending("msg_" + "G" * 26, "msg")
    assert ids.descending("ses", 0, b"e" * 16).startswith("ses_ffffffffffff")


@given(clocks, clocks, entropies, entropies)
def test_order_is_the_clocks(a: int, b: int, e: bytes, f: bytes) -> None:
    if a < b:
        assert ids.ascending("msg", a, e) < ids.ascending("msg", b, f)
        assert ids.descending("ses", a, e) > ids.descending("ses", b, f)


@given(clocks, entropies)
def test_only_clock_and_entropy_decide(clock: int, entropy: bytes) -> None:
    value = ids.ascending("msg", clock, entropy)
    assert value == ids.ascending("msg", clock, entropy)
    assert ids.is_ascending(value, "msg")
    assert value != ids.ascending("msg", clock, bytes([entropy[0] ^ 1]) + entropy[1:])


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 48))
def test_the_clock_never_goes_back(clock: int, now: int) -> None:
    after = ids.next_clock(clock, now)
    assert after > clock and after > now * 4096


@given(clocks, clocks, entropies, entropies)
def test_after_sorts_after(a: int, b: int, e: bytes, f: bytes) -> None:
    previous, candidate = ids.ascending("prt", a, e), ids.ascending("prt", b, f)
    value = ids.after(previous, candidate)
    assert value > previous and ids.is_ascending(value, "prt")
    assert value == candidate or candidate <= previous


def test_after_carries_through_the_suffix() -> None:
    previous = "prt_" + "f" * 12 + "0" * 12 + "Az"
    assert ids.after(previous, "prt_" + "0" * 26) == "prt_" + "f" * 12 + "0" * 12 + "B0"


def test_event_ids_ascend_with_the_position() -> None:
    found = [ids.event_id(1000, position, index) for position in range(3) for index in range(3)]
    assert found == sorted(set(found))


def test_the_parts_of_a_message_ascend_across_the_wrap() -> None:
    """The step begins a millisecond before the 48 bits wrap, its parts come after. (World checks their order.)"""
    p = Play(now=WRAP - 40).running()
    p.world.now = WRAP - 12
    p.put(text("before"))
    first = p.transcript.items[-1]
    assert isinstance(first, StepItem) and first.step.start_part > "prt_fffffff"
    p.put(AgentBlock(role="agent", block=Image("aGk=", "image/png")), AgentTool(call_id="c", new=True), after=20)
    assert p.world.now > WRAP
    p.put(ended(p, "O1"))
    parts = [first.step.start_part, *(part.part_id for part in first.parts), first.step.end_part]
    assert parts == sorted(set(parts)) and len(parts) == 5
    assert all(part > "prt_fffffff" for part in parts)
    p.put(AgentText(role="agent", text="late"), submit("b"))
    p.put(written(p, "O2"), text("next"))
    assert p.transcript.items[-1].step.start_part < "prt_0000000f"  # another message starts anew


def test_a_message_of_an_ended_step_gets_more_parts_across_the_wrap() -> None:
    """Clamped ids are close together: the new one must not be that of the step's end, nor of another part."""
    p = Play(now=WRAP - 40).running()
    p.world.now = WRAP - 12
    p.put(text("one", "m1"))
    p.put(text("two", "m2"), AgentTool(call_id="c", new=True), text("three"), after=20)  # the step ends
    whole = (Text("all"), Text("of it"), Text("again"))
    p.put(AgentMessage(role="agent", agent_id="m1", content=whole))
    p.put(
        AgentMessage(role="agent", agent_id="m2", content=whole),
        AgentMessage(role="agent", agent_id="m1", content=whole),
    )
    step = p.transcript.items[1]
    assert isinstance(step, StepItem) and len(step.parts) == 7  # World checks that none was given twice


def test_a_message_of_two_steps_is_replaced_across_the_wrap() -> None:
    """Its new parts are of the first step: the second one's next id is not theirs."""
    p = Play(now=WRAP - 40).running()
    p.world.now = WRAP - 12
    p.put(text("one", "m1"), AgentTool(call_id="c", new=True), text("two", "m1"))
    p.put(AgentMessage(role="agent", agent_id="m1", content=(Text("all"), Text("of it"))), after=20)
    p.put(ended(p, "O1"))  # World checks that the end of the step is no id of the message
