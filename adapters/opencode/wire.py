"""The shapes of OpenCode's v1 API, as msgspec structs: what requests bring (``Prompt`` …) and what answers and frames
carry. Field names are the wire's own.

Source: OpenCode 1.18.33, its OpenAPI document and recorded traffic. Unknown fields of a request are ignored, as there.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

VERSION = "1.18.33"
"""The OpenCode version whose behaviour is served, told wherever that API tells its own."""

DEFAULT_MODE = "build"
"""The name of the OpenCode agent where the ACP agent has no modes (or has not said them yet)."""

DEFAULT_MODEL = "default"

PATTERN_MESSAGE = r"^msg[A-Za-z0-9_.-]{0,128}\Z"
PATTERN_PART = r"^prt[0-9A-Za-z_-]{1,64}\Z"
"""What the ids of clients may be: nothing that cannot stand in a URL, and nothing that breaks the order of ids."""


class Out(msgspec.Struct, frozen=True, omit_defaults=True):
    pass


# --- sessions ------------------------------------------------------------------------------------------------------


class Cache(msgspec.Struct, frozen=True):
    read: int = 0
    write: int = 0


class TokenCount(Out, frozen=True):
    input: int
    output: int
    reasoning: int
    cache: Cache
    total: int | UnsetType = UNSET


class SessionTime(Out, frozen=True):
    created: int
    updated: int
    archived: int | UnsetType = UNSET


class SessionModel(Out, frozen=True):
    id: str
    providerID: str


class Session(Out, frozen=True):
    id: str
    slug: str
    projectID: str
    directory: str
    path: str
    cost: float
    tokens: TokenCount
    title: str
    version: str
    time: SessionTime
    parentID: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    model: SessionModel | UnsetType = UNSET
    permission: Any = UNSET


# --- messages ------------------------------------------------------------------------------------------------------


class ErrorBody(Out, frozen=True):
    """``{name, data}``: a session error, a message's error, and an HTTP error."""

    name: str
    data: dict[str, Any]


class ModelRef(Out, frozen=True):
    providerID: str
    modelID: str


class MessageTime(Out, frozen=True):
    created: int
    completed: int | UnsetType = UNSET


class MessagePath(Out, frozen=True):
    cwd: str
    root: str


class User(Out, frozen=True, tag_field="role", tag="user"):
    id: str
    sessionID: str
    time: MessageTime
    agent: str
    model: ModelRef


class Assistant(Out, frozen=True, tag_field="role", tag="assistant"):
    id: str
    sessionID: str
    parentID: str
    mode: str
    agent: str
    path: MessagePath
    cost: float
    tokens: TokenCount
    modelID: str
    providerID: str
    time: MessageTime
    finish: str | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET


Message: TypeAlias = User | Assistant


class Span(Out, frozen=True):
    start: int
    end: int | UnsetType = UNSET


class PartBase(Out, frozen=True):
    id: str
    sessionID: str
    messageID: str


class TextPart(PartBase, frozen=True, tag_field="type", tag="text"):
    text: str
    synthetic: bool | UnsetType = UNSET
    time: Span | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET


class ReasoningPart(PartBase, frozen=True, tag_field="type", tag="reasoning"):
    text: str
    time: Span
    metadata: dict[str, Any] | UnsetType = UNSET


class FilePart(PartBase, frozen=True, tag_field="type", tag="file"):
    mime: str
    url: str
    filename: str | UnsetType = UNSET
    source: Any = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET


class StepStart(PartBase, frozen=True, tag_field="type", tag="step-start"):
    pass


class StepFinish(PartBase, frozen=True, tag_field="type", tag="step-finish"):
    reason: str
    cost: float
    tokens: TokenCount


class Pending(Out, frozen=True, tag_field="status", tag="pending"):
    input: dict[str, Any]
    raw: str


class Running(Out, frozen=True, tag_field="status", tag="running"):
    input: dict[str, Any]
    time: Span
    title: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET


class Completed(Out, frozen=True, tag_field="status", tag="completed"):
    input: dict[str, Any]
    output: str
    title: str
    metadata: dict[str, Any]
    time: Span


