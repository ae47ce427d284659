"""Files of a folder of the workspace, for reading only."""

import asyncio
import mimetypes

from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode import files
from adapters.opencode.api.common import V2, number
from adapters.opencode.errors import Invalid, cut

FOUND, MOST = 100, 1000
KINDS = ("file", "directory")


def routes(v2: V2) -> None:
    router = v2.api.router

    def folder(request: Request) -> str:
        return str(files.inside(v2.directory(request), "", '["location"]["directory"]'))

    @router.get("/api/fs/list", response_model=None)
    async def listed(request: Request) -> Response:
        """What is in a folder, folders first. ``path`` is relative to the location."""
        asked = request.query_params.get("path", "")
        where = folder(request)
        found = await asyncio.to_thread(files.entries, where, files.inside(where, asked, '["path"]'), asked or where)
        return v2.located(request, [entry(one.path, one.is_folder) for one in found])

    @router.get("/api/fs/find", response_model=None)
    async def find(request: Request) -> Response:
        """Files and folders by name, best first."""
        query = request.query_params
        if "query" not in query:
            raise Invalid('Missing key\n  at ["query"]', "Query")
        kind = query.get("type")
        if kind is not None and kind not in KINDS:
            raise Invalid(f'Expected "file" | "directory", got "{cut(kind)}"\n  at ["type"]', "Query")
        limit = number(request, "limit", FOUND, low=1, high=MOST)
        ranked = await files.named(folder(request), v2.api.roots, query["query"], kind, limit)
        return v2.located(request, [entry(path, path.endswith("/")) for path in ranked])

    @router.get("/api/fs/read/{path:path}", response_model=None)
    async def read(request: Request, path: str) -> Response:
        """A file's bytes."""
        real = files.inside(folder(request), path, '["path"]')
        content = await asyncio.to_thread(files.read, real, files.LARGEST, path)
        mime = mimetypes.guess_type(real.name)[0] or "application/octet-stream"
        # what a workspace holds is not to run as a page of this origin
        safe = {"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff"}
        return Response(content, media_type=mime, headers=safe)


def entry(path: str, is_folder: bool) -> dict[str, str]:
    return {"path": path.rstrip("/") + ("/" if is_folder else ""), "type": "directory" if is_folder else "file"}
