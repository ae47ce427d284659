"""Sessions, messages and parts of the core → OpenCode's. Pure."""

from datetime import UTC, datetime
from hashlib import blake2b, sha1
from typing import Any, Protocol

from msgspec import UNSET
from msgspec.structs import replace

from adapters.opencode import translate_content, translate_tools
from adapters.opencode.translate_diff import FileDiff
from adapters.opencode.wire import (
    DEFAULT_MODE,
    DEFAULT_MODEL,
    VERSION,
    Assistant,
    Cache,
    ErrorBody,
    MessagePath,
    MessageTime,
    ModelRef,
    Part,
    ReasoningPart,
    Session,
    SessionModel,
    SessionTime,
    Span,
    StepFinish,
    StepStart,
    TextPart,
    TokenCount,
    ToolPart,
    User,
    WithParts,
)
from gateway.core.content import Block
from gateway.core.ids import TurnId
from gateway.core.model import Child, Error, Pending, Role, SessionInfo, Step, Tokens, ToolCall, UserMessage
from gateway.core.transcript import BlockPart, StepItem, UserItem
from gateway.core.transcript import Part as CorePart
from gateway.core.transcript import TextPart as CoreText

NO_PARENT = "msg_" + "0" * 26
"""The ``parentID`` of an answer to nobody: the agent began by itself."""

FINISH = {
    "continued": "tool-calls",
    "end_turn": "stop",
    "max_tokens": "length",
    "max_turn_requests": "length",
    "refusal": "content-filter",
    "unwritten": "unknown",
}
BROKEN = ("cancelled", "error", "interrupted")

_ADJECTIVES = "brave calm clever cosmic crisp eager gentle glowing happy hidden jolly kind lucky misty neat nimble"
_NOUNS = "cabin cactus canyon circuit comet eagle falcon forest garden harbor island lagoon meadow moon nebula river"
_SLUGS = (_ADJECTIVES.split(), _NOUNS.split())


class Lookup(Protocol):
    """What an event does not say by itself."""

    def child_of(self, session_id: str, message_id: str, /) -> Child | None: ...

    def texts_to(self, session_id: str, child: Child, /) -> list[CoreText]: ...

    def changes(self, session_id: str, turn_id: TurnId, /) -> list[FileDiff]: ...


