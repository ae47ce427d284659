"""docs/opencode.md against the application and against the real server: all routes, both ways.

``routes.txt`` is the list of 1.18.33's own OpenAPI document, ``METHOD /path`` a line.
"""

import re
from pathlib import Path
from typing import Any

from adapters.opencode.routes.absent import NOT_OFFERED
from tests.fake_port import Farm
from tests.opencode.support import gateway
from tests.opencode.test_translate import GOLDEN

DOCS = Path(__file__).parent.parent.parent / "docs" / "opencode.md"
OURS = {"GET /doc"}
"""What the real server has, and does not list."""

ROW = re.compile(r"\| `([A-Z]+) (/\S+)` \| (whole|partly|not offered) \|(.*)\|")


def filled(path: str, session_id: str = "ses_x") -> str:
    """A path with something in its braces."""
    values = {"sessionID": session_id, "messageID": "msg_x", "partID": "prt_x", "ptyID": "pty_x"}
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "x"), path)


def real() -> set[str]:
    lines = (GOLDEN / "routes.txt").read_text().splitlines()
    return {line for line in lines if not line.partition(" ")[2].startswith("/api/")}


def documented() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for method, path, state, note in ROW.findall(DOCS.read_text()):
        if not path.startswith("/api/"):
            assert f"{method} {path}" not in found, "twice"
            found[f"{method} {path}"] = (state, note)
    return found


async def served(tmp_path: Path) -> set[str]:
    """What the application says that it has (what of it is answered is in the other tests)."""
    async with gateway(tmp_path, Farm()) as one:
        doc: dict[str, Any] = (await one.http.get("/doc")).json()
    told = {f"{method.upper()} {path}" for path, methods in doc["paths"].items() for method in methods}
    return {route for route in told if not route.partition(" ")[2].startswith("/api/")}


def test_the_table_is_of_all_the_real_servers_routes() -> None:
    assert set(documented()) == real() | OURS


async def test_the_table_is_of_all_the_applications_routes(tmp_path: Path) -> None:
    assert set(documented()) == await served(tmp_path)


def test_what_is_not_offered_in_the_table_is_not_in_the_application() -> None:
    refused = {f"{method} {path}" for path, methods in NOT_OFFERED.items() for method in methods}
    assert {route for route, (state, _) in documented().items() if state == "not offered"} == refused


def test_what_is_not_whole_says_what_is_missing() -> None:
    assert [route for route, (state, note) in documented().items() if state != "whole" and len(note) < 4] == []
