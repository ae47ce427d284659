"""The event streams: ``/event`` of one directory, ``/global/event`` of all."""

from starlette.requests import Request
from starlette.responses import Response

from adapters import sse
from adapters.opencode.frames import Kind
from adapters.opencode.routes.api import Api


def routes(api: Api) -> None:
    router = api.router

    def stream(request: Request, kind: Kind) -> Response:
        cursor = request.headers.get("last-event-id") or request.query_params.get("cursor") or ""
        directory = api.directory(request) if kind == "event" else ""
        frames = api.streams.open(kind, directory, cursor)
        return sse.stream(frames, heartbeat=None, heartbeat_seconds=0)

    @router.get("/event", response_model=None)
    async def event(request: Request) -> Response:
        """Events of one directory. ``Last-Event-ID`` or ``cursor=`` goes on after a frame."""
        return stream(request, "event")

    @router.get("/global/event", response_model=None)
    async def global_event(request: Request) -> Response:
        """Events of all directories, each in an envelope that names its own."""
        return stream(request, "global")
