"""Requests of ACP clients to the vocabulary of the core, and its answers and errors back. Pure; both versions."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from adapters.acp import wire_server
from adapters.acp.translate_content import block, present, string, table
from adapters.acp.translate_server import iso
from adapters.acp.wire import as_object
from gateway.core.content import Content, Other
from gateway.core.errors import (
    AuthRequired,
    ClientError,
    Conflict,
    Forbidden,
    GatewayError,
    NotFound,
    NotRunning,
    NotSupported,
)
from gateway.core.model import Accepted, Answered, Cancelled, Declined, Request, Selected, SessionInfo
from gateway.core.replies import Verdict

Json: TypeAlias = Any

INVALID_PARAMS, METHOD_NOT_FOUND, INTERNAL = -32602, -32601, -32603
NOT_FOUND, AUTH_REQUIRED, CANCELLED = -32002, -32000, -32800
PAGE = 100


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def invalid(what: str, **data: Json) -> Refused:
    return Refused(INVALID_PARAMS, f"Invalid params: {what}", data or None)


def refusal(error: GatewayError) -> Refused:
    """The gateway's error as JSON-RPC says it; ``data.reason`` is the stable word."""
    data = {"reason": error.code, **_plain(error.data)}
    code = INTERNAL
    match error:
        case NotFound():
            code = NOT_FOUND
            if "session_id" in error.data:
                data["sessionId"] = error.data["session_id"]
        case AuthRequired():
            code = AUTH_REQUIRED
            methods = table(error.data.get("agent")).get("authMethods")
            data["authMethods"] = methods or []
        case NotRunning():
            code = wire_server.INJECT_PRECONDITION
        case NotSupported():
            code = METHOD_NOT_FOUND
        case Forbidden() | Conflict():
            code = INVALID_PARAMS
        case ClientError() if error.status == 400:
            code = INVALID_PARAMS
    return Refused(code, error.message, data)


def _plain(data: dict[str, Any]) -> dict[str, Json]:
    return {key: value for key, value in data.items() if isinstance(value, str | int | float | list | dict | None)}


# --- reading params ------------------------------------------------------------------------------------------------


def params(raw: msgspec.Raw | None) -> dict[str, Json]:
    """Params as an object; Refused for what is something else."""
    if not raw:
        return {}
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise invalid("params are not valid JSON") from None
    if not isinstance(value, dict):
        raise invalid("params must be an object")
    return value


def text(value: dict[str, Json], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str) or not found:
        raise invalid(f"{key} must be a string", field=key)
    return found


def content(value: dict[str, Json], key: str) -> Content:
    """A non-empty list of content blocks, each an object with a type."""
    found = value.get(key)
    if not isinstance(found, list) or not found:
        raise invalid(f"{key} must be a non-empty list of content blocks", field=key)
    blocks = tuple(block(each) for each in found)
    for index, each in enumerate(blocks):
        kind = each.raw.get("type") if isinstance(each, Other) and isinstance(each.raw, dict) else each
        known = kind in ("text", "image", "audio", "resource", "resource_link")
        if isinstance(each, Other) and (known or not isinstance(kind, str)):
            raise invalid(f"{key}[{index}] is no content block", field=key, index=index)
    return blocks


def mcp_servers(value: dict[str, Json]) -> list[Json] | None:
    """The client's MCP servers, as v1 has them (stdio without a type); None where it brings none."""
    found = value.get("mcpServers")
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise invalid("mcpServers must be a list of objects", field="mcpServers")
    out = []
    for each in found:
        each = dict(each)
        if each.get("type") == "stdio":
            del each["type"]
            each = {"args": [], "env": [], **each}
        out.append(each)
    return out or None


def version(value: dict[str, Json]) -> int:
    """The version to speak: the highest that we have, not above what was asked for."""
    asked = value.get("protocolVersion")
    if not isinstance(asked, int) or isinstance(asked, bool):
        raise invalid("protocolVersion must be an integer", field="protocolVersion")
    found = [v for v in wire_server.VERSIONS if v <= asked]
    if not found:
        data = {"requested": asked, "supported": list(wire_server.VERSIONS)}
        raise Refused(wire_server.UNSUPPORTED_VERSION, f"Unsupported protocol version {asked}", data)
    if asked == 2 and not isinstance(value.get("info"), dict):  # a later version may have put it elsewhere
        raise invalid("info must be an object", field="info")
    return found[-1]