class Messages:
    """``default_agent``: the provider of a session that is not bound to an agent yet."""

    def __init__(self, default_agent: str, lookup: Lookup | None = None) -> None:
        self._default_agent = default_agent
        self._lookup = lookup

    # --- names ---------------------------------------------------------------------------------------------------

    def provider(self, agent: str) -> str:
        return agent or self._default_agent

    def model(self, model: str) -> str:
        return model or DEFAULT_MODEL

    def mode(self, mode: str) -> str:
        return mode or DEFAULT_MODE

    # --- sessions ------------------------------------------------------------------------------------------------

    def session(self, info: SessionInfo) -> Session:
        kept = info.meta.get("opencode") if isinstance(info.meta, dict) else None
        return Session(
            id=info.id,
            slug=slug(info.id),
            projectID=project_id(info.cwd),
            directory=info.cwd,
            path="",
            cost=info.tokens.cost,
            tokens=tokens(info.tokens),
            title=info.title or default_title(info),
            version=VERSION,
            time=SessionTime(info.created, info.updated, UNSET if info.archived is None else info.archived),
            parentID=info.parent_id or UNSET,
            agent=info.mode or UNSET,
            model=SessionModel(self.model(info.model), info.agent) if info.agent else UNSET,
            permission=kept.get("permission", UNSET) if isinstance(kept, dict) else UNSET,
        )

    # --- messages ------------------------------------------------------------------------------------------------

    def user(self, info: SessionInfo, message: UserMessage | Pending) -> tuple[User, list[Part]]:
        mid = message.ascending_id
        model = ModelRef(self.provider(info.agent), self.model(info.model))
        user = User(mid, info.id, MessageTime(message.created), self.mode(info.mode), model)
        metadata = {"messageId": message.id} if message.id != mid else None
        parts = [
            translate_content.user_part(block, part_id, info.id, mid, metadata)
            for block, part_id in zip(message.content, message.part_ids, strict=False)
        ]
        if isinstance(message, UserMessage) and message.how == "command":  # clients show the command alone
            parts = [replace(part, synthetic=True) if isinstance(part, TextPart) else part for part in parts]
        return user, parts

    def assistant(self, info: SessionInfo, step: Step) -> Assistant:
        mode = self.mode(step.mode)
        broken = step.completed is not None and step.outcome in BROKEN
        done = step.completed is not None and not broken
        return Assistant(
            id=step.id,
            sessionID=info.id,
            parentID=step.parent_id or NO_PARENT,
            mode=mode,
            agent=mode,
            path=MessagePath(info.cwd, info.cwd),
            cost=step.tokens.cost,
            tokens=tokens(step.tokens, total=step.completed is not None),
            modelID=self.model(step.model),
            providerID=self.provider(step.agent or info.agent),
            time=MessageTime(step.created, UNSET if step.completed is None else max(step.created, step.completed)),
            finish=FINISH.get(step.outcome or "", "unknown") if done else UNSET,
            error=(self.error(step.agent, step.outcome, step.error) or UNSET) if broken else UNSET,
        )

    def error(self, agent: str, outcome: str | None, error: Error | None) -> ErrorBody | None:
        """What went wrong with a turn or a step, as this API's clients show it; None if nothing did."""
        if outcome == "cancelled":
            return ErrorBody("MessageAbortedError", {"message": "Aborted"})
        if outcome == "interrupted":
            return ErrorBody("MessageAbortedError", {"message": error.message if error else "The gateway restarted"})
        if outcome not in ("error", "unwritten") or (outcome == "unwritten" and error is None):
            return None
        message = error.message if error else "The agent failed"
        if error is not None and error.code == "auth_required":
            return ErrorBody("ProviderAuthError", {"providerID": self.provider(agent), "message": message})
        return ErrorBody("UnknownError", {"message": message, **({"ref": error.code} if error else {})})

    def step_start(self, session_id: str, step: Step) -> StepStart:
        return StepStart(step.start_part, session_id, step.id)

    def step_finish(self, session_id: str, step: Step) -> StepFinish | None:
        """None while it is open, and for a step that was cut: those have none on this wire."""
        if step.completed is None or step.end_part is None or step.outcome in BROKEN:
            return None
        reason = FINISH.get(step.outcome or "", "unknown")
        return StepFinish(step.end_part, session_id, step.id, reason, step.tokens.cost, tokens(step.tokens, total=True))

    # --- parts ---------------------------------------------------------------------------------------------------

    def text(
        self,
        session_id: str,
        part_id: str,
        message_id: str,
        step_id: str,
        role: Role,
        text: str,
        created: int,
        ended: int | None,
    ) -> Part:
        if role == "session" and self._lookup is not None:
            child = self._lookup.child_of(session_id, message_id)
            if child is not None:
                return translate_tools.task_part(session_id, part_id, message_id, step_id, text, created, child)
        span = Span(created, UNSET if ended is None else max(created, ended))
        extra = metadata(message_id, step_id, role) or UNSET
        if role == "thought":
            return ReasoningPart(part_id, session_id, step_id, text, span, extra)
        return TextPart(part_id, session_id, step_id, text, time=span, metadata=extra)

    def block(
        self, session_id: str, part_id: str, message_id: str, step_id: str, role: Role, created: int, block: Block
    ) -> Part:
        extra = metadata(message_id, step_id, role)
        return translate_content.agent_part(block, part_id, session_id, step_id, created, role == "thought", extra)

    def tool(self, session_id: str, call: ToolCall) -> ToolPart:
        return translate_tools.tool_part(call, session_id)

    def part(self, session_id: str, part: CorePart) -> Part:
        if isinstance(part, CoreText):
            return self.text(
                session_id,
                part.part_id,
                part.message_id,
                part.step_id,
                part.role,
                part.text,
                part.created,
                part.ended,
            )
        if isinstance(part, BlockPart):
            return self.block(
                session_id, part.part_id, part.message_id, part.step_id, part.role, part.created, part.block
            )
        return self.tool(session_id, part.call)

    def tasks(self, session_id: str, child: Child) -> list[Part]:
        """What a child session was told to do, as it stands now."""
        texts = self._lookup.texts_to(session_id, child) if self._lookup is not None else []
        return [self.part(session_id, text) for text in texts]

    def changes(self, session_id: str, turn_id: TurnId) -> list[FileDiff]:
        return self._lookup.changes(session_id, turn_id) if self._lookup is not None else []

    # --- the list ------------------------------------------------------------------------------------------------

    def item(self, info: SessionInfo, item: UserItem | StepItem | Pending) -> WithParts:
        if isinstance(item, StepItem):
            parts: list[Part] = [self.step_start(info.id, item.step)]
            parts += [self.part(info.id, part) for part in item.parts]
            finish = self.step_finish(info.id, item.step)
            if finish is not None:
                parts.append(finish)
            return WithParts(self.assistant(info, item.step), parts)
        message = item.message if isinstance(item, UserItem) else item
        return WithParts(*self.user(info, message))


def metadata(message_id: str, step_id: str, role: Role) -> dict[str, Any]:
    """What a part says beside its text: its message's own id where that is not the step's, and a foreign role."""
    found: dict[str, Any] = {}
    if message_id != step_id:
        found["messageId"] = message_id
    if role == "session":
        found["role"] = role
    return found


def tokens(count: Tokens, total: bool = False) -> TokenCount:
    whole = count.total or count.input + count.output + count.reasoning + count.cache_read + count.cache_write
    cache = Cache(count.cache_read, count.cache_write)
    return TokenCount(count.input, count.output, count.reasoning, cache, whole if total else UNSET)


def project_id(directory: str) -> str:
    return sha1(directory.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def slug(session_id: str) -> str:
    """Two words that only the id decides."""
    first, second = blake2b(session_id.encode("utf-8", "surrogatepass"), digest_size=2).digest()
    return f"{_SLUGS[0][first % 16]}-{_SLUGS[1][second % 16]}"


def default_title(info: SessionInfo) -> str:
    """As OpenCode names a new session: its clients know this form as "no title yet"."""
    moment = datetime.fromtimestamp(info.created / 1000, UTC)
    kind = "Child" if info.parent_id else "New"
    return f"{kind} session - {moment:%Y-%m-%dT%H:%M:%S}.{info.created % 1000:03d}Z"