class Failed(Out, frozen=True, tag_field="status", tag="error"):
    input: dict[str, Any]
    error: str
    time: Span
    metadata: dict[str, Any] | UnsetType = UNSET


class ToolPart(PartBase, frozen=True, tag_field="type", tag="tool"):
    tool: str
    callID: str
    state: Pending | Running | Completed | Failed


Part: TypeAlias = TextPart | ReasoningPart | FilePart | StepStart | StepFinish | ToolPart


class WithParts(Out, frozen=True):
    info: Message
    parts: list[Part]


# --- requests of the agent -----------------------------------------------------------------------------------------


class ToolRef(Out, frozen=True):
    messageID: str
    callID: str


class Permission(Out, frozen=True):
    id: str
    sessionID: str
    permission: str
    patterns: list[str]
    metadata: dict[str, Any]
    always: list[str]
    tool: ToolRef | UnsetType = UNSET


class Choice(Out, frozen=True):
    label: str
    description: str


class QuestionInfo(Out, frozen=True):
    question: str
    header: str
    options: list[Choice]
    multiple: bool | UnsetType = UNSET
    custom: bool | UnsetType = UNSET


class Question(Out, frozen=True):
    id: str
    sessionID: str
    questions: list[QuestionInfo]
    tool: ToolRef | UnsetType = UNSET


class Todo(Out, frozen=True):
    content: str
    status: str
    priority: str


# --- frames --------------------------------------------------------------------------------------------------------


class Event(msgspec.Struct, frozen=True):
    """What a frame says, without the id and the envelope that a stream puts around it."""

    type: str
    properties: Any


# --- what requests bring -------------------------------------------------------------------------------------------

MessageIdText: TypeAlias = Annotated[str, Meta(pattern=PATTERN_MESSAGE)]
PartIdText: TypeAlias = Annotated[str, Meta(pattern=PATTERN_PART)]
Name: TypeAlias = Annotated[str, Meta(max_length=1024)]


class In(msgspec.Struct, frozen=True):
    pass


class TextInput(In, frozen=True, tag_field="type", tag="text"):
    text: str
    id: PartIdText | None = None
    synthetic: bool | None = None
    ignored: bool | None = None


class FileInput(In, frozen=True, tag_field="type", tag="file"):
    mime: Name
    url: str
    id: PartIdText | None = None
    filename: Name | None = None
    source: Any = None


class AgentInput(In, frozen=True, tag_field="type", tag="agent"):
    """A mention of an OpenCode agent. The text beside it says it too."""

    name: Name
    id: PartIdText | None = None


class SubtaskInput(In, frozen=True, tag_field="type", tag="subtask"):
    prompt: str
    id: PartIdText | None = None


PartInput: TypeAlias = TextInput | FileInput | AgentInput | SubtaskInput


class ModelInput(In, frozen=True):
    providerID: Name
    modelID: Name


class Shell(In, frozen=True):
    agent: Name
    command: str
    messageID: MessageIdText | None = None
    model: ModelInput | None = None


class Prompt(In, frozen=True):
    """``delivery`` is ours: ``steer`` reaches the running turn, ``queue`` (the default) waits for the next."""

    parts: list[PartInput]
    messageID: MessageIdText | None = None
    model: ModelInput | None = None
    agent: Name | None = None
    noReply: bool | None = None
    delivery: Literal["steer", "queue"] | None = None
    system: str | None = None
    variant: str | None = None


class ModelChoice(In, frozen=True):
    providerID: Name
    id: Name


class NewSession(In, frozen=True):
    title: Name | None = None
    parentID: Name | None = None
    agent: Name | None = None
    model: ModelChoice | None = None
    permission: list[dict[str, Any]] | None = None


class TimePatch(In, frozen=True):
    archived: Annotated[int, Meta(ge=0, le=2**53)] | None | UnsetType = UNSET


class SessionPatch(In, frozen=True):
    title: Name | UnsetType = UNSET
    time: TimePatch | UnsetType = UNSET


class PermissionReply(In, frozen=True):
    reply: Literal["once", "always", "reject"]
    message: str | None = None


class LegacyPermissionReply(In, frozen=True):
    response: Literal["once", "always", "reject"]


class QuestionReply(In, frozen=True):
    answers: list[list[str]]
