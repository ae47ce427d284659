"""The shapes of AG-UI. What comes in is judged by the protocol's own models (``ag_ui``), which this file hands on; what
goes out are the structs here: milliseconds as integers, no nulls, camelCase, as the official clients demand.
"""

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from ag_ui.core import ResumeEntry, RunAgentInput, UserMessage
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

__all__ = [
    "Event",
    "Invalid",
    "Options",
    "Patch",
    "ResumeEntry",
    "RunAgentInput",
    "Side",
    "UserMessage",
    "encode",
    "judge",
    "judge_message",
    "judge_options",
    "judge_patch",
    "judge_side",
]

Json: TypeAlias = Any
T = TypeVar("T", bound=BaseModel)

VERSION = "1.0"
NAMESPACE = "trunkline"  # of ``forwardedProps`` and of ``metadata``

PIECE = 262_144  # characters of one text in one event: the clients stop at 10 MB without a frame's end

encode = msgspec.json.Encoder().encode


def pieces(text: str) -> list[str]:
    """A text as the deltas that it is sent in."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)] or [""]


# --- what comes in ---------------------------------------------------------------------------------------------------


class Invalid(Exception):
    """``problems``: (where, what) of each thing that is wrong."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{where}: {what}" for where, what in problems))
        self.problems = problems


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=False)


class Options(Strict):
    """``forwardedProps.trunkline``: what AG-UI has no word for."""

    delivery: Literal["queue", "steer", "reject"] | None = None
    on_abort: Literal["keep", "hold", "revoke"] = "keep"
    on_disconnect: Literal["cancel", "continue"] | None = None
    cursor: str = Field(default="", max_length=100)
    cwd: str = ""
    mode: str = Field(default="", max_length=256)
    model: str = Field(default="", max_length=256)
    title: str = Field(default="", max_length=1000)


class SideMessage(Strict):
    id: str | None = Field(default=None, min_length=1, max_length=256)
    role: Literal["user"] = "user"
    content: Json


class Side(Strict):
    """The body of ``POST …/messages``."""

    messages: Annotated[list[SideMessage], Field(min_length=1)]
    delivery: Literal["queue", "steer", "reject"] = "queue"
    on_abort: Literal["keep", "hold", "revoke"] = "hold"


class Patch(Strict):
    """The body of ``PATCH …/pending/{messageId}``."""

    content: Json


_SIMPLE = {
    "missing": "is missing",
    "union_tag_invalid": "",
    "extra_forbidden": "is not a field here",
}


def _judged(check: "type[BaseModel] | TypeAdapter[Any]", value: Json, at: str = "") -> Any:
    try:
        return check.validate_python(value) if isinstance(check, TypeAdapter) else check.model_validate(value)
    except ValidationError as error:
        problems = []
        for detail in error.errors(include_url=False):
            where = ".".join(str(step) for step in detail["loc"] if not _is_tag(step))
            what = _SIMPLE.get(detail["type"]) or detail["msg"][:300]
            problems.append((".".join(filter(None, (at, where))) or "the body", what))
        raise Invalid(problems[:20]) from None


_TAGS = frozenset("developer system assistant user tool activity reasoning text image audio video document".split())


def _is_tag(step: int | str) -> bool:
    """Steps of pydantic's places that are no place in the JSON: the branch of a union."""
    return isinstance(step, str) and (step in _TAGS and step != "text" or step.startswith("list[") or step == "str")


def judge(value: Json) -> RunAgentInput:
    """A RunAgentInput. Foreign fields are kept, as the protocol asks. Raises Invalid."""
    made: RunAgentInput = _judged(RunAgentInput, value)
    if not made.thread_id or len(made.thread_id) > 256:
        raise Invalid([("threadId", "must be 1 to 256 characters")])
    if not made.run_id or len(made.run_id) > 256:
        raise Invalid([("runId", "must be 1 to 256 characters")])
    return made


def judge_message(value: Json, at: str) -> UserMessage:
    made: UserMessage = _judged(UserMessage, value, at)
    return made


def judge_options(forwarded: Json) -> Options:
    mine = forwarded.get(NAMESPACE) if isinstance(forwarded, dict) else None
    made: Options = _judged(Options, {} if mine is None else mine, f"forwardedProps.{NAMESPACE}")
    return made


