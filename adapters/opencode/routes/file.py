"""Files of a folder of the workspace, for reading only: what is in a folder, a file's content, what has changed."""

import asyncio
import base64
import mimetypes
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode import files
from adapters.opencode.changes import changes
from adapters.opencode.errors import json
from adapters.opencode.git import Git, GitError
from adapters.opencode.routes.api import Api, query

AT_PATH = '["path"]'
IGNORED_SECONDS = 2.0  # for git to say what is ignored


class Where(msgspec.Struct, frozen=True):
    path: str


def routes(api: Api) -> None:
    router = api.router

    @router.get("/file", response_model=None)
    async def listed(request: Request) -> Response:
        """What is in a folder: folders first. ``path`` is relative to the directory; empty for itself."""
        asked = query(request, Where)
        folder = api.folder(request)
        path = files.inside(folder, asked.path, AT_PATH)
        found = await asyncio.to_thread(files.entries, folder, path, asked.path)
        ignored: set[str] = set()
        with suppress(GitError, TimeoutError):  # the list is what was asked for
            async with asyncio.timeout(IGNORED_SECONDS):
                git = await Git.open(path, api.roots)
                if git is not None:
                    ignored = await git.ignored([one.name for one in found if one.name != ".git"])
        return json([_node(one, folder, one.name in ignored) for one in found])

    @router.get("/file/content", response_model=None)
    async def content(request: Request) -> Response:
        """A file as text, or in base64 where it is none."""
        asked = query(request, Where)
        path = files.inside(api.folder(request), asked.path, AT_PATH)
        data = await asyncio.to_thread(files.read, path, files.LARGEST, asked.path)
        return json(told(data, path.name))

    @router.get("/file/status", response_model=None)
    async def status(request: Request) -> Response:
        """What differs from the last commit; empty where there is no git."""
        found = await changes(api.folder(request), api.roots, "git", None)
        return json([{"path": c.file, "added": c.additions, "removed": c.deletions, "status": c.status} for c in found])


def _node(one: files.Entry, folder: str, ignored: bool) -> dict[str, Any]:
    slash = "/" if one.is_folder else ""
    return {
        "name": one.name,
        "path": one.path + slash,
        "absolute": f"{folder.rstrip('/')}/{one.path}",
        "type": "directory" if one.is_folder else "file",
        "ignored": ignored,
    }


def told(data: bytes, name: str) -> dict[str, Any]:
    mime = mimetypes.guess_type(name)[0] or ""
    if not mime.startswith(("image/", "audio/", "video/", "font/")) or mime == "image/svg+xml":
        try:
            text = data.decode()
            if "\0" not in text:
                return {"type": "text", "content": text}
        except UnicodeDecodeError:
            pass
    mime = mime or "application/octet-stream"
    return {"type": "binary", "content": base64.b64encode(data).decode(), "encoding": "base64", "mimeType": mime}
