"""Routes of version 2 that are not offered: each answers 501 and says why, whatever it is sent."""

from typing import Any

from starlette.responses import Response

from adapters.opencode.api.common import V2
from gateway.core.errors import NotSupported

_UNDONE = "What an agent has seen and done cannot be taken back: no agent offers it"
_KEYS = "Keys and logins belong to the agents: log in with the agent's own command"
_PTY = "The gateway opens no terminals"

NOT_OFFERED: dict[str, dict[str, str]] = {
    "/api/session/{sessionID}/revert/stage": {"POST": _UNDONE},
    "/api/session/{sessionID}/revert/clear": {"POST": _UNDONE},
    "/api/session/{sessionID}/revert/commit": {"POST": _UNDONE},
    "/api/integration/{integrationID}/connect/key": {"POST": _KEYS},
    "/api/integration/{integrationID}/connect/oauth": {"POST": _KEYS},
    "/api/integration/attempt/{attemptID}": {"GET": _KEYS, "DELETE": _KEYS},
    "/api/integration/attempt/{attemptID}/complete": {"POST": _KEYS},
    "/api/credential/{credentialID}": {"PATCH": _KEYS, "DELETE": _KEYS},
    "/api/pty": {"GET": _PTY, "POST": _PTY},
    "/api/pty/{ptyID}": {"GET": _PTY, "PUT": _PTY, "DELETE": _PTY},
    "/api/pty/{ptyID}/connect-token": {"POST": _PTY},
    "/api/pty/{ptyID}/connect": {"GET": _PTY},
}


def routes(v2: V2) -> None:
    router = v2.api.router
    for path, methods in NOT_OFFERED.items():
        for method, why in methods.items():
            refuse = _of_session(v2, why) if "{sessionID}" in path else _refusal(why)
            name = f"{method} {path}"
            router.add_api_route(path, refuse, methods=[method], response_model=None, name=name, description=why)


def _refusal(why: str) -> Any:
    async def refuse() -> Response:
        raise NotSupported(why)

    return refuse


def _of_session(v2: V2, why: str) -> Any:
    async def refuse(sessionID: str) -> Response:
        await v2.view(sessionID)  # an unknown one is said first
        raise NotSupported(why)

    return refuse
