"""What a person may set, with defaults that are safe on one's own machine. Reading the layers is ``gateway/config.py``.

A ``Settings`` object comes whole from its arguments: it reads no file and no environment by itself, so that a test
or an embedding program gets exactly what it passes.
"""

import ipaddress
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.agents import AgentConfig, not_a_boolean

AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
MIB = 1024 * 1024

# One name of the token that has none of its own; "local" is who comes in without a token (gateway/security.py).
SINGLE_TOKEN_NAME = "token"


def default_data() -> Path:
    """``$XDG_DATA_HOME/trunkline``: sessions outlive the folder that ``serve`` was started in."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share") / "trunkline"


def _words(value: object, separator: str) -> object:
    """An environment variable's text as a list: JSON if it looks so, else split at ``separator``."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _json(value)
    return [word.strip() for word in value.split(separator) if word.strip()]


def _json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        # Only the place: the text itself may hold a secret.
        raise ValueError(f"is not valid JSON ({str(error).split(':')[0]})") from None


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TRUNKLINE_", extra="forbid", hide_input_in_errors=True, frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=4096, ge=0, le=65535, description="0 picks a free one")
    data: Path = Field(default_factory=default_data, description="folder of the store")
    workspace: Annotated[list[Path], NoDecode] = Field(
        default_factory=lambda: [Path.cwd()], min_length=1, description="sessions may only be inside these folders"
    )
    token: SecretStr | None = None
    tokens: Annotated[dict[str, SecretStr], NoDecode] = Field(default_factory=dict, description="name -> token")
    allow_hosts: Annotated[list[str], NoDecode] = Field(default_factory=list, description="more names for Host")
    allow_origins: Annotated[list[str], NoDecode] = Field(
        default_factory=list, description="origins of web apps that may use the gateway, as https://app.example"
    )
    default_agent: str = ""
    on_restart: Literal["run", "hold"] = "run"
    max_body: int = Field(default=32 * MIB, ge=1024, description="bytes of one request")
    max_sessions: int = Field(default=10_000, ge=1, description="sessions in the store")
    max_pending: int = Field(default=256, ge=1, description="messages that wait, a session")
    max_subscribers: int = Field(default=512, ge=1, description="open event streams")
    idle_unload: float = Field(default=900.0, gt=0, description="seconds")
    agui_on_disconnect: Literal["cancel", "continue"] = Field(
        default="cancel", description="what an AG-UI client that closes its running POST does to the turn"
    )
    shell: bool = Field(default=False, description="people may run commands where a session is, as the gateway's user")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    agents: Annotated[dict[str, AgentConfig], NoDecode] = Field(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only: ``gateway/config.py`` merges the layers itself, to be able to name a wrong value's place."""
        return (init_settings,)

    def named_tokens(self) -> dict[str, str]:
        """Name to token, the single one under ``token``."""
        named = {name: value.get_secret_value() for name, value in self.tokens.items()}
        if self.token is not None:
            named[SINGLE_TOKEN_NAME] = self.token.get_secret_value()
        return named

    def on_loopback(self) -> bool:
        """Whether only this machine can reach ``host``. A name other than localhost may be anything: no."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    def first_agent(self) -> str:
        """The default agent: the one that was set, else the first configured."""
        return self.default_agent or next(iter(self.agents), "demo")

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        return not_a_boolean(cls, value, info)

    @field_validator("workspace", mode="before")
    @classmethod
    def _split_paths(cls, value: object) -> object:
        return _words(value, os.pathsep)

    @field_validator("allow_hosts", "allow_origins", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return _words(value, ",")

    @field_validator("tokens", "agents", mode="before")
    @classmethod
    def _decode(cls, value: object) -> object:
        return _json(value)

    @field_validator("host")
    @classmethod
    def _host(cls, value: str) -> str:
        if not value or re.search(r"[\s/]", value):
            raise ValueError("must be a host name or an address, as 127.0.0.1")
        return value

    @field_validator("data")
    @classmethod
    def _data(cls, value: Path) -> Path:
        return Path(os.path.abspath(value.expanduser()))

    @field_validator("workspace")
    @classmethod
    def _workspace(cls, value: list[Path]) -> list[Path]:
        roots = [Path(os.path.abspath(path.expanduser())) for path in value]
        for root in roots:
            if not root.is_dir():
                raise ValueError(f"{root} is not a folder")
        return roots

    @field_validator("token")
    @classmethod
    def _token(cls, value: SecretStr | None) -> SecretStr | None:
        _check_token(value)
        return value

    @field_validator("tokens")
    @classmethod
    def _tokens(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, token in value.items():
            if not TOKEN_NAME.fullmatch(name):
                raise ValueError("a token's name is letters, digits and . _ @ -")
            _check_token(token)
        return value

    @field_validator("allow_hosts")
    @classmethod
    def _allow_hosts(cls, value: list[str]) -> list[str]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", name):
                raise ValueError(f"{name!r}: a host is a bare name without scheme or port, as box.example")
        return [name.lower() for name in value]

    @field_validator("allow_origins")
    @classmethod
    def _allow_origins(cls, value: list[str]) -> list[str]:
        for origin in value:
            parts = urlsplit(origin)
            if not parts.scheme or not parts.netloc or parts.path or parts.query or "@" in parts.netloc:
                raise ValueError("an origin is a scheme, a host and perhaps a port, as https://app.example:8443")
        return [origin.lower() for origin in value]

    @field_validator("agents")
    @classmethod
    def _agents(cls, value: dict[str, AgentConfig]) -> dict[str, AgentConfig]:
        for name in value:
            if not AGENT_NAME.fullmatch(name):
                raise ValueError(f"{name!r}: an agent's name is letters, digits and . _ -")
        return {name: agent.model_copy(update={"name": name}) for name, agent in value.items()}

    @model_validator(mode="after")
    def _distinct_tokens(self) -> "Settings":
        values = list(self.named_tokens().values())
        if len(set(values)) != len(values):
            raise ValueError("two names have the same token, so it would not be known who comes in")
        return self


def _check_token(value: SecretStr | None) -> None:
    """A token goes into HTTP headers and a cookie. The messages never hold it."""
    if value is None:
        return
    text = value.get_secret_value()
    if not text:
        raise ValueError("is empty; leave it out or give a token")
    if not re.fullmatch(r"[\x21-\x7e]+", text) or re.search(r'[",;\\]', text):
        raise ValueError('must be printable ASCII without spaces, quotes, backslash, "," and ";"')
