"""Who has a session on a connection, and what it is told when a call fails."""

from typing import Protocol

from adapters.acp import rpc
from gateway.core.inputs import AgentFact
from gateway.core.model import Error


class Gone(Exception):
    """The agent is not there: it did not start, or it died."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class CallFailed(Exception):
    """The agent answered with an error, or not in time (``timeout``)."""

    def __init__(self, error: rpc.RpcError, timeout: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.timeout = timeout


class Owner(Protocol):
    """Who has a session on a connection."""

    own_id: str

    def tell(self, *facts: AgentFact) -> None:
        """Take facts; they are passed on at ``flush``."""

    def flush(self) -> None: ...
    def full(self) -> bool: ...
    async def drained(self) -> None: ...

    def asked(self, request: rpc.Request, session: str) -> bool:
        """A request of the agent; False: the method is unknown. ``session``: the child's id, or empty."""

    def withdrawn(self, request: rpc.Id) -> None:
        """The agent does not want an answer any more."""

    def completed(self, elicitation: str) -> None:
        """A page that a person was asked to open did what it was for."""

    def gone(self, error: Error) -> None: ...
