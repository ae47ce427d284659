"""What waits, in the real terminal client: the QUEUED mark right until delivery, the place right after it, and both
for a terminal that attaches in between.
"""

from pathlib import Path

import pytest

from tests.opencode.terminal import attached
from tests.served import Served, serve

pytestmark = pytest.mark.usefixtures("npm_clients")


async def allow(served: Served) -> None:
    """Allow the one tool that waits for it."""
    (asked,) = (await served.http.get("/permission")).json()
    answer = await served.http.post(f"/permission/{asked['id']}/reply", json={"reply": "once"})
    assert answer.status_code == 200, answer.text


def in_order(screen: str, *texts: str) -> None:
    """Each once, in this order."""
    places = [screen.find(text) for text in texts]
    assert -1 not in places and places == sorted(places), screen
    assert [screen.count(text) for text in texts] == [1] * len(texts), screen


async def test_queued_until_delivered_then_in_its_place(tmp_path: Path) -> None:
    """The turn stands still at a permission, twice, with steps between: there the screen must be right."""
    async with serve(tmp_path) as served:
        session_id = await served.session()
        await served.post(session_id, "say hello")
        async with attached(served, tmp_path / "home", "-s", session_id) as terminal:
            await terminal.until("     hello")
            await served.send(session_id, "say one\nask First\nsay two\nask Second\nsay three")
            await terminal.until("     one", "$ First", "Permission required")
            await served.send(session_id, "say the queued")
            await served.send(session_id, "say the other queued")
            screen = await terminal.until("┃  say the queued", "┃  say the other queued", "QUEUED")
            in_order(screen, "     one", "┃  say the queued", "┃  say the other queued")
            assert screen.count("QUEUED") == 2, screen

            await allow(served)  # another step opens: what waits is still last
            screen = await terminal.until("     two", "$ Second", "Permission required", "say the other queued")
            in_order(screen, "     one", "     two", "┃  say the queued", "┃  say the other queued")
            assert screen.count("QUEUED") == 2, screen

            async with attached(served, tmp_path / "home2", "-s", session_id) as late:
                screen = await late.until("     two", "Permission required", "say the other queued", "QUEUED")
                in_order(screen, "     one", "     two", "┃  say the queued", "┃  say the other queued")
                assert screen.count("QUEUED") == 2, screen
                await allow(served)
                for one in (terminal, late):
                    screen = await one.until("     the other queued", gone="QUEUED")
                    in_order(
                        screen,
                        "     three",
                        "┃  say the queued",
                        "     the queued",
                        "┃  say the other queued",
                        "     the other queued",
                    )
            async with attached(served, tmp_path / "home3", "-s", session_id) as again:
                screen = await again.until("     three", "     the other queued")
                in_order(screen, "┃  say the queued", "     the queued", "┃  say the other queued")


async def test_a_revoked_message_leaves_the_screen(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        session_id = await served.session()
        await served.post(session_id, "say hello")
        async with attached(served, tmp_path / "home", "-s", session_id) as terminal:
            await terminal.until("     hello")
            await terminal.enter("stream 100000 20")
            await terminal.until("chunk 3 chunk 4", "esc interrupt")
            await terminal.enter("say never mind")
            await terminal.until("┃  say never mind", "QUEUED")
            (*_, pending) = (await served.http.get(f"/session/{session_id}/message")).json()
            revoked = await served.http.delete(f"/session/{session_id}/message/{pending['info']['id']}")
            assert revoked.status_code == 200, revoked.text
            await terminal.until("esc interrupt", gone="say never mind")
            await terminal.enter("say instead")
            await terminal.until("┃  say instead", "QUEUED")
            await terminal.keys("Escape")
            await terminal.until("again to interrupt")
            await terminal.keys("Escape")
            await terminal.until("interrupted", gone="esc interrupt")
            await terminal.enter("say go on")
            screen = await terminal.until("     go on", "     instead")
            assert "never mind" not in screen
