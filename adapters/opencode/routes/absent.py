"""Routes of the real server that are not offered: each answers 501 and says why, whatever it is sent."""

from typing import Any

from starlette.responses import Response

from adapters.opencode.routes.api import Api
from gateway.core.errors import NotSupported

_UNDONE = "What an agent has seen and done cannot be taken back: no agent offers it"
_SHARED = "Sessions are not published: this gateway has no place for them"
_STAYS = "The parts of a message stay as they were said: no agent takes them back"
_SETTINGS = "Settings are not changed over HTTP: change them where the gateway is started"
_KEYS = "Keys and logins belong to the agents: log in with the agent's own command"
_MCP = "MCP servers are the agents': set mcp_servers of the agent, in the gateway's settings"
_PTY = "The gateway opens no terminals"
_TUI = "No terminal client listens to this gateway: open opencode attach yourself"
_SYNC = "Sessions are not replicated to other servers"
_PLACES = "Workspaces, worktrees and copies of projects are not made here: open a session with another directory"
_CONSOLE = "No OpenCode console is connected"
_READ_ONLY = "The gateway does not change the workspace: the agent does"
_TOOLS = "Tools are the agents' own: they are not listed before they are used"
_RUNS = "The gateway and its agents end with the process: stop that"

NOT_OFFERED: dict[str, dict[str, str]] = {
    "/session/{sessionID}/revert": {"POST": _UNDONE},
    "/session/{sessionID}/unrevert": {"POST": _UNDONE},
    "/session/{sessionID}/share": {"POST": _SHARED, "DELETE": _SHARED},
    "/session/{sessionID}/message/{messageID}/part/{partID}": {"PATCH": _STAYS, "DELETE": _STAYS},
    "/config": {"PATCH": _SETTINGS},
    "/global/config": {"PATCH": _SETTINGS},
    "/global/dispose": {"POST": _RUNS},
    "/global/upgrade": {"POST": "The gateway does not update itself"},
    "/instance/dispose": {"POST": _RUNS},
    "/project/git/init": {"POST": _READ_ONLY},
    "/project/{projectID}": {"PATCH": "A project is a folder here: it has no name of its own"},
    "/vcs/apply": {"POST": _READ_ONLY},
    "/auth/{providerID}": {"PUT": _KEYS, "DELETE": _KEYS},
    "/provider/{providerID}/oauth/authorize": {"POST": _KEYS},
    "/provider/{providerID}/oauth/callback": {"POST": _KEYS},
    "/mcp": {"POST": _MCP},
    "/mcp/{name}/auth": {"POST": _MCP, "DELETE": _MCP},
    "/mcp/{name}/auth/authenticate": {"POST": _MCP},
    "/mcp/{name}/auth/callback": {"POST": _MCP},
    "/mcp/{name}/connect": {"POST": _MCP},
    "/mcp/{name}/disconnect": {"POST": _MCP},
    "/pty": {"POST": _PTY},
    "/pty/{ptyID}": {"GET": _PTY, "PUT": _PTY, "DELETE": _PTY},
    "/pty/{ptyID}/connect": {"GET": _PTY},
    "/pty/{ptyID}/connect-token": {"POST": _PTY},
    "/tui/append-prompt": {"POST": _TUI},
    "/tui/clear-prompt": {"POST": _TUI},
    "/tui/control/next": {"GET": _TUI},
    "/tui/control/response": {"POST": _TUI},
    "/tui/execute-command": {"POST": _TUI},
    "/tui/open-help": {"POST": _TUI},
    "/tui/open-models": {"POST": _TUI},
    "/tui/open-sessions": {"POST": _TUI},
    "/tui/open-themes": {"POST": _TUI},
    "/tui/publish": {"POST": _TUI},
    "/tui/select-session": {"POST": _TUI},
    "/tui/show-toast": {"POST": _TUI},
    "/tui/submit-prompt": {"POST": _TUI},
    "/sync/history": {"POST": _SYNC},
    "/sync/replay": {"POST": _SYNC},
    "/sync/start": {"POST": _SYNC},
    "/sync/steal": {"POST": _SYNC},
    "/experimental/console/orgs": {"GET": _CONSOLE},
    "/experimental/console/switch": {"POST": _CONSOLE},
    "/experimental/control-plane/move-session": {"POST": "A session stays in its directory"},
    "/experimental/project/{projectID}/copy": {"POST": _PLACES, "DELETE": _PLACES},
    "/experimental/project/{projectID}/copy/generate-name": {"POST": _PLACES},
    "/experimental/project/{projectID}/copy/refresh": {"POST": _PLACES},
    "/experimental/session/{sessionID}/background": {"POST": "Agents say themselves what goes on in the background"},
    "/experimental/tool": {"GET": _TOOLS},
    "/experimental/workspace": {"POST": _PLACES},
    "/experimental/workspace/sync-list": {"POST": _PLACES},
    "/experimental/workspace/warp": {"POST": _PLACES},
    "/experimental/workspace/{id}": {"DELETE": _PLACES},
    "/experimental/worktree": {"POST": _PLACES, "DELETE": _PLACES},
    "/experimental/worktree/reset": {"POST": _PLACES},
}


def routes(api: Api) -> None:
    router = api.router
    for path, methods in NOT_OFFERED.items():
        for method, why in methods.items():
            router.add_api_route(
                path,
                _refusal(api, why),
                methods=[method],
                response_model=None,
                name=f"{method} {path}",
                description=why,
            )


def _refusal(api: Api, why: str) -> Any:
    async def refuse() -> Response:
        raise NotSupported(why)

    async def refuse_of_session(sessionID: str) -> Response:
        await api.view(sessionID)  # an unknown one is said first
        raise NotSupported(why)

    return refuse_of_session if why in (_UNDONE, _SHARED, _STAYS) else refuse
