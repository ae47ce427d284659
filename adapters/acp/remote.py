"""The channel to an agent elsewhere, by its url's scheme."""

from collections.abc import Callable, Mapping
from http.cookiejar import CookieJar

from adapters.acp.channel import Channel, Ended
from adapters.acp.remote_base import target
from adapters.acp.remote_http import RemoteHttp
from adapters.acp.remote_ws import RemoteWebSocket
from gateway.agents import AgentConfig


def channel(
    config: AgentConfig,
    name: str,
    environ: Mapping[str, str],
    cookies: CookieJar | None,
    on_data: Callable[[bytes], None],
    on_exit: Ended,
) -> Channel:
    """Connecting, in the background. Raises ValueError for a header whose variable is not set in ``environ``."""
    found = target(config, name, environ, cookies if cookies is not None else CookieJar())
    return (RemoteWebSocket if found.url.socket else RemoteHttp)(found, on_data, on_exit)
