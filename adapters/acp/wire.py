"""The few shapes of ACP v1 that are decoded typed; everything else stays JSON.

``plain`` decodes a whole line in one pass if it is exactly a chunk of plain text with a message id and nothing more:
an unknown field, an annotation, a ``_meta`` make it fail, and the line goes the general way with its bytes kept.
"""

from typing import Any, Literal, TypeAlias

import msgspec

Raw: TypeAlias = msgspec.Raw
Json: TypeAlias = dict[str, Any]


class PlainText(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="text", gc=False):
    text: str
    annotations: None = None
    meta: None = msgspec.field(default=None, name="_meta")


class _Chunk(msgspec.Struct, forbid_unknown_fields=True, tag_field="sessionUpdate", rename="camel", gc=False):
    content: PlainText
    message_id: str | None = None
    meta: None = msgspec.field(default=None, name="_meta")


class AgentChunk(_Chunk, tag="agent_message_chunk", gc=False):
    pass


class ThoughtChunk(_Chunk, tag="agent_thought_chunk", gc=False):
    pass


class PlainParams(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    session_id: str
    update: AgentChunk | ThoughtChunk
    meta: None = msgspec.field(default=None, name="_meta")


class PlainLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    method: Literal["session/update"]
    params: PlainParams
    jsonrpc: str = "2.0"


plain: msgspec.json.Decoder[PlainLine] = msgspec.json.Decoder(PlainLine)


class UpdateParams(msgspec.Struct, rename="camel", gc=False):
    """``params`` of session/update."""

    session_id: str
    update: Raw


class Scope(msgspec.Struct, rename="camel", gc=False):
    """What a request of the agent belongs to: a session, or (elicitation) one of our own requests."""

    session_id: str | None = None
    request_id: Raw = Raw()


update_params: msgspec.json.Decoder[UpdateParams] = msgspec.json.Decoder(UpdateParams)
scope: msgspec.json.Decoder[Scope] = msgspec.json.Decoder(Scope)


def as_object(raw: Raw | bytes | None) -> Json:
    """A JSON object, or an empty one for anything else: an agent's odd answer is not an exception here."""
    try:
        value = msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


# --- what we send ----------------------------------------------------------------------------------------------------

CLIENT_CAPABILITIES: Json = {
    "session": {"notices": {}},
    "subagents": {},
    "elicitation": {"form": {}, "url": {}},
}


def initialize(version: str, fs: bool = False, terminal: bool = False) -> Json:
    """``fs``, ``terminal``: whether the agent may ask for files and terminals."""
    info = {"name": "trunkline", "title": "Trunkline", "version": version}
    duties = {"fs": {"readTextFile": fs, "writeTextFile": fs}, "terminal": terminal}
    return {"protocolVersion": 1, "clientCapabilities": {**duties, **CLIENT_CAPABILITIES}, "clientInfo": info}


def initialize_v2(version: str) -> Json:
    """Both versions in one: an agent that has only v1 reads what it knows."""
    info = {"name": "trunkline", "title": "Trunkline", "version": version}
    return {
        **initialize(version),
        "protocolVersion": 2,
        "info": info,
        "capabilities": {"elicitation": {"form": {}, "url": {}}},
    }


def open_session(cwd: str, mcp_servers: list[Any], session_id: str = "") -> Json:
    """Params of session/new, and with ``session_id`` of session/load and session/resume."""
    return {**({"sessionId": session_id} if session_id else {}), "cwd": cwd, "mcpServers": mcp_servers}


def prompt(session_id: str, blocks: list[Json]) -> Json:
    return {"sessionId": session_id, "prompt": blocks}


def steering(session_id: str, blocks: list[Json]) -> Json:
    """Always promptRequired: otherwise an agent that became idle starts a turn whose result nobody receives."""
    return {**prompt(session_id, blocks), "_meta": {"steering": {"idleBehavior": "promptRequired"}}}


def inject(session_id: str, blocks: list[Json]) -> Json:
    return {"sessionId": session_id, "mode": "steer", "content": blocks}


def option(config_id: str, value: Any) -> Json:
    """Params of session/set_config_option, but for the session."""
    kind = {"type": "boolean"} if isinstance(value, bool) else {}
    return {"configId": config_id, **kind, "value": value}


def option_v2(config_id: str, value: Any) -> Json:
    """The same; here the kind of a value is always said."""
    return {"configId": config_id, "type": "boolean" if isinstance(value, bool) else "id", "value": value}
