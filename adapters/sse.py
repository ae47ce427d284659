"""Streams Server-Sent Events whose frames are already encoded; the only file that imports sse_starlette.

sse_starlette brings the watching for a client that leaves, HEAD, and the heartbeat beside a frame being sent. A batch
of frames goes through it as one ``bytes`` object: one ASGI message, one write, nothing encoded again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

HEADERS: Mapping[str, str] = {
    # no-transform and X-Accel-Buffering: a proxy that compresses or collects would hold frames back.
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}


def stream(
    frames: AsyncIterator[bytes],
    *,
    heartbeat: bytes | Callable[[], bytes] | None,
    heartbeat_seconds: float,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response that writes each item of ``frames`` (one or many whole frames, each ended by an empty line) at once.

    ``heartbeat`` is a whole frame too, written every ``heartbeat_seconds``; None for none. The response ends when
    ``frames`` does, when the client leaves, and when the gateway shuts down (``app.state.shutdown``, an
    asyncio.Event): ``frames`` then gets a CancelledError or is closed, so its ``finally`` runs in any case.
    """
    return _Stream(frames, heartbeat, heartbeat_seconds, {**HEADERS, **(headers or {})})


class _Stream(EventSourceResponse):
    def __init__(
        self,
        frames: AsyncIterator[bytes],
        heartbeat: bytes | Callable[[], bytes] | None,
        heartbeat_seconds: float,
        headers: Mapping[str, str],
    ) -> None:
        # sse_starlette's type for the factory is narrower than what it does with it: bytes pass unchanged.
        beat: object = (lambda: heartbeat) if isinstance(heartbeat, bytes) else heartbeat
        super().__init__(
            frames,
            headers=headers,
            sep="\n",
            ping=heartbeat_seconds if heartbeat is not None else 0,
            ping_message_factory=beat,  # type: ignore[arg-type]
        )
        self._shutdown: asyncio.Event | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._shutdown = getattr(getattr(scope.get("app"), "state", None), "shutdown", None)
        complete = False

        async def watched(message: Message) -> None:
            nonlocal complete
            await send(message)
            complete = message["type"].endswith(".body") and not message.get("more_body", False)

        try:
            await super().__call__(scope, receive, watched)
        finally:
            close = getattr(self.body_iterator, "aclose", None)
            if close is not None:
                await close()
        if not complete and self._shutdown is not None and self._shutdown.is_set():
            # A stream that ends is told apart from one that broke: the client reconnects without an error.
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _listen_for_exit_signal_with_grace(self) -> None:
        """Overrides a private method: the original polls signal handlers, and leaves a process-wide flag behind.
        Should the name change, its own watcher ends the stream, half a second later.
        """
        if self._shutdown is not None:
            await self._shutdown.wait()
        else:
            await asyncio.Event().wait()
