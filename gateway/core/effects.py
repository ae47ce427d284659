"""What to do next, in the imperative. The shell performs these after the commit; none of them is awaited."""

from typing import Literal, TypeAlias

import msgspec

from gateway.core.content import Content, Json
from gateway.core.ids import MessageId, OfferId, TurnId
from gateway.core.model import Answered, Pending


class Effect(msgspec.Struct, frozen=True):
    pass


class StartAgent(Effect, frozen=True):
    """Bring the agent up for this session: AgentReady or AgentGone answers."""


class OfferPrompt(Effect, frozen=True):
    """Write a prompt: PromptWritten or PromptUnwritten answers, later PromptEnded.

    ``context``: what else the agent is told, before the messages.
    """

    offer_id: OfferId
    turn_id: TurnId
    messages: tuple[Pending, ...]
    context: Content = ()

    @property
    def content(self) -> Content:
        """All that the agent is told."""
        return (*self.context, *(block for message in self.messages for block in message.content))


class OfferSteer(Effect, frozen=True):
    """Put messages into the running turn: SteerVerdict answers, within a deadline of the shell's."""

    offer_id: OfferId
    turn_id: TurnId
    messages: tuple[Pending, ...]


class Withdraw(Effect, frozen=True):
    """Ask for an offered message back, or (``content``) to replace it: WithdrawVerdict answers."""

    offer_id: OfferId
    message_id: MessageId
    question: int
    content: Content | None = None


class CancelTurn(Effect, frozen=True):
    """Ask the agent to stop; after the grace period the shell sends GraceOver(turn_id)."""

    turn_id: TurnId


class StartCommand(Effect, frozen=True):
    """Run a person's command line in a folder: CommandSaid tells its output, CommandEnded its end."""

    turn_id: TurnId
    command: str
    cwd: str


class StopCommand(Effect, frozen=True):
    """End the command of this turn: CommandEnded follows."""

    turn_id: TurnId


class KillAgent(Effect, frozen=True):
    """The agent does not listen: end its process group. AgentGone answers."""

    why: str


class AnswerAgent(Effect, frozen=True):
    agent_ref: str
    outcome: Answered


class ConfigureAgent(Effect, frozen=True):
    """Set the mode, the model, or any option of the agent's session."""

    mode: str | None = None
    model: str | None = None
    config: tuple[str, Json] | None = None


class CancelChild(Effect, frozen=True):
    agent_session: str


class CancelWork(Effect, frozen=True):
    """Cancel one tool call or terminal. ``agent_session`` is empty for the root."""

    agent_session: str
    kind: Literal["tool_call", "terminal"]
    id: str


AnyEffect: TypeAlias = (
    StartAgent
    | OfferPrompt
    | OfferSteer
    | Withdraw
    | CancelTurn
    | StartCommand
    | StopCommand
    | KillAgent
    | AnswerAgent
    | ConfigureAgent
    | CancelChild
    | CancelWork
)