# --- the list of sessions ------------------------------------------------------------------------------------------


def page(sessions: Sequence[SessionInfo], cursor: str | None) -> dict[str, Json]:
    """A page of sessions, newest first. The cursor names the last one told, so that changes disturb no later page."""
    start = 0
    if cursor is not None:
        updated, session_id = _cursor(cursor)
        rest = (i for i, s in enumerate(sessions) if s.id == session_id and s.updated == updated)
        found = next(rest, None)
        if found is not None:
            start = found + 1
        else:  # it moved to the front, or is gone
            start = next((i for i, s in enumerate(sessions) if s.updated < updated), len(sessions))
    shown = sessions[start : start + PAGE]
    body: dict[str, Json] = {"sessions": [session(each) for each in shown]}
    if start + PAGE < len(sessions):
        last = shown[-1]
        body["nextCursor"] = base64.urlsafe_b64encode(f"{last.updated} {last.id}".encode()).decode()
    return body


def _cursor(cursor: str) -> tuple[int, str]:
    try:
        updated, session_id = base64.urlsafe_b64decode(cursor.encode()).decode().split(" ")
        return int(updated), session_id
    except (ValueError, binascii.Error, UnicodeError):
        raise invalid("cursor is not one of session/list", field="cursor") from None


def session(info: SessionInfo) -> dict[str, Json]:
    body: dict[str, Json] = {
        "sessionId": info.id,
        "cwd": info.cwd,
        "title": info.title or None,
        "updatedAt": iso(info.updated),
    }
    if info.archived is not None:
        body["archived"] = True
    return {**present(body), "_meta": {"trunkline": {"agent": info.agent}}}


# --- what the agent asks -------------------------------------------------------------------------------------------


def elicitation(session_id: str, request: Request) -> dict[str, Json]:
    """Params of elicitation/create. Its scope is the session, whatever of ours the agent named."""
    raw = table(request.raw)
    if isinstance(raw.get("mode"), str):
        return {**{k: v for k, v in raw.items() if k != "requestId"}, "sessionId": session_id}
    body: dict[str, Json] = {"sessionId": session_id, "message": request.title}
    if request.url:
        return {**body, "mode": "url", "url": request.url, "elicitationId": request.id}
    return {**body, "mode": "form", "requestedSchema": request.schema or {"type": "object", "properties": {}}}


def answer(kind: str, result: msgspec.Raw) -> Answered:
    """What a client answered. An outcome that is not known is never an approval."""
    value = as_object(result)
    if kind == "permission":
        outcome = table(value.get("outcome"))
        option = string(outcome.get("optionId"))
        if outcome.get("outcome") == "selected" and option is not None:
            return Selected(option)
        return Cancelled("cancelled by the client")
    match value.get("action"):
        case "accept":
            return Accepted(value.get("content"))
        case "decline":
            return Declined()
    return Cancelled("cancelled by the client")


# --- injected messages ---------------------------------------------------------------------------------------------


def verdict(found: Verdict, wished: str) -> dict[str, Json]:
    """The result of revoke_inject and replace_inject; Refused with the codes of schema PR #2043."""
    data = {"messageId": found.message_id}
    match found.kind:
        case "unknown":
            raise Refused(NOT_FOUND, "Unknown message id", {"reason": "unknown_message_id", **data})
        case "already_delivered":
            raise Refused(
                wire_server.INJECT_PRECONDITION, "Inject precondition failed", {"reason": "already_delivered", **data}
            )
        case "revoked" if wished != "revoked":
            raise Refused(wire_server.INJECT_PRECONDITION, "Inject precondition failed", {"reason": "revoked", **data})
    meta = {"_meta": {"trunkline": {"uncertain": True}}} if found.uncertain else {}
    return {**(data if wished == "replaced" else {}), **meta}


def inject_mode(value: dict[str, Json]) -> str:
    found = value.get("mode")
    if found not in wire_server.INJECT["modes"]:
        raise invalid(
            f"mode {found!r} is not supported", reason="mode_not_supported", modes=wire_server.INJECT["modes"]
        )
    return str(found)
