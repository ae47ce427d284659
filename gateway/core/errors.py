"""What can go wrong, in two leaves: the client broke the rules, or the agent did.

Each error has a stable ``code`` (a word for programs) and an HTTP ``status``. Foreign errors are mapped to these
once, where they enter. An illegal input raises one of these and changes nothing.
"""

from typing import Any


class GatewayError(Exception):
    """``message`` is a sentence for people: what is wrong, where, and what to do."""

    code = "internal"
    status = 500

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ClientError(GatewayError):
    code = "bad_request"
    status = 400


class AgentError(GatewayError):
    code = "agent_error"
    status = 502


class StoreError(GatewayError):
    """The store did not take the change: nothing happened (a full disk, for example)."""

    code = "store_unavailable"
    status = 503


class Unstorable(StoreError):
    """Something that cannot be written down as it is (a lone surrogate in a text): trying again does not help."""

    code = "unstorable"
    status = 500


class NotFound(ClientError):
    code = "not_found"
    status = 404


class Conflict(ClientError):
    """A known id with other content, or an id that another session owns."""

    code = "conflict"
    status = 409


class Busy(ClientError):
    """A precondition asked for an idle session."""

    code = "session_busy"
    status = 409


class NotRunning(ClientError):
    """A precondition asked for a running turn."""

    code = "no_running_turn"
    status = 409


class Limit(ClientError):
    code = "limit_reached"
    status = 429


class TooLarge(ClientError):
    code = "too_large"
    status = 413


class Forbidden(ClientError):
    code = "forbidden"
    status = 403


class Unauthorized(ClientError):
    code = "unauthorized"
    status = 401


class AgentUnavailable(AgentError):
    """The agent did not start, or died."""

    code = "agent_exit"
    status = 502


class AgentTimeout(AgentError):
    code = "agent_timeout"
    status = 504


class AuthRequired(AgentError):
    code = "auth_required"
    status = 502


class NotSupported(AgentError):
    code = "not_supported"
    status = 501


def of_agent(code: str, message: str, **data: Any) -> AgentError:
    """The exception for an error that an agent's fact told, by its stable code."""
    kinds = (AgentUnavailable, AgentTimeout, AuthRequired, NotSupported)
    kind = next((k for k in kinds if k.code == code), AgentError)
    return kind(message, **data)
