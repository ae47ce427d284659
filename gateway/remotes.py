"""Where a remote agent is, and the headers that it is asked with. Values of headers are secrets: they are never shown.

A value may name variables of the gateway's environment as ``${NAME}``; they are looked up at each connect.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x7e\t]*")
# The transport's own.
_OURS = re.compile(
    r"acp-.*|sec-websocket-.*|accept|accept-encoding|connection|content-.*|host|last-event-id|transfer-encoding|upgrade",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RemoteUrl:
    text: str
    where: str
    """Host and port, for people."""
    socket: bool
    """WebSocket; else Streamable HTTP."""
    secure: bool
    loopback: bool

    @property
    def http(self) -> str:
        """The same with http or https, whose cookies are the same."""
        return "http" + self.text[2:] if self.socket else self.text

    @classmethod
    def parse(cls, text: str) -> "RemoteUrl":
        """Raises ValueError, without the url's text: it may hold a secret."""
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError("is no url: the form is ws://host:port/acp or https://host/acp") from None
        if parts.scheme not in ("ws", "wss", "http", "https") or not host or re.search(r"[\s\x00-\x1f]", text):
            raise ValueError("must be ws://, wss://, http:// or https:// with a host, as ws://host:port/acp")
        if "@" in parts.netloc:
            raise ValueError('has a login in it; give headers instead, as { Authorization = "Bearer ${NAME}" }')
        if parts.fragment:
            raise ValueError("has a #fragment, which is never sent")
        name = f"[{host}]" if ":" in host else host
        secure = parts.scheme in ("wss", "https")
        return cls(text, name + (f":{port}" if port else ""), parts.scheme.startswith("ws"), secure, _loopback(host))


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_headers(headers: Mapping[str, str]) -> None:
    """Raises ValueError for what cannot be sent."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header")
        if _OURS.fullmatch(name):
            raise ValueError(f"{name} is set by the gateway itself")
        if "${" in VARIABLE.sub("", value):
            raise ValueError(f"{name}: a variable is named as ${{NAME}}")
        for variable in VARIABLE.findall(value):
            if variable.upper().startswith("TRUNKLINE_"):
                raise ValueError(f"{name}: {variable} is the gateway's own and is given to no agent")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"{name}: the value must be printable ASCII on one line")


def unset(headers: Mapping[str, str], environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers and the variables in them that are not in the environment."""
    return [
        (name, variable)
        for name, value in headers.items()
        for variable in VARIABLE.findall(value)
        if not environ.get(variable)
    ]


def resolve(headers: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The headers to send. Raises ValueError naming header and variable."""
    for name, variable in unset(headers, environ):
        raise ValueError(needs(name, variable))
    found = {name: VARIABLE.sub(lambda match: environ[match[1]], value) for name, value in headers.items()}
    for name, value in found.items():
        if not _VALUE.fullmatch(value):
            raise ValueError(f"the header {name} would not be printable ASCII on one line: look at its variables")
    return found


def needs(name: str, variable: str) -> str:
    return f"the header {name} needs the variable {variable}, which is not set"


def unsafe(url: RemoteUrl, headers: Mapping[str, str]) -> str:
    """A warning, or empty: credentials that anybody on the way can read."""
    if url.secure or url.loopback:
        return ""
    names = [name for name in headers if name.lower() in ("authorization", "cookie", "x-api-key")]
    if not names:
        return ""
    return f"{names[0]} is sent unencrypted to {url.where}; use {'wss' if url.socket else 'https'}://"
