"""The two versions of ACP as an agent speaks them: what is said and read differently, in one object each.

Chosen once, after initialize. What needs memory of a session (turns, steers) is made by it, not kept in it.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec

from adapters.acp import translate_v1 as v1
from adapters.acp import translate_v1_calls as v1_calls
from adapters.acp import translate_v2 as v2
from adapters.acp import translate_v2_calls as v2_calls
from adapters.acp import wire
from adapters.acp.steering import ByInject, ByMethod, Line, NoSteering, Steering
from adapters.acp.translate_v1_calls import Abilities
from adapters.acp.turns import Turns, TurnsV1
from adapters.acp.turns_v2 import TurnsV2
from gateway.core.content import Content
from gateway.core.inputs import AgentAsk, AgentFact

Json: TypeAlias = Any
Raw: TypeAlias = msgspec.Raw


class Dialect(Protocol):
    version: int

    def abilities(self, result: Raw) -> Abilities: ...

    def decode(self, update: Raw, session: str) -> list[AgentFact]:
        """The facts of an update; some of v2 are only for its ``turns``."""
        ...

    def permission(self, params: Raw, agent_ref: str, session: str) -> AgentAsk: ...

    def told(self, result: Raw) -> list[AgentFact]:
        """What the answer that opened a session says beside modes and options."""
        ...

    def servers(self, given: list[Json], can: Abilities) -> tuple[list[Json], list[str]]:
        """The MCP servers in this version's shape, and the kinds that the agent does not take."""
        ...

    def joins(self, can: Abilities, has_history: bool, cwd: str, servers: list[Json], own_id: str) -> "list[Join]":
        """The ways to go on with a session, best first. Without history here, one that tells it comes first."""
        ...

    def option(self, config_id: str, value: Json) -> Json: ...

    def steering(self, can: Abilities, line: Line) -> Steering: ...

    def turns(self, agent: str, steering: Callable[[str, Content], list[AgentFact] | None]) -> Turns: ...


class Join(msgspec.Struct, frozen=True):
    method: str
    params: Json


class DialectV1:
    version = 1

    def abilities(self, result: Raw) -> Abilities:
        return v1_calls.abilities(result)

    def decode(self, update: Raw, session: str) -> list[AgentFact]:
        return v1.decode(update, session)

    def permission(self, params: Raw, agent_ref: str, session: str) -> AgentAsk:
        return v1_calls.permission(params, agent_ref, session)

    def told(self, result: Raw) -> list[AgentFact]:
        return []

    def servers(self, given: list[Json], can: Abilities) -> tuple[list[Json], list[str]]:
        return _servers(given, can.mcp | {"stdio"})

    def joins(self, can: Abilities, has_history: bool, cwd: str, servers: list[Json], own_id: str) -> list[Join]:
        offered = [name for name, on in (("session/resume", can.resume), ("session/load", can.load)) if on]
        if not has_history:
            offered.reverse()  # a resume does not tell what was said before, and here nobody knows
        return [Join(method, wire.open_session(cwd, servers, own_id)) for method in offered]

    def option(self, config_id: str, value: Json) -> Json:
        return wire.option(config_id, value)

    def steering(self, can: Abilities, line: Line) -> Steering:
        return ByMethod(line, echoes=False) if can.steer else NoSteering(line)

    def turns(self, agent: str, steering: Callable[[str, Content], list[AgentFact] | None]) -> Turns:
        return TurnsV1(agent)


class DialectV2:
    version = 2

    def abilities(self, result: Raw) -> Abilities:
        return v2_calls.abilities(result)

    def decode(self, update: Raw, session: str) -> list[AgentFact]:
        return v2.decode(update, session)

    def permission(self, params: Raw, agent_ref: str, session: str) -> AgentAsk:
        return v2_calls.permission(params, agent_ref, session)

    def told(self, result: Raw) -> list[AgentFact]:
        return v2_calls.told(result)

    def servers(self, given: list[Json], can: Abilities) -> tuple[list[Json], list[str]]:
        taken, refused = _servers(given, can.mcp)
        return [v2_calls.mcp_server(each) for each in taken], refused

    def joins(self, can: Abilities, has_history: bool, cwd: str, servers: list[Json], own_id: str) -> list[Join]:
        replay: Json = {} if has_history else {"replayFrom": {"type": "start"}}
        return [Join("session/resume", {**wire.open_session(cwd, servers, own_id), **replay})]

    def option(self, config_id: str, value: Json) -> Json:
        return wire.option_v2(config_id, value)

    def steering(self, can: Abilities, line: Line) -> Steering:
        if can.inject:
            return ByInject(line, can.replace)
        return ByMethod(line, echoes=True) if can.steer else NoSteering(line)

    def turns(self, agent: str, steering: Callable[[str, Content], list[AgentFact] | None]) -> Turns:
        return TurnsV2(agent, steering)


def _servers(given: list[Json], kinds: frozenset[str]) -> tuple[list[Json], list[str]]:
    taken, refused = [], []
    for server in given:
        kind = server.get("type", "stdio") if isinstance(server, dict) else ""
        if kind in kinds:
            taken.append(server)
        else:
            refused.append(str(kind))
    return taken, refused


def chosen(asked: int, result: Raw) -> Dialect | None:
    """The dialect of an agent that answered initialize so; it may know less than was asked. None: another one."""
    version = wire.as_object(result).get("protocolVersion")
    known: dict[int, Dialect] = {1: DialectV1(), 2: DialectV2()}
    return known.get(version) if isinstance(version, int) and version <= asked else None
