"""ACP v1's requests and results to the vocabulary of the core, and back: what is asked, answered and offered.

Pure, like ``translate_v1``, which has the updates. A field that is not as the protocol says counts as absent.
"""

from typing import Any, TypeAlias

import msgspec

from adapters.acp.translate_content import marked, present, rows, string, table
from adapters.acp.translate_v1 import WIRE, config, option_id, option_of, tool
from adapters.acp.wire import as_object
from gateway.core.inputs import AgentAsk, AgentFact, AgentMode, AgentTool, AgentUnknown
from gateway.core.model import Accepted, Answered, Declined, Option, Selected, Source, Tokens

Json: TypeAlias = Any
Raw: TypeAlias = msgspec.Raw

# --- requests ------------------------------------------------------------------------------------------------------


def permission(params: Raw, agent_ref: str, session: str = "") -> AgentAsk:
    """``session/request_permission``."""
    value = as_object(params)
    call = table(value.get("toolCall"))
    options = tuple(
        Option(o["optionId"], string(o.get("name")) or o["optionId"], string(o.get("kind")) or "")
        for o in rows(value.get("options"))
        if isinstance(o.get("optionId"), str)
    )
    return AgentAsk(
        agent_ref=agent_ref,
        title=string(value.get("title")) or string(call.get("title")) or "",
        description=string(value.get("description")) or "",
        tool=tool(call, session, None),
        options=options,
        raw=value,
        agent_session=session,
    )


def elicitation(params: Raw, agent_ref: str, session: str = "") -> AgentAsk:
    """``elicitation/create``: a form (``schema``) or a page to open (``url``, never fetched by us)."""
    value = as_object(params)
    call_id = string(value.get("toolCallId"))
    return AgentAsk(
        agent_ref=agent_ref,
        kind="elicitation",
        title=string(value.get("message")) or "",
        tool=AgentTool(call_id=call_id, agent_session=session) if call_id else None,
        schema=value.get("requestedSchema"),
        url=string(value.get("url")) or "",
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
        return present({"action": "accept", "content": answer.content})
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
    fork: bool
    image: bool
    audio: bool
    embedded: bool
    mcp: frozenset[str]
    steer: bool
    auth: tuple[str, ...]
    raw: dict[str, Json]
    inject: bool = False  # v2: a steer is told when it lands, and can be taken back until then
    replace: bool = False  # and replaced

    def shown(self) -> dict[str, object]:
        """For people."""
        flags = {"load": self.load, "resume": self.resume, "close": self.close, "fork": self.fork, "image": self.image}
        flags |= {"audio": self.audio, "embedded context": self.embedded, "steer": self.steer}
        flags |= {f"mcp {kind}": True for kind in sorted(self.mcp)}
        found: dict[str, object] = {"name": self.name, "version": self.version, "protocol": f"ACP v{self.protocol}"}
        found["can"] = [name for name, on in flags.items() if on]
        return {**found, "login": list(self.auth)} if self.auth else found


def abilities(result: Raw) -> Abilities:
    """The result of initialize. A marker is there unless absent, null or false."""
    value = as_object(result)
    agent, info = table(value.get("agentCapabilities")), table(value.get("agentInfo"))
    session, takes = table(agent.get("sessionCapabilities")), table(agent.get("promptCapabilities"))
    mcp = table(agent.get("mcpCapabilities"))
    version = value.get("protocolVersion")
    methods = value.get("authMethods")
    return Abilities(
        name=string(info.get("title")) or string(info.get("name")) or "",
        version=string(info.get("version")) or "",
        protocol=version if isinstance(version, int) else 0,
        load=marked(agent.get("loadSession")),
        resume=marked(session.get("resume")),
        close=marked(session.get("close")),
        fork=marked(session.get("fork")),
        image=marked(takes.get("image")),
        audio=marked(takes.get("audio")),
        embedded=marked(takes.get("embeddedContext")),
        mcp=frozenset(kind for kind in mcp if marked(mcp[kind])),
        steer=marked(table(table(value.get("_meta")).get("steering")).get("supported")),
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
    given, modes, models = value.get("configOptions"), table(value.get("modes")), table(value.get("models"))
    options: list[Json] = list(given) if isinstance(given, list) else []
    state = SessionState(options, [], "")
    by_option = option_of(options, "mode")
    if isinstance(modes.get("currentModeId"), str):
        state.mode, state.modes = modes["currentModeId"], rows(modes.get("availableModes"))
    elif by_option:
        state.mode, state.mode_by_option = by_option["currentValue"], option_id(by_option)
        state.modes = [
            present({"id": o.get("value"), "name": o.get("name"), "description": o.get("description")})
            for o in _choices(by_option)
        ]
    if isinstance(models.get("currentModelId"), str) and option_of(options, "model") is None:
        state.model_by_method = True
        choices = [
            present({"value": m.get("modelId"), "name": m.get("name"), "description": m.get("description")})
            for m in rows(models.get("availableModels"))
        ]
        head = {"id": "model", "name": "Model", "category": "model", "type": "select"}
        options.append({**head, "currentValue": models["currentModelId"], "options": choices})
    return state


def _choices(option: dict[str, Json]) -> list[dict[str, Json]]:
    """The values of a select, groups opened."""
    out: list[dict[str, Json]] = []
    for each in rows(option.get("options")):
        out += rows(each["options"]) if isinstance(each.get("options"), list) else [each]
    return out


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
