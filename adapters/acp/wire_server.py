"""What the gateway says of itself as an ACP agent, and the frames of its side: capabilities, codes, notifications.

Both versions. Nothing here reads an event: ``translate_server*.py`` do.
"""

from typing import Any, TypeAlias

import msgspec

Json: TypeAlias = Any
Raw: TypeAlias = msgspec.Raw

VERSIONS = (1, 2)
UNSUPPORTED_VERSION = -32022
INJECT_PRECONDITION = -32010

# The wire's name of a version, as ``Source.wire`` has it.
WIRES = {1: "acp1", 2: "acp2"}

_encode = msgspec.json.Encoder().encode

INJECT: dict[str, Json] = {
    "modes": ["queue", "steer"],
    # Which of them happens is the agent's way, and there is no parameter to choose it by.
    "steerInStream": ["interrupt", "finish"],
    "pending": {"replace": True},
}


class Update(msgspec.Struct, frozen=True, gc=False):
    """One ``session/update``: its kind, and the ``update`` object as JSON or as the agent's own bytes."""

    kind: str
    body: Json


def notification(session_id: str, update: Json) -> str:
    """The frame of one update. ``update`` may be ``Raw``: its bytes are copied, not read."""
    params = {"sessionId": session_id, "update": update}
    return _encode({"jsonrpc": "2.0", "method": "session/update", "params": params}).decode()


def info(version: str) -> dict[str, Json]:
    return {"name": "trunkline", "title": "Trunkline", "version": version}


def initialized(protocol: int, version: str, agent: str) -> dict[str, Json]:
    """The result of initialize. ``agent``: the one that this endpoint is for, or empty."""
    meta: dict[str, Json] = {"trunkline": {"inject": INJECT, "pending": {}, **({"agent": agent} if agent else {})}}
    if protocol == 1:
        return {
            "protocolVersion": 1,
            "agentInfo": info(version),
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}, "fork": {}},
                "_meta": meta,
            },
            "authMethods": [],
            "_meta": {"steering": {"supported": True}},
        }
    return {
        "protocolVersion": 2,
        "info": info(version),
        "capabilities": {
            "session": {
                "prompt": {"image": {}, "audio": {}, "embeddedContext": {}},
                "mcp": {"stdio": {}, "http": {}},
                "delete": {},
                "fork": {},
                "inject": INJECT,
            },
            "_meta": meta,
        },
        "_meta": {"steering": {"supported": True}},
    }


def auth_methods(protocol: int, methods: Json) -> list[Json]:
    """An agent's login methods in a client's version. What lacks an id is left out: nobody could choose it."""
    found = []
    for method in methods if isinstance(methods, list) else ():
        name = method.get("id") or method.get("methodId") if isinstance(method, dict) else None
        if isinstance(name, str) and method.get("type") != "terminal":
            rest = {k: v for k, v in method.items() if k not in ("id", "methodId", "type", "name") and v is not None}
            shown = {"name": method.get("name") or name, **rest}
            found.append({"id": name, **shown} if protocol == 1 else {"type": "agent", "methodId": name, **shown})
    return found


class ClientCan(msgspec.Struct, frozen=True):
    """What a client said that it takes. On v2 most of it is baseline."""

    notices: bool = False
    compaction: bool = False
    subagents: bool = False
    plans: bool = False
    form: bool = False
    url: bool = False
    serves: frozenset[str] = frozenset()  # what agents may ask of it (v1)
    pending: bool = False  # our own extension: ``_trunkline/pending``


def client_can(protocol: int, params: dict[str, Json]) -> ClientCan:
    """The capabilities of initialize's params. A marker is there unless absent, null or false."""

    def table(value: Json, key: str) -> dict[str, Json]:
        found = value.get(key) if isinstance(value, dict) else None
        return found if isinstance(found, dict) else {}

    def marked(value: dict[str, Json], key: str) -> bool:
        return value.get(key) is not None and value.get(key) is not False

    can = table(params, "clientCapabilities" if protocol == 1 else "capabilities")
    session, elicitation = table(can, "session"), table(can, "elicitation")
    own, files = table(table(can, "_meta"), "trunkline"), table(can, "fs")
    serves = [f"fs.{name}" for name in ("readTextFile", "writeTextFile") if marked(files, name)]
    serves += ["terminal"] if marked(can, "terminal") else []
    baseline = protocol >= 2
    return ClientCan(
        notices=baseline or marked(session, "notices"),
        compaction=baseline or marked(session, "compaction"),
        subagents=baseline or marked(can, "subagents"),
        plans=baseline or marked(can, "plan"),
        form=marked(elicitation, "form"),
        url=marked(elicitation, "url"),
        serves=frozenset(serves if protocol == 1 else ()),
        pending=marked(own, "pending"),
    )
