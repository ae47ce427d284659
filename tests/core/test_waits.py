"""What those who wait are answered, in every place where a message can be."""

import pytest

from gateway.core import waits
from gateway.core.errors import NotFound
from gateway.core.ids import MessageId
from gateway.core.inputs import AgentReady, Delete, Replace, Revoke, TurnBegan, WithdrawVerdict
from gateway.core.replies import Wait
from tests.core.play import ABORT, Play, died, ended, say, submit, text, unwritten, verdict, written


def test_a_message_through_its_life() -> None:
    p = Play().put(submit("a"))
    assert p.settled("a") is None  # the agent starts
    p.put(AgentReady())
    assert p.settled("a") is None  # offered
    p.put(written(p, "O1"), text("x"))
    assert p.settled("a") is None  # delivered, running
    p.put(ended(p, "O1", "max_tokens"))
    assert p.settled("a") == "ended a T1 max_tokens"
    p.put(submit("b"))
    assert p.settled("a") == "ended a T1 max_tokens"  # and stays


def test_held_is_an_answer_only_while_it_is_held() -> None:
    p = Play().put(submit("a", if_idle="store"))
    assert p.settled("a") == "held a why=stored"
    p.put(submit("a"))
    assert p.settled("a") is None
    p.put(died("agent_unknown"))
    assert p.settled("a") == "held a why=agent_exit error=agent_unknown"
    p.put(submit("a")).put(AgentReady()).put(unwritten(p, "O1"))
    assert p.settled("a") == "held a why=unwritten"


def test_revoked() -> None:
    p = Play().put(submit("a")).put(Revoke(message_id=MessageId("msg_a")))
    assert p.settled("a") == "revoked a"


def test_an_error_and_a_cancel() -> None:
    p = Play().running()
    p.put(ended(p, "O1", "error", "auth_required"))
    assert p.settled("a") == "ended a T1 error error=auth_required"
    p.put(submit("b")).put(written(p, "O2")).put(ABORT).put(ended(p, "O2", "cancelled"))
    assert p.settled("b") == "ended b T2 cancelled"


def test_both_ids_of_a_message_with_two() -> None:
    p = Play().put(submit("a", local_id=True, if_idle="store"))
    entry = p.state.inbox[MessageId("msg_a")]
    for value in (entry.id, MessageId(entry.ascending_id)):
        found = waits.settlement(p.root, value)
        assert found is not None and found.message_id == "msg_a"


def test_nobody_waits_for_what_was_never_admitted() -> None:
    p = Play()
    with pytest.raises(NotFound):
        waits.settlement(p.root, MessageId("msg_no"))
    verdict_ = waits.verdict(p.root, Wait(MessageId("msg_no"), 1))
    assert verdict_ is not None and verdict_.kind == "unknown"


def test_nobody_waits_in_a_deleted_session() -> None:
    p = Play().running().put(Delete())
    with pytest.raises(NotFound):
        waits.settlement(p.root, MessageId("msg_a"))


def asked() -> tuple[Play, Wait, Wait]:
    """A replace and then a revoke of an offered steer, both unanswered."""
    p = Play().running().put(submit("s", "steer"))
    p.put(Replace(message_id=p.id("s"), content=say("new")))
    one = p.reply
    p.put(Revoke(message_id=p.id("s")))
    return p, one, p.reply


def fates(p: Play, *asked: Wait) -> list[str | None]:
    found = [waits.verdict(p.root, wait) for wait in asked]
    return [f.kind + ("?" if f.uncertain else "") if f is not None else None for f in found]


def test_wishes_about_an_offered_message() -> None:
    p, one, two = asked()
    assert fates(p, one, two) == [None, None]
    p.put(WithdrawVerdict(offer_id=p.id("O2"), message_id=p.id("s"), question=1, done=True))
    assert fates(p, one, two) == ["replaced", None]
    p.put(WithdrawVerdict(offer_id=p.id("O2"), message_id=p.id("s"), question=2, done=True))
    assert fates(p, two) == ["revoked"]


def test_wishes_when_the_message_is_delivered() -> None:
    p, one, two = asked()
    p.put(verdict(p, "O2", "injected"))
    assert fates(p, one, two) == ["already_delivered", "already_delivered"]


def test_a_wish_that_was_granted_just_before_the_delivery() -> None:
    """Both may be decided before anybody asks what became of the wish."""
    p, one, two = asked()
    p.put(WithdrawVerdict(offer_id=p.id("O2"), message_id=p.id("s"), question=1, done=True))
    p.put(verdict(p, "O2", "injected"))
    assert fates(p, one, two) == ["replaced", "already_delivered"]


def test_wishes_when_the_message_comes_back() -> None:
    p, one, two = asked()
    p.put(verdict(p, "O2", "refused"))
    assert fates(p, one, two) == ["revoked", "revoked"]


def test_wishes_when_the_agent_dies() -> None:
    p, one, two = asked()
    p.put(died())
    assert fates(p, one, two) == ["revoked?", "revoked?"]


def test_a_replace_when_the_agent_dies() -> None:
    p = Play().running().put(submit("s", "steer"))
    p.put(Replace(message_id=p.id("s"), content=say("new")))
    wait = p.reply
    p.put(died())
    assert fates(p, wait) == ["replaced?"]
    assert p.state.inbox[p.id("s")].content == say("new")


def test_idle() -> None:
    p = Play()
    assert waits.idle(p.root)
    p.put(submit("a"))
    assert not waits.idle(p.root)
    p.put(AgentReady(can_steer=True)).put(written(p, "O1")).put(submit("s", "steer"))
    p.put(verdict(p, "O2", "accepted"), ended(p, "O1"))
    assert not waits.idle(p.root)  # the agent will begin by itself
    p.put(TurnBegan(), verdict(p, "O2", "injected"))
    assert not waits.idle(p.root)
    p.put(ended(p, None), submit("h", if_idle="store"))
    assert waits.idle(p.root)
