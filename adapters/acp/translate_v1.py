"""ACP v1 to the vocabulary of the core, and back. Pure: JSON in, facts out, no state, no I/O, nothing raised.

Unknown kinds, unknown fields and malformed updates are kept (``AgentUnknown``, ``Source``), never dropped. An explicit
null is an absent field, but where the protocol says that null clears (``subagent_update``).
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, cast

import msgspec

from adapters.acp.wire import AgentChunk, PlainLine, as_object
from gateway.core import content as blocks
from gateway.core.content import Block, Content
from gateway.core.inputs import (
    UNSET,
    AgentAsk,
    AgentBlock,
    AgentChild,
    AgentCommands,
    AgentConfig,
    AgentFact,
    AgentMode,
    AgentPlan,
    AgentRefs,
    AgentText,
    AgentTitle,
    AgentTool,
    AgentUnknown,
    AgentUsage,
    AgentUser,
)
from gateway.core.model import (
    Accepted,
    Answered,
    Declined,
    Error,
    Option,
    Outcome,
    Refs,
    Role,
    Selected,
    Source,
    Tokens,
    ToolStatus,
)

Json: TypeAlias = Any
Raw: TypeAlias = msgspec.Raw

WIRE = "acp1"
STATUS = ("pending", "in_progress", "completed", "failed", "cancelled")
STOP = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
ROLES: dict[str, Role] = {
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
    "session_message_chunk": "session",
}


class TextRun(msgspec.Struct, gc=False):
    """Plain chunks of one message that came together, as one."""

    session_id: str
    role: Role
    text: str
    agent_id: str


def coalesce(messages: Iterable[Any]) -> Iterator[Any]:
    """The messages of one read, with adjacent plain chunks of one message merged into a ``TextRun``."""
    texts: list[str] = []
    session_id, kind, message_id = "", AgentChunk, None
    for message in messages:
        if type(message) is PlainLine:
            params = message.params
            update = params.update
            if texts:
                if update.message_id == message_id and params.session_id == session_id and type(update) is kind:
                    texts.append(update.content.text)
                    continue
                yield _run(session_id, kind, texts, message_id)
            session_id, kind, message_id = params.session_id, cast(type[AgentChunk], type(update)), update.message_id
            texts = [update.content.text]
        else:
            if texts:
                yield _run(session_id, kind, texts, message_id)
                texts = []
            yield message
    if texts:
        yield _run(session_id, kind, texts, message_id)


def _run(session_id: str, kind: type[Any], texts: list[str], message_id: str | None) -> TextRun:
    role: Role = "agent" if kind is AgentChunk else "thought"
    return TextRun(session_id, role, texts[0] if len(texts) == 1 else "".join(texts), message_id or "")


# --- content blocks ------------------------------------------------------------------------------------------------


def block(value: Json) -> Block:
    """A content block of the wire. What is no known, well-formed block becomes ``Other``."""
    if not isinstance(value, dict):
        return blocks.Other(value)
    meta = {key: value[key] for key in ("annotations", "_meta") if value.get(key) is not None} or None
    match value:
        case {"type": "text", "text": str(text)}:
            return blocks.Text(text, meta)
        case {"type": "image", "data": str(data), "mimeType": str(mime)}:
            return blocks.Image(data, mime, _str(value.get("uri")), meta)
        case {"type": "audio", "data": str(data), "mimeType": str(mime)}:
            return blocks.Audio(data, mime, meta)
        case {"type": "resource", "resource": {"uri": str(uri)} as inner}:
            inside, blob = _str(inner.get("text")), _str(inner.get("blob"))
            if inside is not None or blob is not None:
                return blocks.Resource(uri, inside, blob, _str(inner.get("mimeType")), meta)
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            size = value.get("size")
            return blocks.ResourceLink(
                uri,
                name,
                _str(value.get("mimeType")),
                _str(value.get("title")),
                _str(value.get("description")),
                size if isinstance(size, int) else None,
                meta,
            )
    return blocks.Other(value)


def encode_block(value: Block) -> dict[str, Json]:
    """A content block for the wire: ContentBlock of ACP v1."""
    match value:
        case blocks.Text():
            out: dict[str, Json] = {"type": "text", "text": value.text}
        case blocks.Image():
            out = {"type": "image", "data": value.data, "mimeType": value.mime_type, "uri": value.uri}
        case blocks.Audio():
            out = {"type": "audio", "data": value.data, "mimeType": value.mime_type}
        case blocks.Resource():
            inner = {"uri": value.uri, "mimeType": value.mime_type, "text": value.text, "blob": value.blob}
            out = {"type": "resource", "resource": _present(inner)}
        case blocks.ResourceLink():
            out = {
                "type": "resource_link",
                "uri": value.uri,
                "name": value.name,
                "mimeType": value.mime_type,
                "title": value.title,
                "description": value.description,
                "size": value.size,
            }
        case blocks.Other():
            return value.raw if isinstance(value.raw, dict) else {"type": "text", "text": str(value.raw)}
    return _present({**out, **(value.meta if isinstance(value.meta, dict) else {})})


def encode_prompt(content: Content, image: bool, audio: bool, embedded: bool) -> list[dict[str, Json]]:
    """Blocks for a prompt. What the agent's promptCapabilities lack is told in words, or as a link."""
    out: list[Block] = []
    for each in content:
        match each:
            case blocks.Image() if not image:
                if each.uri and not each.uri.startswith("data:"):
                    out.append(blocks.ResourceLink(each.uri, _name(each.uri), each.mime_type))
                else:
                    out.append(blocks.Text(f"[an image, {each.mime_type}: this agent takes no images]"))
            case blocks.Audio() if not audio:
                out.append(blocks.Text(f"[a sound, {each.mime_type}: this agent takes no audio]"))
            case blocks.Resource() if not embedded:
                if each.text is not None:
                    out.append(blocks.Text(f"{each.uri}:\n{each.text}"))
                else:
                    out.append(blocks.ResourceLink(each.uri, _name(each.uri), each.mime_type))
            case _:
                out.append(each)
    return [encode_block(each) for each in out]


