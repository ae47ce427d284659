"""Playbooks: a story told as inputs (``>>``) and what must come of them; what is not told fails.

    p = Play().put(Submit(...))
    p.expect('''
        admitted a queue
        ~ agent starting
        !! StartAgent
        == pending a
    ''')

A line is an event (``~``: ephemeral; ``@child``: of that child session), an effect (``!!``) or a reply (``==``), as
``trace.py`` writes them. Names like T1, O1, a can be used in inputs: ``p.id("O1")``.
"""

from textwrap import dedent
from typing import Any

from gateway.core import waits
from gateway.core.content import Text
from gateway.core.ids import MessageId, OfferId, RequestId, SessionId
from gateway.core.inputs import (
    Abort,
    AgentGone,
    AgentReady,
    AgentText,
    Input,
    PromptEnded,
    PromptUnwritten,
    PromptWritten,
    Recover,
    SteerVerdict,
    Submit,
)
from gateway.core.model import Error
from gateway.core.session import Policy
from gateway.core.tree import Decision
from tests.core import trace
from tests.core.world import T0, World


class Play:
    def __init__(self, policy: Policy = Policy(), now: int = T0, **about: Any) -> None:
        self.world = World(policy, now, **about)
        self.decision: Decision | None = None
        self._told: list[str] = []

    @property
    def root(self) -> Any:
        return self.world.root

    @property
    def state(self) -> Any:
        return self.world.root.state

    @property
    def transcript(self) -> Any:
        return self.world.root.transcript

    def id(self, name: str) -> Any:
        return self.world.names.ids[name]

    def child(self, agent_session: str) -> Any:
        return self.world.tree.sessions[self.world.tree.by_agent[agent_session]]

    # --- a step -------------------------------------------------------------------------------------------------------

    def put(self, *items: Input | tuple[SessionId, Input], after: int = 10) -> "Play":
        """Decide and apply some inputs together, ``after`` milliseconds."""
        self.world.now += after
        start = len(self.world.lines)
        self.decision = self.world.step(*items)
        self._told = [line for line in self.world.lines[start:] if not line.startswith((">>", "   "))]
        return self

    def expect(self, text: str) -> "Play":
        """Exactly these lines came of the last ``put``."""
        wanted = [line.split("#")[0].rstrip() for line in dedent(text).strip().splitlines()]
        got = [line.removeprefix("<< ") for line in self._told]
        assert got == [line for line in wanted if line], "got:\n" + "\n".join(got)
        return self

    def expect_nothing(self) -> "Play":
        return self.expect("")

    def has(self, *lines: str) -> "Play":
        """These lines came of the last ``put``, in this order, among others: for a preparation, not for a subject."""
        got = iter([line.removeprefix("<< ") for line in self._told])
        assert all(line in got for line in lines), "\n".join(self._told)
        return self

    @property
    def reply(self) -> Any:
        assert self.decision is not None
        return self.decision.replies[-1]

    def settled(self, name: str) -> str | None:
        """How a waiter on a message is answered."""
        found = waits.settlement(self.root, MessageId(self.world.names.ids.get(name, f"msg_{name}")))
        return trace.reply(self.world.names, found) if found is not None else None

    def restart(self, on_restart: Any = "run") -> "Play":
        return self.put(Recover(checkpoints=self.world.reload(), on_restart=on_restart))

    # --- preparations -------------------------------------------------------------------------------------------------

    def running(self, name: str = "a", steer: bool = True, withdraw: bool = True) -> "Play":
        """A message was submitted, its agent started, its prompt is written: T1 runs."""
        self.put(submit(name))
        self.put(AgentReady(own_id="agent-1", can_steer=steer, can_withdraw=withdraw)).has("!! OfferPrompt O1 " + name)
        return self.put(written(self, "O1")).has(f"delivered {name} T1 prompt")

    def idle(self, steer: bool = True) -> "Play":
        """As ``running``, and the turn is over."""
        return self.running(steer=steer).put(ended(self, "O1")).has("ended T1 end_turn")


def submit(name: str, delivery: Any = "queue", text: str | None = None, **more: Any) -> Submit:
    return Submit(content=say(text or name), delivery=delivery, message_id=MessageId(f"msg_{name}"), **more)


def say(text: str) -> tuple[Text, ...]:
    return (Text(text),)


def written(p: Play, offer: str) -> PromptWritten:
    return PromptWritten(offer_id=OfferId(p.id(offer)))


def unwritten(p: Play, offer: str) -> PromptUnwritten:
    return PromptUnwritten(offer_id=OfferId(p.id(offer)), error=Error("agent_exit", "pipe"))


def ended(p: Play, offer: str | None, outcome: Any = "end_turn", error: str = "") -> PromptEnded:
    return PromptEnded(
        outcome=outcome,
        offer_id=OfferId(p.id(offer)) if offer else None,
        error=Error(error, error) if error else None,
    )


def verdict(p: Play, offer: str, word: Any, name: str | None = None, agent_id: str = "") -> SteerVerdict:
    return SteerVerdict(
        offer_id=OfferId(p.id(offer)),
        verdict=word,
        message_id=MessageId(p.id(name)) if name else None,
        agent_id=agent_id,
    )


def died(code: str = "agent_exit") -> AgentGone:
    return AgentGone(error=Error(code, "it ended"))


def text(words: str, agent_id: str = "", role: Any = "agent", session: str = "") -> AgentText:
    return AgentText(role=role, text=words, agent_id=agent_id, agent_session=session)


def request(p: Play, name: str) -> RequestId:
    return RequestId(p.id(name))


ABORT = Abort()
