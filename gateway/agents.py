"""The agent port: how the gateway runs an agent, whatever it speaks.

An adapter (``adapters/acp``, ``adapters/pydantic_ai``) implements ``AgentPort``; this file must not know which.
The port performs effects without ever being awaited, and tells facts to its ``Sink`` in the order they happened.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from gateway.core.effects import AnyEffect
from gateway.core.inputs import AgentFact
from gateway.core.model import SessionInfo
from gateway.remotes import RemoteUrl, check_headers

PYTHON_OBJECT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
TOOL_KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other", "*")


def not_a_boolean(model: type[BaseModel], value: Any, info: ValidationInfo) -> Any:
    """For a validator of all fields, before: pydantic takes ``true`` where a number is wanted for 1."""
    if isinstance(value, bool) and model.model_fields[str(info.field_name)].annotation is not bool:
        raise ValueError(f"should not be {str(value).lower()}")
    return value


class AgentConfig(BaseModel):
    """One agent of the settings."""

    model_config = ConfigDict(extra="forbid")

    name: str = ""
    command: list[str] = Field(default_factory=list, description="argv of a stdio ACP agent")
    url: str = Field(default="", description="ws://, wss://, http:// or https:// of a remote ACP agent")
    headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="sent to the url; ${NAME} in a value is a variable of the environment"
    )
    python: str = Field(default="", description="module:attribute of a Pydantic AI agent, run in the gateway's process")
    protocol: Literal[1, 2] = 1
    env: dict[str, str] = Field(default_factory=dict, description="set in the agent's environment")
    pass_env: list[str] = Field(default_factory=list, description="names passed on from the gateway's environment")
    steer_fallback: Literal["next_turn", "interrupt"] = "next_turn"
    process: Literal["session", "shared"] = "session"
    fs: Literal["off", "gateway", "client"] = "off"
    terminal: Literal["off", "gateway", "client"] = "off"
    permissions: dict[str, Literal["allow", "ask", "deny"]] = Field(
        default_factory=dict, description="the answer to permission requests, by the tool call's kind"
    )
    mcp_servers: list[dict[str, object]] = Field(default_factory=list, description="for sessions that bring none")
    start_timeout: float = Field(default=60.0, gt=0, description="seconds for initialize and session/new each")
    request_timeout: float = Field(default=30.0, gt=0, description="seconds for any other request to the agent")
    steer_timeout: float = Field(default=30.0, gt=0, description="seconds for a steer's verdict")
    cancel_grace: float = Field(default=10.0, gt=0, description="seconds from cancel to kill")
    idle_stop: float = Field(default=600.0, gt=0, description="seconds without a turn after which it is stopped")

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        return not_a_boolean(cls, value, info)

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        if value:
            RemoteUrl.parse(value)
        return value

    @field_validator("headers")
    @classmethod
    def _headers(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        check_headers({name: secret.get_secret_value() for name, secret in value.items()})
        return value

    @field_validator("python")
    @classmethod
    def _python(cls, value: str) -> str:
        if value and not PYTHON_OBJECT.fullmatch(value):
            raise ValueError("must be module:attribute, as my_agents.support:agent")
        return value

    def plain_headers(self) -> dict[str, str]:
        """As they were set, with the names of their variables. Not to be shown."""
        return {name: secret.get_secret_value() for name, secret in self.headers.items()}

    @field_validator("permissions")
    @classmethod
    def _kinds(cls, value: dict[str, Any]) -> dict[str, Any]:
        for kind in value:
            if kind not in TOOL_KINDS:
                raise ValueError(f"{kind!r} is no kind of tool (there are: {', '.join(TOOL_KINDS)})")
        return value


class Sink(Protocol):
    """Where a port tells its facts. Calling it never blocks and never raises."""

    def __call__(self, facts: Sequence[AgentFact], /) -> None: ...

    def full(self) -> bool:
        """Whether the session is behind (a commit is slow): read no more until ``drained``."""
        ...

    async def drained(self) -> None: ...


class AgentPort(Protocol):
    """One session at one agent."""

    def start(self, info: SessionInfo, has_history: bool) -> None:
        """Start or join the agent and open the session there: resume or load ``info.agent_session`` if it is set,
        else a new one. Tells AgentReady (with ``own_id``) or AgentGone; config and replay facts go before AgentReady.
        """
        ...

    def perform(self, effect: AnyEffect) -> None:
        """Do one effect other than StartAgent. Never blocks; what comes of it is told as facts."""
        ...

    async def close(self) -> None:
        """End the session at the agent, and its process if nobody else uses it; returns when no process is left."""
        ...


class Logins(Protocol):
    """What agents need of a login, and how it is done. ``agent``: a name of the settings."""

    def methods(self, agent: str) -> list[Any]:
        """The agent's login methods as it describes them itself; none while it was never started."""
        ...

    def can_logout(self, agent: str) -> bool: ...

    async def login(self, config: AgentConfig, method_id: str, meta: Any = None) -> None:
        """Log in, with all processes of the agent that run now and those that start later. ``meta`` may be secret.

        Raises ClientError for an unknown method, AgentError with the agent's words.
        """
        ...

    async def logout(self, config: AgentConfig) -> None:
        """Raises NotSupported where the agent has no such thing, AgentError."""
        ...


PortFactory = Callable[[AgentConfig, SessionInfo, Sink], AgentPort]
Probe = Callable[[AgentConfig], Awaitable[dict[str, object]]]