def _name(uri: str) -> str:
    return uri.rstrip("/").rsplit("/", 1)[-1] or uri


# --- updates -------------------------------------------------------------------------------------------------------


def decode(update: Raw | bytes, session: str = "") -> list[AgentFact]:
    """The facts of one ``update`` object. ``session``: the agent's id of a child session, empty for the root."""
    raw = update if isinstance(update, Raw) else Raw(update)
    value = as_object(raw)
    kind = value.get("sessionUpdate")
    if not isinstance(kind, str):
        kind = ""
    source = Source(WIRE, raw)
    fact = _known(kind, value, session, source)
    return [fact or AgentUnknown(kind=kind, raw=value, agent_session=session, source=source)]


def _known(kind: str, value: dict[str, Json], session: str, source: Source) -> AgentFact | None:
    """The fact of a kind that the core has a word for; None: unknown, or not well-formed."""
    match kind:
        case "agent_message_chunk" | "agent_thought_chunk" | "session_message_chunk":
            return _chunk(ROLES[kind], value, session, source)
        case "user_message_chunk" if isinstance(value.get("content"), dict):
            content = (block(value["content"]),)
            return AgentUser(content=content, agent_id=_id(value), agent_session=session, source=source)
        case "tool_call" | "tool_call_update":
            return tool(value, session, source, new=kind == "tool_call")
        case "plan" if isinstance(value.get("entries"), list):
            return AgentPlan(entries=value["entries"], agent_session=session, source=source)
        case "plan_update":
            plan = _dict(value.get("plan"))
            if isinstance(plan.get("entries"), list):
                plan_id = _str(plan.get("planId")) or ""
                return AgentPlan(entries=plan["entries"], plan_id=plan_id, agent_session=session, source=source)
        case "plan_removed":
            return AgentPlan(
                entries=None, plan_id=_str(value.get("planId")) or "", agent_session=session, source=source
            )
        case "available_commands_update" if isinstance(value.get("availableCommands"), list):
            return AgentCommands(commands=value["availableCommands"], agent_session=session, source=source)
        case "current_mode_update" if isinstance(value.get("currentModeId"), str):
            return AgentMode(mode=value["currentModeId"], agent_session=session, source=source)
        case "config_option_update" if isinstance(value.get("configOptions"), list):
            return config(value["configOptions"], session, source)
        case "session_info_update" if isinstance(value.get("title"), str):
            return AgentTitle(title=value["title"], agent_session=session, source=source)
        case "usage_update":
            return _usage(value, session, source)
        case "subagent_update" if isinstance(value.get("sessionId"), str):
            return _child(value, session, source)
        case "session_message" if _id(value):
            return _refs(value, session, source)
    return None


