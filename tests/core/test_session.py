"""The draft: ids that it mints, and what it is after it was wound back. (That it is what apply makes, World checks.)"""

from gateway.core import events as ev
from gateway.core.content import Text
from gateway.core.ids import MessageId
from gateway.core.inputs import Replace
from gateway.core.model import Refs
from gateway.core.session import Draft, Node
from tests.core.play import Play, submit


def draft(p: Play, taken: frozenset[str] = frozenset()) -> Draft:
    tree = p.world.tree
    return Draft(tree.root_id, tree.sessions, tree.by_agent, tree.policy, p.world.now, b"e" * 16, taken)


def test_an_id_that_is_taken_is_not_minted() -> None:
    p = Play()
    first = draft(p).message_id(draft(p).root)
    one, other = draft(p), draft(p, frozenset({first}))
    assert one.message_id(one.root) == first
    assert other.message_id(other.root) > first


def test_ids_rise_and_never_repeat_whatever_the_machines_clock_does() -> None:
    p = Play().running()
    d = draft(p)
    found = [d.message_id(d.root) for _ in range(50)]
    d.now -= 3_600_000
    found += [d.message_id(d.root) for _ in range(50)]
    d.now += 7_200_000
    found += [d.message_id(d.root) for _ in range(50)]
    assert found == sorted(set(found))


def test_the_clock_counts_ids_that_only_an_ephemeral_event_showed() -> None:
    p = Play().running().put(submit("s", "steer"))
    before = p.state.clock
    p.put(Replace(message_id=p.id("s"), content=(Text("x"), Text("y"))), after=0)
    assert p.decision.durable == () and p.state.clock > before


def test_times_of_the_list_rise_within_a_millisecond() -> None:
    p = Play().put(submit("a"), submit("b"), submit("c"), after=0)
    created = [m.created for m in p.state.inbox.values()]
    assert created == sorted(set(created))


def test_a_draft_wound_back_is_what_it_was() -> None:
    p = Play().running()
    d = draft(p)
    d.emit(d.root, ev.MessageRefs("x", Refs(sender_session="me")))
    node = _copy(d.root)
    d.emit(d.root, ev.SessionDeleted(d.root.info))
    d.emit(d.root, ev.TurnEnded(p.id("T1"), "end_turn"))
    back = d.rewound(1, 0)
    assert back.records == d.records[:1] and back.effects == []
    assert back.root.state == node.state and dict(back.root.refs) == dict(node.refs)
    assert back.message_id(back.root) != MessageId("")


def _copy(node: Node) -> Node:
    copy = Node(node.base, b"e" * 16)
    copy.state, copy.refs = node.state.fork(), node.refs.copy()
    return copy
