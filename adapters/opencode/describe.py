"""What this API says of itself (``GET /doc``): an OpenAPI document of the application's routes, with the bodies and
queries that they read. A route reads its request itself, so FastAPI knows only the path.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from adapters.opencode import wire_v2
from adapters.opencode.routes import action, file, find, message, session, startup, vcs
from adapters.opencode.wire import (
    VERSION,
    LegacyPermissionReply,
    NewSession,
    PermissionReply,
    Prompt,
    QuestionReply,
    SessionPatch,
)

TITLE = "Trunkline: OpenCode"
TEXT = "See docs/opencode.md for what is whole, partly there and not offered."

BODIES: dict[str, Any] = {
    "POST /session": NewSession,
    "PATCH /session/{sessionID}": SessionPatch,
    "POST /session/{sessionID}/message": Prompt,
    "POST /session/{sessionID}/prompt_async": Prompt,
    "POST /session/{sessionID}/command": message.SlashCommand,
    "POST /session/{sessionID}/fork": action.Fork,
    "POST /session/{sessionID}/summarize": action.Summarize,
    "POST /session/{sessionID}/init": action.Init,
    "POST /permission/{requestID}/reply": PermissionReply,
    "POST /session/{sessionID}/permissions/{permissionID}": LegacyPermissionReply,
    "POST /question/{requestID}/reply": QuestionReply,
    "POST /log": startup.LogEntry,
    "POST /api/session": wire_v2.NewSession,
    "POST /api/session/{sessionID}/agent": wire_v2.AgentChoice,
    "POST /api/session/{sessionID}/model": wire_v2.ModelChoice,
    "POST /api/session/{sessionID}/prompt": wire_v2.NewPrompt,
    "PATCH /api/session/{sessionID}/pending/{messageID}": wire_v2.PendingPatch,
    "POST /api/session/{sessionID}/permission/{requestID}/reply": wire_v2.PermissionReply,
    "POST /api/session/{sessionID}/question/{requestID}/reply": wire_v2.QuestionReply,
}
OPTIONAL = {"POST /session", "POST /session/{sessionID}/fork"}  # an empty body will do

QUERIES: dict[str, Any] = {
    "GET /session": session.Listed,
    "GET /session/{sessionID}/diff": session.Diff,
    "GET /session/{sessionID}/message": message.Page,
    "GET /find": find.Text,
    "GET /find/file": find.Name,
    "GET /find/symbol": find.Symbol,
    "GET /file": file.Where,
    "GET /file/content": file.Where,
    "GET /vcs/diff": vcs.Diff,
}

_TEXT: dict[str, Any] = {"type": "string"}
_ORDER = {"enum": ["asc", "desc"]}


def _integer(low: int, high: int = 2**53 - 1) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


MORE: dict[str, dict[str, Any]] = {
    "GET /event": {"cursor": _TEXT},
    "GET /global/event": {"cursor": _TEXT},
    "GET /api/event": {"cursor": _TEXT},
    "GET /api/session": {
        "limit": _integer(1),
        "order": _ORDER,
        "search": _TEXT,
        "directory": _TEXT,
        "project": _TEXT,
        "cursor": _TEXT,
    },
    "GET /api/session/{sessionID}/message": {"limit": _integer(1, 200), "order": _ORDER, "cursor": _TEXT},
    "GET /api/session/{sessionID}/history": {"limit": _integer(1, 100), "after": _integer(0)},
    "GET /api/session/{sessionID}/event": {"after": _integer(0)},
    "GET /api/fs/list": {"path": _TEXT},
    "GET /api/fs/find": {"query": _TEXT, "type": {"enum": ["file", "directory"]}, "limit": _integer(1, 1000)},
}
"""Of routes that read their query word by word."""

ERRORS = {
    "4XX": {"description": "What is wrong with the request, and where"},
    "501": {"description": "Not offered, with the reason"},
    "502": {"description": "The agent does not start, or failed; with its last words"},
    "503": {"description": "The store does not take it now, or the agent has no word for it"},
    "504": {"description": "The agent did not answer in time"},
}


def described(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    document = get_openapi(title=TITLE, version=VERSION, description=TEXT, routes=routes)
    kinds = list(dict.fromkeys([*BODIES.values(), *QUERIES.values()]))
    found, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    shapes = dict(zip(kinds, found, strict=True))
    document.setdefault("components", {}).setdefault("schemas", {}).update(_plain(components))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _operation(f"{method.upper()} {path}", operation, shapes, components)
    return document


def _operation(name: str, operation: dict[str, Any], shapes: Mapping[Any, Any], components: Mapping[str, Any]) -> None:
    parameters = operation.setdefault("parameters", [])
    told = {parameter["name"] for parameter in parameters}
    for word in re.findall(r"\{(\w+)\}", name):
        if word not in told:
            parameters.append({"name": word, "in": "path", "required": True, "schema": _TEXT})
    if name in QUERIES:
        shape = components[shapes[QUERIES[name]]["$ref"].rpartition("/")[2]]
        required = shape.get("required", [])
        for word, schema in _plain(shape["properties"]).items():
            parameters.append({"name": word, "in": "query", "required": word in required, "schema": schema})
    for word, schema in MORE.get(name, {}).items():
        parameters.append({"name": word, "in": "query", "required": False, "schema": schema})
    if name in BODIES:
        content = {"application/json": {"schema": shapes[BODIES[name]]}}
        operation["requestBody"] = {"required": name not in OPTIONAL, "content": content}
    operation["responses"] = {**operation.get("responses", {}), **ERRORS}
    operation["responses"].pop("422", None)


def _pattern(value: str) -> str:
    """As JSON Schema has it: ``$`` is the end there."""
    return value.replace("\\Z", "$")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _pattern(v) if k == "pattern" and isinstance(v, str) else _plain(v) for k, v in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value
