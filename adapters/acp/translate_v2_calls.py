"""ACP v2's requests and results to the vocabulary of the core, and back: what is asked, answered and offered. Pure."""

from typing import Any, TypeAlias

import msgspec

from adapters.acp.translate_content import marked, present, rows, string, table
from adapters.acp.translate_v1_calls import Abilities
from adapters.acp.translate_v2 import commands, tool
from adapters.acp.wire import as_object
from gateway.core.inputs import AgentAsk, AgentCommands, AgentFact
from gateway.core.model import Option

Json: TypeAlias = Any
Raw: TypeAlias = msgspec.Raw


def permission(params: Raw, agent_ref: str, session: str = "") -> AgentAsk:
    """``session/request_permission``: its subject is a tool call, a command, or something unknown."""
    value = as_object(params)
    subject = table(value.get("subject"))
    call = table(subject.get("toolCall")) if subject.get("type") == "tool_call" else {}
    options = tuple(
        Option(o["optionId"], string(o.get("name")) or o["optionId"], string(o.get("kind")) or "")
        for o in rows(value.get("options"))
        if isinstance(o.get("optionId"), str)
    )
    description = string(value.get("description")) or ""
    if subject.get("type") == "command" and not description:
        description = string(subject.get("command")) or ""
    return AgentAsk(
        agent_ref=agent_ref,
        title=string(value.get("title")) or string(call.get("title")) or "",
        description=description,
        tool=tool(call, session, None),
        options=options,
        raw=value,
        agent_session=session,
    )


def abilities(result: Raw) -> Abilities:
    """The result of initialize. A marker is an object; list, resume and close are baseline where sessions are.

    ``session.inject`` has two forms: RFD #1261 (under ``agentCapabilities``) and schema PR #2043.
    """
    value = as_object(result)
    capabilities, info = table(value.get("capabilities")), table(value.get("info"))
    session = table(capabilities.get("session"))
    takes, mcp = table(session.get("prompt")), table(session.get("mcp"))
    version = value.get("protocolVersion")
    methods = value.get("authMethods")
    older = table(table(value.get("agentCapabilities")).get("session"))
    inject = table(session.get("inject")) or table(older.get("inject"))
    modes = inject.get("modes")
    injects = isinstance(modes, list) and "steer" in modes
    steering = marked(table(table(value.get("_meta")).get("steering")).get("supported"))
    return Abilities(
        name=string(info.get("title")) or string(info.get("name")) or "",
        version=string(info.get("version")) or "",
        protocol=version if isinstance(version, int) else 0,
        load=True,
        resume=True,
        close=True,
        fork=marked(session.get("fork")),
        image=marked(takes.get("image")),
        audio=marked(takes.get("audio")),
        embedded=marked(takes.get("embeddedContext")),
        mcp=frozenset(kind for kind in mcp if marked(mcp[kind])),
        steer=injects or steering,
        auth=tuple(str(m.get("methodId")) for m in rows(methods)),
        raw=value,
        inject=injects,
        replace=injects and marked(table(inject.get("pending")).get("replace")),
    )


def told(result: Raw) -> list[AgentFact]:
    """What new and resume answer beside the options."""
    found = as_object(result).get("availableCommands")
    return [AgentCommands(commands=commands(found))] if isinstance(found, list) else []


def mcp_server(server: dict[str, Json]) -> dict[str, Json]:
    """Every entry has its type here."""
    return present({"type": "stdio", **server})
