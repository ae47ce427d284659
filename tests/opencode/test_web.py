"""OpenCode's web app in a headless Chromium, with a gateway behind it.

Its files are those that the real ``opencode serve`` gives at ``/``. Screenshots are kept in ``test-output/web``.
"""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.opencode.terminal import CLIENTS, real_server
from tests.served import ROOT, Served, serve

SHOTS = ROOT / "test-output" / "web"
DEADLINE = 240  # seconds, of a whole scenario
TOKEN = "a-token-of-more-than-16-letters"

pytestmark = pytest.mark.usefixtures("npm_clients")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Only its page is used."""
    with real_server(tmp_path_factory.mktemp("opencode")) as url:
        yield url


async def browse(scenario: str, served: Served, real: str, token: str = "") -> dict[str, Any]:
    """Run one scenario of ``web.mjs``."""
    node = shutil.which("node")
    assert node is not None and Path("/usr/bin/chromium").exists(), "Node and Chromium are needed: make needs"
    arguments = [scenario, served.url, real, str(served.workspace), str(SHOTS), token]
    process = await asyncio.create_subprocess_exec(
        node, "web.mjs", *arguments, cwd=CLIENTS, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(DEADLINE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert out, err.decode()
    told: dict[str, Any] = json.loads(out)
    assert told["ok"], told["error"] + "\n" + "\n".join(told["errors"])
    return told


async def test_a_turn_in_the_page(tmp_path: Path, real: str) -> None:
    """Streaming, tool, permission, question, a prompt while busy, abort. Nothing outside of this machine is needed, and
    the page stays with version 1 of the API.
    """
    async with serve(tmp_path) as served:
        told = await browse("turn", served, real)
        (session,) = (await served.http.get("/session")).json()
        lines = await served.told(session["id"])
    assert told["refused"] == []
    prompts = {path for path in told["asked"] if "prompt" in path}
    assert prompts == {f"POST /session/{session['id']}/prompt_async"}
    assert [line for line in lines if line.startswith("user:")] == [
        "user: say hello page",
        "user: stream 60 25\ntool list files\nsay over",
        "user: ask Deploy\nsay deployed",
        "user: ask Remove\nsay went on",
        "user: form Which name?",
        "user: stream 60 25",
        "user: say the second",
        "user: stream 100000 25",
        "user: say next",
        "user: say held",
    ]


async def test_two_tabs_a_reload_in_a_turn_and_the_list(tmp_path: Path, real: str) -> None:
    async with serve(tmp_path) as served:
        await browse("tabs", served, real)


async def test_a_page_from_elsewhere_with_a_password(tmp_path: Path, real: str) -> None:
    """``allow_origins`` names the page's server, the token is the password."""
    settings = tmp_path / "trunkline.toml"
    settings.write_text(f"allow_origins = [{json.dumps(real)}]\n")
    async with serve(tmp_path, "--config", str(settings), TRUNKLINE_TOKEN=TOKEN) as served:
        await browse("server", served, real, TOKEN)
