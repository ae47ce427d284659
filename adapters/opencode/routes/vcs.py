"""Version control of a folder of the workspace, for reading only: git's branch, and what differs."""

from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode.changes import Context, Mode, changes
from adapters.opencode.errors import json
from adapters.opencode.git import Git
from adapters.opencode.routes.api import Api, query


class Diff(msgspec.Struct, frozen=True):
    mode: Mode
    context: Context | None = None


def routes(api: Api) -> None:
    router = api.router

    @router.get("/vcs", response_model=None)
    async def about(request: Request) -> Response:
        """The branch, and the default one; empty where there is no git."""
        git = await Git.open(Path(api.folder(request)), api.roots)
        if git is None:
            return json({})
        found = {"branch": await git.branch(), "default_branch": await git.default_branch()}
        return json({key: value for key, value in found.items() if value})

    @router.get("/vcs/status", response_model=None)
    async def status(request: Request) -> Response:
        """Files that differ from the last commit."""
        return json(await changes(api.folder(request), api.roots, "git", None))

    @router.get("/vcs/diff", response_model=None)
    async def diff(request: Request) -> Response:
        """The same with patches; ``branch`` compares with where the branch left the default one."""
        asked = query(request, Diff)
        return json(await changes(api.folder(request), api.roots, asked.mode, asked.context, patches=True))

    @router.get("/vcs/diff/raw", response_model=None)
    async def raw(request: Request) -> Response:
        """All patches against the last commit as one text."""
        found = await changes(api.folder(request), api.roots, "git", None, patches=True)
        text = "".join(one.patch for one in found if isinstance(one.patch, str))
        return Response(text.encode("utf-8", "replace"), media_type="text/x-diff; charset=utf-8")
