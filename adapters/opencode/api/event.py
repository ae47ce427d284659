"""The event streams of version 2: ``/api/event`` of everything, and the durable one of a session."""

from starlette.requests import Request
from starlette.responses import Response

from adapters import sse
from adapters.opencode.api.common import V2, integer, number

HEARTBEAT = b": heartbeat\n\n"
SECONDS = 15.0  # as the real server


def routes(v2: V2) -> None:
    router = v2.api.router

    @router.get("/api/event", response_model=None)
    async def events(request: Request) -> Response:
        """Events of all sessions. ``Last-Event-ID`` or ``cursor=`` goes on after a frame."""
        cursor = request.headers.get("last-event-id") or request.query_params.get("cursor") or ""
        return sse.stream(v2.streams.events(cursor), heartbeat=HEARTBEAT, heartbeat_seconds=SECONDS)

    @router.get("/api/session/{sessionID}/event", response_model=None)
    async def durable(request: Request, sessionID: str) -> Response:
        """Committed events after a number (``after``, or ``Last-Event-ID``), then each when it is committed."""
        session_id = v2.session_id(sessionID)
        after = number(request, "after", 0)
        seen = request.headers.get("last-event-id")  # newer than the URL, which a reconnecting client keeps
        if seen:
            after = integer(seen, "Last-Event-ID", kind="Headers")
        frames = await v2.streams.durable(session_id, after)
        return sse.stream(frames, heartbeat=HEARTBEAT, heartbeat_seconds=SECONDS)
