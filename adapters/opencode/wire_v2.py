"""What requests of OpenCode's API version 2 (``/api``) bring, as msgspec structs. Field names are the wire's own.

Source: OpenCode 1.18.33, its OpenAPI document and recorded traffic. Unknown fields are ignored, as there.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from adapters.opencode.wire import In, Name

PATTERN_MESSAGE = r"^msg_[A-Za-z0-9_.-]{0,128}\Z"
PATTERN_SESSION = r"^ses[A-Za-z0-9_-]{1,77}\Z"
"""What the ids of clients may be: nothing that cannot stand in a URL."""

MessageIdText: TypeAlias = Annotated[str, Meta(pattern=PATTERN_MESSAGE)]
SessionIdText: TypeAlias = Annotated[str, Meta(pattern=PATTERN_SESSION)]


class FileAttachment(In, frozen=True):
    uri: str
    name: Name | None = None
    description: Name | None = None
    source: Any = None


class AgentAttachment(In, frozen=True):
    """A mention of an OpenCode agent. The text says it too."""

    name: Name
    source: Any = None


class PromptInput(In, frozen=True):
    text: str
    files: list[FileAttachment] = []
    agents: list[AgentAttachment] = []


class NewPrompt(In, frozen=True):
    """``resume`` false: keep it, start nothing."""

    prompt: PromptInput
    id: MessageIdText | None = None
    delivery: Literal["steer", "queue"] = "steer"
    resume: bool = True


class PendingPatch(In, frozen=True):
    """Ours: another content for a message that is not delivered."""

    prompt: PromptInput


class ModelRef(In, frozen=True):
    id: Name
    providerID: Name
    variant: Name | None = None


class Location(In, frozen=True):
    directory: str
    workspaceID: str | None = None


class NewSession(In, frozen=True):
    id: SessionIdText | None = None
    agent: Name | None = None
    model: ModelRef | None = None
    location: Location | None = None


class AgentChoice(In, frozen=True):
    agent: Name


class ModelChoice(In, frozen=True):
    model: ModelRef


class PermissionReply(In, frozen=True):
    reply: Literal["once", "always", "reject"]
    message: str | None = None


class QuestionReply(In, frozen=True):
    answers: list[list[str]]
