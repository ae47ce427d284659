"""docs/opencode.md's table of version 2 against the application and against the real server: all routes, both ways."""

import re
from pathlib import Path

from adapters.opencode.api.absent import NOT_OFFERED
from tests.fake_port import Farm
from tests.opencode.support import gateway
from tests.opencode.test_route_table import DOCS, ROW
from tests.opencode.test_translate import GOLDEN

PENDING = "/api/session/{sessionID}/pending"
OURS = {
    f"GET {PENDING}",
    f"DELETE {PENDING}/{{messageID}}",
    f"PATCH {PENDING}/{{messageID}}",
    f"POST {PENDING}/{{messageID}}/steer",
    f"POST {PENDING}/{{messageID}}/queue",
}
ASKED = "POST /api/session/{sessionID}/permission"  # refused where permissions are


def documented() -> dict[str, tuple[str, str]]:
    rows = [row for row in ROW.findall(DOCS.read_text()) if row[1].startswith("/api/")]
    found = {f"{method} {path}": (state, note) for method, path, state, note in rows}
    assert len(found) == len(rows), "twice"
    return found


def real() -> set[str]:
    return {line for line in (GOLDEN / "routes.txt").read_text().splitlines() if " /api/" in line}


def test_the_table_is_of_all_the_real_servers_routes() -> None:
    assert set(documented()) == real() | OURS


async def test_the_table_is_of_all_the_applications_routes(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        paths = (await one.http.get("/doc")).json()["paths"]
    told = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    told = {re.sub(r"\{path\}$", "*", route) for route in told if " /api/" in route}
    assert told == set(documented())


def test_what_is_not_offered_is_what_the_application_refuses() -> None:
    refused = {f"{method} {path}": why for path, methods in NOT_OFFERED.items() for method, why in methods.items()}
    table = {route: note.strip() for route, (state, note) in documented().items() if state == "not offered"}
    table.pop(ASKED)
    assert table == refused


def test_what_is_not_whole_says_what_is_missing() -> None:
    assert [route for route, (state, note) in documented().items() if state != "whole" and len(note) < 4] == []
