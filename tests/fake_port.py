"""An agent port inside the test process: a script decides what it tells. Not evidence about any real agent; it lets
the tests of the controller say exactly when the agent does what.
"""

from gateway.agents import AgentConfig, Sink
from gateway.core import effects as fx
from gateway.core.inputs import AgentFact, AgentReady, AgentText, PromptEnded, PromptWritten
from gateway.core.model import SessionInfo


class FakePort:
    """Answers at once: a prompt is echoed. ``auto`` False: only what the test tells."""

    def __init__(self, farm: "Farm", config: AgentConfig, info: SessionInfo, sink: Sink) -> None:
        self.farm = farm
        self.config = config
        self.info = info
        self.sink = sink
        self.effects: list[fx.AnyEffect] = []
        self.closed = False
        self.has_history = False

    def start(self, info: SessionInfo, has_history: bool) -> None:
        self.has_history = has_history
        if self.farm.auto_ready:
            self.tell(AgentReady(own_id="agent-1", can_steer=self.farm.can_steer, can_fork=self.farm.can_fork))

    def perform(self, effect: fx.AnyEffect) -> None:
        self.effects.append(effect)
        if isinstance(effect, fx.OfferPrompt):
            self.farm.prompts.append([getattr(m.content[0], "text", "") for m in effect.messages])
            self.tell(PromptWritten(offer_id=effect.offer_id))
            if self.farm.auto_answer:
                text = " ".join(self.farm.prompts[-1])
                self.tell(
                    AgentText(role="agent", text="echo: "),
                    AgentText(role="agent", text=text),
                    PromptEnded(offer_id=effect.offer_id, outcome="end_turn"),
                )

    async def close(self) -> None:
        self.closed = True

    def tell(self, *facts: AgentFact) -> None:
        self.sink(facts)

    def last(self, kind: type[fx.Effect]) -> fx.AnyEffect:
        return next(e for e in reversed(self.effects) if isinstance(e, kind))


class Farm:
    """Makes ports and remembers them, and every prompt that any of them got."""

    def __init__(
        self, auto_ready: bool = True, auto_answer: bool = True, can_steer: bool = False, can_fork: bool = False
    ) -> None:
        self.auto_ready = auto_ready
        self.can_fork = can_fork
        self.auto_answer = auto_answer
        self.can_steer = can_steer
        self.ports: list[FakePort] = []
        self.prompts: list[list[str]] = []

    def __call__(self, config: AgentConfig, info: SessionInfo, sink: Sink) -> FakePort:
        self.ports.append(FakePort(self, config, info, sink))
        return self.ports[-1]

    @property
    def port(self) -> FakePort:
        return self.ports[-1]