def _chunk(role: Role, value: dict[str, Json], session: str, source: Source) -> AgentFact | None:
    raw = value.get("content")
    if not isinstance(raw, dict):
        return None
    content, agent_id = block(raw), _id(value)
    if not isinstance(content, blocks.Text):
        return AgentBlock(role=role, block=content, agent_id=agent_id, agent_session=session, source=source)
    # A source is kept only where the chunk says more than its text and the message's id.
    beside = {key for key, field in value.items() if field is not None} - {"sessionUpdate", "content", "messageId"}
    more = beside or role == "session" or {key for key, field in raw.items() if field is not None} - {"type", "text"}
    return AgentText(
        role=role, text=content.text, agent_id=agent_id, agent_session=session, source=source if more else None
    )


def tool(value: dict[str, Json], session: str, source: Source | None, new: bool = False) -> AgentTool | None:
    """A tool call: of ``tool_call``, ``tool_call_update``, or the ``toolCall`` of a permission request."""
    call_id = value.get("toolCallId")
    if not isinstance(call_id, str):
        return None
    status = value.get("status")

    def text(key: str) -> str | msgspec.UnsetType:
        field = value.get(key)
        return field if isinstance(field, str) else UNSET

    def anything(key: str, kind: type[Any] = object) -> Json | msgspec.UnsetType:
        field = value.get(key)
        return field if field is not None and isinstance(field, kind) else UNSET

    return AgentTool(
        call_id=call_id,
        new=new,
        status=cast(ToolStatus, status) if status in STATUS else UNSET,
        title=text("title"),
        kind=text("kind"),
        name=text("name"),
        input=anything("rawInput"),
        output=anything("rawOutput"),
        content=anything("content", list),
        locations=anything("locations", list),
        meta=anything("_meta", dict),
        agent_session=session,
        source=source,
    )


def config(options: list[Json], session: str = "", source: Source | None = None) -> AgentConfig:
    """The agent's options, with the model and the mode read from them."""
    model, mode = option_of(options, "model"), option_of(options, "mode")
    return AgentConfig(
        options=options,
        model=model["currentValue"] if model else UNSET,
        mode=mode["currentValue"] if mode else UNSET,
        agent_session=session,
        source=source,
    )


def option_of(options: list[Json], what: str) -> dict[str, Json] | None:
    """The select option of the category ``what`` (model, mode), else the one with that id."""
    selects = [o for o in options if isinstance(o, dict) and isinstance(o.get("currentValue"), str)]
    for key in ("category", "id"):
        for option in selects:
            if option.get(key) == what:
                return option
    return None


def _usage(value: dict[str, Json], session: str, source: Source) -> AgentFact | None:
    used, size, cost = value.get("used"), value.get("size"), _dict(value.get("cost"))
    if not isinstance(used, int) or not isinstance(size, int):
        return None
    amount = cost.get("amount")
    dollars = float(amount) if isinstance(amount, int | float) and cost.get("currency", "USD") == "USD" else None
    return AgentUsage(used=used, size=size, cost=dollars, agent_session=session, source=source)


def _child(value: dict[str, Json], session: str, source: Source) -> AgentChild:
    """Here null clears: a title to nothing, capabilities to none; a null state is not idle."""
    state = _dict(value.get("state"))
    word = _str(state.get("state")) or ("unknown" if "state" in value else "")
    failure = _dict(state.get("error"))
    over: Outcome | msgspec.UnsetType = UNSET
    error: Error | None | msgspec.UnsetType = UNSET
    if word == "idle":
        stop = state.get("stopReason")
        over = "error" if stop == "error" or failure else outcome(stop)[0] if stop else UNSET
        error = Error("agent_error", str(failure.get("message", "")), failure) if failure else None
    return AgentChild(
        child=value["sessionId"],
        title=_str(value["title"]) or "" if "title" in value else UNSET,
        description=_str(value["description"]) or "" if "description" in value else UNSET,
        state=word or UNSET,
        outcome=over,
        error=error,
        can_cancel=_dict(value["capabilities"]).get("cancel") is not None if "capabilities" in value else UNSET,
        cwd=_str(value["cwd"]) or "" if "cwd" in value else UNSET,
        raw=value,
        agent_session=session,
        source=source,
    )