def judge_side(value: Json) -> Side:
    made: Side = _judged(Side, value)
    return made


def judge_patch(value: Json) -> Patch:
    made: Patch = _judged(Patch, value)
    return made


# --- what goes out ---------------------------------------------------------------------------------------------------


class Out(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type", kw_only=True):
    metadata: dict[str, Json] | None = None


class Tagged(Out, frozen=True, kw_only=True):
    """An event that a subagent's work may carry."""

    subagent_run_id: str | None = None


class RunStarted(Out, frozen=True, tag="RUN_STARTED"):
    thread_id: str
    run_id: str
    protocol_version: str | None = None
    input: dict[str, Json] | None = None


class RunFinished(Out, frozen=True, tag="RUN_FINISHED"):
    thread_id: str
    run_id: str
    result: Json = None
    outcome: dict[str, Json] | None = None
    usage: list[dict[str, Json]] | None = None


class RunError(Out, frozen=True, tag="RUN_ERROR"):
    message: str
    code: str | None = None
    usage: list[dict[str, Json]] | None = None


class TextStart(Tagged, frozen=True, tag="TEXT_MESSAGE_START"):
    message_id: str
    role: str


class TextContent(Tagged, frozen=True, tag="TEXT_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class TextEnd(Tagged, frozen=True, tag="TEXT_MESSAGE_END"):
    message_id: str


class ReasoningStart(Tagged, frozen=True, tag="REASONING_START"):
    message_id: str


class ReasoningMessageStart(Tagged, frozen=True, tag="REASONING_MESSAGE_START"):
    message_id: str
    role: str


class ReasoningContent(Tagged, frozen=True, tag="REASONING_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class ReasoningMessageEnd(Tagged, frozen=True, tag="REASONING_MESSAGE_END"):
    message_id: str


class ReasoningEnd(Tagged, frozen=True, tag="REASONING_END"):
    message_id: str


class ToolStart(Tagged, frozen=True, tag="TOOL_CALL_START"):
    tool_call_id: str
    tool_call_name: str
    parent_message_id: str | None = None


class ToolArgs(Tagged, frozen=True, tag="TOOL_CALL_ARGS"):
    tool_call_id: str
    delta: str


class ToolEnd(Tagged, frozen=True, tag="TOOL_CALL_END"):
    tool_call_id: str


class ToolResult(Tagged, frozen=True, tag="TOOL_CALL_RESULT"):
    message_id: str
    tool_call_id: str
    content: str


class StateSnapshot(Out, frozen=True, tag="STATE_SNAPSHOT"):
    snapshot: Json


class StateDelta(Out, frozen=True, tag="STATE_DELTA"):
    delta: list[dict[str, Json]]


class MessagesSnapshot(Out, frozen=True, tag="MESSAGES_SNAPSHOT"):
    messages: list[dict[str, Json]]


class ActivitySnapshot(Tagged, frozen=True, tag="ACTIVITY_SNAPSHOT"):
    message_id: str
    activity_type: str
    content: dict[str, Json]


class ActivityDelta(Tagged, frozen=True, tag="ACTIVITY_DELTA"):
    message_id: str
    activity_type: str
    patch: list[dict[str, Json]]


class Custom(Tagged, frozen=True, tag="CUSTOM"):
    name: str
    value: Json


class SubagentStarted(Out, frozen=True, tag="SUBAGENT_STARTED"):
    subagent_run_id: str
    name: str
    description: str | None = None
    parent_subagent_run_id: str | None = None


class SubagentFinished(Out, frozen=True, tag="SUBAGENT_FINISHED"):
    subagent_run_id: str
    outcome: dict[str, Json] | None = None


class SubagentError(Out, frozen=True, tag="SUBAGENT_ERROR"):
    subagent_run_id: str
    message: str


Event: TypeAlias = (
    RunStarted
    | RunFinished
    | RunError
    | TextStart
    | TextContent
    | TextEnd
    | ReasoningStart
    | ReasoningMessageStart
    | ReasoningContent
    | ReasoningMessageEnd
    | ReasoningEnd
    | ToolStart
    | ToolArgs
    | ToolEnd
    | ToolResult
    | StateSnapshot
    | StateDelta
    | MessagesSnapshot
    | ActivitySnapshot
    | ActivityDelta
    | Custom
    | SubagentStarted
    | SubagentFinished
    | SubagentError
)
