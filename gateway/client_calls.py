"""What agents ask of a client that is attached to their session: its files, its terminals.

The road from an agent's port to a client's connection, for requests of which nothing is kept: they are no events, are
shown to nobody else, and end with whoever asks or answers. What is asked, and in which words, is the adapters' matter.
"""

from collections.abc import Callable
from typing import Any, Protocol

from gateway.core.errors import GatewayError, NotSupported
from gateway.core.ids import SessionId


class NoClient(NotSupported):
    """No attached client can do it."""

    code = "no_client"


class ClientLeft(GatewayError):
    """The client that was asked, or that has what is asked for, is not there any more."""

    code = "client_left"
    status = 502


class ServingClient(Protocol):
    """One client, as far as it serves the agent of one session."""

    async def call(self, method: str, params: dict[str, Any], agent_session: str) -> Any:
        """Ask it; cancelling withdraws the request. ``agent_session``: the agent's own id of the session, which the
        client knows under another. Raises ClientLeft, and the adapter's own error for one that the client answered.
        """
        ...


Finder = Callable[[SessionId, str], ServingClient | None]


class ClientCalls:
    """``offer`` is for who has clients, ``find`` for who has an agent."""

    def __init__(self) -> None:
        self._finders: list[Finder] = []

    def offer(self, find: Finder) -> None:
        """``find`` knows clients by the root session that they follow, and by what they can do."""
        self._finders.append(find)

    def find(self, root_id: SessionId, ability: str) -> ServingClient:
        """The first client of the session that has this ability. Raises NoClient."""
        for finder in self._finders:
            found = finder(root_id, ability)
            if found is not None:
                return found
        raise NoClient(f"no client that is attached to this session offers {ability}")