def _refs(value: dict[str, Json], session: str, source: Source) -> AgentRefs:
    refs = Refs(
        _str(value.get("senderSessionId")) or "",
        _str(value.get("recipientSessionId")) or "",
        _str(value.get("senderMessageId")) or "",
        _str(value.get("recipientMessageId")) or "",
    )
    raw = value.get("content")
    content = tuple(block(each) for each in raw) if isinstance(raw, list) else UNSET
    return AgentRefs(agent_id=_id(value), refs=refs, content=content, agent_session=session, source=source)


def join_users(facts: Iterable[AgentFact]) -> tuple[AgentFact, ...]:
    """A replay with the blocks of each user message together, and the text of each stretch in one piece."""
    out: list[AgentFact] = []
    for fact in facts:
        last = out[-1] if out else None
        if isinstance(fact, AgentUser) and isinstance(last, AgentUser) and _same(fact, last):
            out[-1] = msgspec.structs.replace(last, content=last.content + fact.content, source=None)
        elif (
            isinstance(fact, AgentText)
            and isinstance(last, AgentText)
            and fact.source is None
            and last.source is None
            and fact.role == last.role
            and _same(fact, last)
        ):
            out[-1] = msgspec.structs.replace(last, text=last.text + fact.text)
        else:
            out.append(fact)
    return tuple(out)


def _same(a: AgentUser | AgentText, b: AgentUser | AgentText) -> bool:
    return a.agent_id == b.agent_id and a.agent_session == b.agent_session


# --- requests ------------------------------------------------------------------------------------------------------


def permission(params: Raw, agent_ref: str, session: str = "") -> AgentAsk:
    """``session/request_permission``."""
    value = as_object(params)
    call = _dict(value.get("toolCall"))
    options = tuple(
        Option(o["optionId"], _str(o.get("name")) or o["optionId"], _str(o.get("kind")) or "")
        for o in _list(value.get("options"))
        if isinstance(o.get("optionId"), str)
    )
    return AgentAsk(
        agent_ref=agent_ref,
        title=_str(value.get("title")) or _str(call.get("title")) or "",
        description=_str(value.get("description")) or "",
        tool=tool(call, session, None),
        options=options,
        raw=value,
        agent_session=session,
    )


def elicitation(params: Raw, agent_ref: str, session: str = "") -> AgentAsk:
    """``elicitation/create``: a form (``schema``) or a page to open (``url``, never fetched by us)."""
    value = as_object(params)
    call_id = _str(value.get("toolCallId"))
    return AgentAsk(
        agent_ref=agent_ref,
        kind="elicitation",
        title=_str(value.get("message")) or "",
        tool=AgentTool(call_id=call_id, agent_session=session) if call_id else None,
        schema=value.get("requestedSchema"),
        url=_str(value.get("url")) or "",
        raw=value,
        agent_session=session,
    )


def encode_answer(kind: str, answer: Answered) -> dict[str, Json]:
    """The result of a permission or elicitation request. What fits neither is a refusal, never an approval."""
    if kind == "permission":
        if isinstance(answer, Selected):
            return {"outcome": {"outcome": "selected", "optionId": answer.option_id}}
        return {"outcome": {"outcome": "cancelled"}}
    if isinstance(answer, Accepted):
        return _present({"action": "accept", "content": answer.content})
    return {"action": "decline" if isinstance(answer, Declined) else "cancel"}


# --- results -------------------------------------------------------------------------------------------------------


class Abilities(msgspec.Struct, frozen=True):
    """What initialize said, as far as the gateway uses it; ``raw`` is the whole result."""

    name: str
    version: str
    protocol: int
    load: bool
    resume: bool
    close: bool
    image: bool
    audio: bool
    embedded: bool
    mcp: frozenset[str]
    steer: bool
    auth: tuple[str, ...]
    raw: dict[str, Json]


def abilities(result: Raw) -> Abilities:
    """The result of initialize. A marker is there unless absent, null or false."""
    value = as_object(result)
    agent, info = _dict(value.get("agentCapabilities")), _dict(value.get("agentInfo"))
    session, takes = _dict(agent.get("sessionCapabilities")), _dict(agent.get("promptCapabilities"))
    mcp = _dict(agent.get("mcpCapabilities"))
    version = value.get("protocolVersion")
    methods = value.get("authMethods")
    return Abilities(
        name=_str(info.get("title")) or _str(info.get("name")) or "",
        version=_str(info.get("version")) or "",
        protocol=version if isinstance(version, int) else 0,
        load=_on(agent.get("loadSession")),
        resume=_on(session.get("resume")),
        close=_on(session.get("close")),
        image=_on(takes.get("image")),
        audio=_on(takes.get("audio")),
        embedded=_on(takes.get("embeddedContext")),
        mcp=frozenset(kind for kind in mcp if _on(mcp[kind])),
        steer=_on(_dict(_dict(value.get("_meta")).get("steering")).get("supported")),
        auth=tuple(str(m.get("id")) for m in methods if isinstance(m, dict)) if isinstance(methods, list) else (),
        raw=value,
    )


