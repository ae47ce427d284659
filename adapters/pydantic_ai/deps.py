"""What a native agent is told of its session, through its ``deps_type``. The contract is in docs/pydantic-ai.md."""

import inspect
from dataclasses import dataclass
from types import NoneType
from typing import Any


@dataclass(frozen=True, slots=True)
class Session:
    """The session that an agent works for: the gateway's id of it, its folder, the agent's name in the settings."""

    id: str
    cwd: str
    agent: str


class NoDeps(Exception):
    """One line for people."""


async def make_deps(deps_type: Any, session: Session) -> Any:
    """The run's ``deps``: made once a start of the agent, kept for all its turns.

    Raises NoDeps, and what the type raises.
    """
    if deps_type in (NoneType, None, object):
        return None
    if deps_type is Session:
        return session
    make = getattr(deps_type, "for_session", None)
    if callable(make):
        made = make(session)
        return await made if inspect.isawaitable(made) else made
    try:
        inspect.signature(deps_type).bind()
    except (TypeError, ValueError):
        name = getattr(deps_type, "__name__", str(deps_type))
        raise NoDeps(f"its deps_type {name} needs arguments: give it a classmethod for_session(session)") from None
    return deps_type()
