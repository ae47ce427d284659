"""``opencode attach`` and what it finds: a session to go on with, a password, lists to choose from, a lost server."""

import socket
from pathlib import Path

import pytest

from tests.opencode.terminal import OPENCODE, attached, cut_proxy, environment, run
from tests.served import Served, serve

pytestmark = pytest.mark.usefixtures("npm_clients")
TOKEN = "a-token-of-more-than-16-letters"


async def told(served: Served, *prompts: str) -> str:
    """A session in which these were said."""
    session_id = await served.session()
    for prompt in prompts:
        assert (await served.post(session_id, prompt)).status_code == 200
    return session_id


async def test_continue_a_session_and_choose_another(tmp_path: Path) -> None:
    """``-s`` opens that one, ``--continue`` the newest, the list any."""
    async with serve(tmp_path) as served:
        first = await told(served, "say the older words")
        second = await told(served, "say the newer words")
        async with attached(served, tmp_path / "home", "-s", first) as terminal:
            await terminal.until("┃  say the older words", "     the older words")
        async with attached(served, tmp_path / "home", "--continue") as terminal:
            await terminal.until("┃  say the newer words", "     the newer words")
            await terminal.keys("C-x", "l")
            await terminal.until("Sessions", "say the older words", "● say the newer words")
            await terminal.keys("Down")
            await terminal.keys("Enter")
            await terminal.until("┃  say the older words", "     the older words", gone="the newer words")
            await terminal.enter("say more")
            await terminal.until("     more")
        assert (await served.told(first))[-2:] == ["user: say more", "assistant: more"]
        assert len(await served.told(second)) == 2


async def test_the_token_is_the_password(tmp_path: Path) -> None:
    async with serve(tmp_path, TRUNKLINE_TOKEN=TOKEN) as served:
        served.http.headers["authorization"] = f"Bearer {TOKEN}"
        session_id = await told(served, "say behind a password")
        env = {"OPENCODE_SERVER_PASSWORD": TOKEN}
        async with attached(served, tmp_path / "home", "-s", session_id, **env) as terminal:
            await terminal.until("     behind a password")
            await terminal.enter("say and more")
            await terminal.until("     and more")
        wrong = environment(tmp_path / "home") | {"OPENCODE_SERVER_PASSWORD": "wrong"}
        command = (str(OPENCODE), "run", "--attach", served.url, "say nothing")
        code, out, err = await run(*command, cwd=served.workspace, env=wrong)
        assert code != 0 and "nothing" not in out, err
        assert len((await served.http.get("/session")).json()) == 1


async def test_choosing_a_model_and_a_mode(tmp_path: Path) -> None:
    """What is chosen in the client's dialogs, the agent is switched to."""
    async with serve(tmp_path) as served:
        session_id = await told(served, "say hello")  # the agent has said what it has
        async with attached(served, tmp_path / "home", "-s", session_id) as terminal:
            await terminal.until("     hello", "Code · Demo Quick demo")
            await terminal.keys("C-x", "m")
            await terminal.until("Select model", "Demo Careful", "● Demo Quick")
            await terminal.keys("-l", "Careful")
            await terminal.until("Select model", gone="Demo Quick\n")
            await terminal.keys("Enter")
            await terminal.until("Code · Demo Careful demo", gone="Select model")
            await terminal.keys("Tab")
            await terminal.until("Ask · Demo Careful demo")
            await terminal.enter("tool Deploy")  # in its mode "ask" the agent asks before a tool
            await terminal.until("Permission required", "$ Deploy")
            await terminal.keys("Enter")
            await terminal.until("Deploy: done", gone="Permission required")
            await terminal.keys("C-x", "a")
            await terminal.until("Select agent", "● ask")
            await terminal.keys("-l", "code")
            await terminal.until("Select agent", gone="● ask")
            await terminal.keys("Enter")
            await terminal.until("Code · Demo Careful demo", gone="Select agent")
            await terminal.enter("tool Build")
            await terminal.until("Build: done")
        messages = (await served.http.get(f"/session/{session_id}/message")).json()
        made = [(m["info"]["modelID"], m["info"]["mode"]) for m in messages if m["info"]["role"] == "assistant"]
        assert made == [("quick", "code"), ("careful", "ask"), ("careful", "code")]


async def test_a_pending_permission_is_shown_to_a_terminal_that_attaches(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        session_id = await served.session()
        async with served.events() as frames:
            await served.send(session_id, "ask Deploy")
            await frames.until("permission.asked", sessionID=session_id)
        async with attached(served, tmp_path / "home", "-s", session_id) as terminal:
            await terminal.until("Permission required", "$ Deploy")
            await terminal.keys("Enter")
            await terminal.until("Deploy: done", gone="Permission required")


async def test_a_terminal_that_lost_its_connection_shows_what_it_missed(tmp_path: Path) -> None:
    """It re-opens only its stream and fetches nothing: all of it comes again on the stream."""
    async with serve(tmp_path) as served, cut_proxy(served.url) as proxy:
        async with attached(served, tmp_path / "home", url=proxy.url) as terminal:
            await terminal.until("Ask anything")
            await terminal.enter("say before")
            await terminal.until("     before")
            (session,) = (await served.http.get("/session")).json()
            proxy.cut()
            await served.post(session["id"], "say while you were away")
            proxy.mend()
            screen = await terminal.until("     while you were away")
            assert screen.count("┃  say while you were away") == 1 and screen.count("┃  say before") == 1
            await terminal.enter("say after")
            await terminal.until("     after")


async def test_a_terminal_goes_on_after_a_restart_of_the_gateway(tmp_path: Path) -> None:
    """Killed in a turn, started again on the same port: the terminal shows how the turn ended and what came since."""
    async with serve(tmp_path, "--port", str(free_port())) as served:
        async with attached(served, tmp_path / "home") as terminal:
            await terminal.until("Ask anything")
            await terminal.enter("say before")
            await terminal.until("     before")
            await terminal.enter("stream 100000 20")
            await terminal.until("chunk 3 chunk 4", "esc interrupt")
            (session,) = (await served.http.get("/session")).json()
            await served.kill()
            await served.start()
            await served.post(session["id"], "say while you were away")
            screen = await terminal.until("     while you were away", gone="esc interrupt")
            for text in ("say before", "stream 100000 20", "say while you were away"):
                assert screen.count(f"┃  {text}") == 1, screen
            assert screen.index("chunk 3 chunk 4") < screen.index("┃  say while you were away")
            await terminal.enter("say after")
            await terminal.until("     after")
        assert [line.split("chunk")[0] for line in await served.told(session["id"])] == [
            "user: say before",
            "assistant: before",
            "user: stream 100000 20",
            "assistant: ",
            "user: say while you were away",
            "assistant: while you were away",
            "user: say after",
            "assistant: after",
        ]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