class SessionState(msgspec.Struct):
    """What new, load and resume answer of modes and options, in one shape for agents of all ages."""

    options: list[Json]
    modes: list[Json]
    mode: str
    mode_by_option: str = ""  # the option to set, where there are no modes
    model_by_method: bool = False  # ``session/set_model``, removed from ACP, is all it has

    def facts(self) -> list[AgentFact]:
        out: list[AgentFact] = []
        if self.modes or self.mode:
            out.append(AgentMode(mode=self.mode, modes=self.modes))
        if self.options:
            out.append(config(self.options))
        return out


def session_state(result: Raw) -> SessionState:
    """Modes are read from ``modes``, else from the mode option; a legacy ``models`` becomes a model option."""
    value = as_object(result)
    given, modes, models = value.get("configOptions"), _dict(value.get("modes")), _dict(value.get("models"))
    options: list[Json] = list(given) if isinstance(given, list) else []
    state = SessionState(options, [], "")
    by_option = option_of(options, "mode")
    if isinstance(modes.get("currentModeId"), str):
        state.mode, state.modes = modes["currentModeId"], _list(modes.get("availableModes"))
    elif by_option:
        state.mode, state.mode_by_option = by_option["currentValue"], _str(by_option.get("id")) or ""
        state.modes = [
            _present({"id": o.get("value"), "name": o.get("name"), "description": o.get("description")})
            for o in _choices(by_option)
        ]
    if isinstance(models.get("currentModelId"), str) and option_of(options, "model") is None:
        state.model_by_method = True
        choices = [
            _present({"value": m.get("modelId"), "name": m.get("name"), "description": m.get("description")})
            for m in _list(models.get("availableModels"))
        ]
        head = {"id": "model", "name": "Model", "category": "model", "type": "select"}
        options.append({**head, "currentValue": models["currentModelId"], "options": choices})
    return state


def _choices(option: dict[str, Json]) -> list[dict[str, Json]]:
    """The values of a select, groups opened."""
    out: list[dict[str, Json]] = []
    for each in _list(option.get("options")):
        out += _list(each["options"]) if isinstance(each.get("options"), list) else [each]
    return out


def outcome(stop: Json) -> tuple[Outcome, bool]:
    """The outcome of a stop reason, and whether it is a known one: an unknown one is an ordinary end."""
    return (cast(Outcome, stop), True) if stop in STOP else ("end_turn", False)


def tokens(result: dict[str, Json]) -> Tokens | None:
    """``usage`` of a prompt's result; null and absent are None."""
    usage = result.get("usage")
    if not isinstance(usage, dict):
        return None

    def count(key: str) -> int:
        field = usage.get(key)
        return field if isinstance(field, int) else 0

    return Tokens(
        count("inputTokens"),
        count("outputTokens"),
        count("thoughtTokens"),
        count("cachedReadTokens"),
        count("cachedWriteTokens"),
        count("totalTokens"),
    )


def overlong_notice(limit: int) -> AgentUnknown:
    """What people are told of a message that was too long: ACP's own ``notice``, marked as ours."""
    value = {
        "sessionUpdate": "notice",
        "severity": "error",
        "title": f"A message of the agent was longer than {limit >> 20} MiB and was dropped.",
        "_meta": {"trunkline": {"code": "message_too_large", "limit": limit}},
    }
    return AgentUnknown(kind="notice", raw=value, source=Source(WIRE, Raw(msgspec.json.encode(value))))


def _id(value: dict[str, Json]) -> str:
    return _str(value.get("messageId")) or ""


def _str(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[dict[str, Json]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _on(value: Json) -> bool:
    return value is not None and value is not False


def _present(value: dict[str, Json]) -> dict[str, Json]:
    return {key: field for key, field in value.items() if field is not None}
