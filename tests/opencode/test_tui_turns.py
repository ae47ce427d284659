"""``opencode attach``, the real terminal client, in tmux: prompts, permissions, questions, what waits, abort."""

import sys
from pathlib import Path

import pytest

from tests.opencode.terminal import attached
from tests.served import serve

pytestmark = pytest.mark.usefixtures("npm_clients")


async def test_prompt_queue_and_abort(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, attached(served, tmp_path / "home") as terminal:
        await terminal.until("Ask anything")
        await terminal.enter("say hello terminal")
        await terminal.until("┃  say hello terminal", "     hello terminal")

        await terminal.enter("stream 100000 20")
        await terminal.until("chunk 3 chunk 4", "esc interrupt")
        await terminal.enter("say queued words")
        await terminal.until("QUEUED")
        await terminal.keys("Escape")
        await terminal.until("again to interrupt")
        await terminal.keys("Escape")
        await terminal.until("interrupted", gone="esc interrupt")

        (session,) = (await served.http.get("/session")).json()
        assert (await served.http.get("/session/status")).json() == {}
        messages = (await served.http.get(f"/session/{session['id']}/message")).json()
        assert messages[-1]["info"]["role"] == "user"  # held, not lost
        assert messages[-2]["info"]["error"]["name"] == "MessageAbortedError"
        assert [m["parts"][0]["text"] for m in messages if m["info"]["role"] == "user"] == [
            "say hello terminal",
            "stream 100000 20",
            "say queued words",
        ]

        # the next prompt goes first, then what was held; each is shown once
        await terminal.enter("say next words")
        screen = await terminal.until("     next words", "     queued words")
        assert screen.count("┃  say queued words") == 1 and screen.count("┃  say next words") == 1


async def test_permissions_and_a_question(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, attached(served, tmp_path / "home") as terminal:
        await terminal.until("Ask anything")
        await terminal.enter("ask Deploy")
        await terminal.until("Permission required", "Allow once", "$ Deploy")
        await terminal.keys("Enter")
        await terminal.until("Deploy: done", gone="Permission required")

        # always: the agent is told so, and does not ask again
        await terminal.enter("ask Build")
        await terminal.until("Permission required", "$ Build")
        await terminal.keys("Right", "Enter")
        await terminal.until("Always allow", "Confirm")
        await terminal.keys("Enter")
        await terminal.until("Build: done", gone="Always allow")
        await terminal.enter("ask Remove")
        await terminal.until("Permission required", "$ Remove")
        await terminal.keys("Left", "Enter")
        await terminal.until("The user rejected this tool call.", gone="Permission required")
        (session,) = (await served.http.get("/session")).json()
        assert (await served.post(session["id"], "ask Build\nsay not asked")).status_code == 200
        await terminal.until("     not asked")
        messages = (await served.http.get(f"/session/{session['id']}/message")).json()
        tools = [part["state"] for message in messages for part in message["parts"] if part["type"] == "tool"]
        assert [state["status"] for state in tools] == ["completed", "completed", "error", "completed"]

        await terminal.enter("form Which name?")
        await terminal.until("1. Type your own answer")
        await terminal.keys("Enter")
        await terminal.until("┃     Type your own answer")  # the field is open
        await terminal.enter("Ada")
        await terminal.until("     Form: accept Ada", gone="Type your own answer")
        await terminal.enter("form Which place?")
        await terminal.until("1. Type your own answer", "esc dismiss")
        await terminal.keys("Escape")
        await terminal.until("     Form: decline", gone="Type your own answer")


async def test_a_subagent_is_refused_with_a_word(tmp_path: Path) -> None:
    """The client asks for the word where a subagent asks; it reaches the agent as a steer."""
    agent = f"demo={sys.executable} -m tests.opencode.child_agent --steer"
    async with serve(tmp_path, "--agent", agent) as served, attached(served, tmp_path / "home") as terminal:
        await terminal.until("Ask anything")
        await terminal.enter("child builder")
        await terminal.until("Permission required", "work builder")
        await terminal.keys("Left", "Enter")
        await terminal.until("Reject permission")
        await terminal.enter("say use the other one")
        await terminal.until("     use the other one", gone="Reject permission")
        session = next(s for s in (await served.http.get("/session")).json() if "parentID" not in s)
        told = await served.told(session["id"])
        assert told[-2:] == ["user: say use the other one", "assistant: use the other one"]
        [child] = (await served.http.get(f"/session/{session['id']}/children")).json()
        tools = [p for m in (await served.http.get(f"/session/{child['id']}/message")).json() for p in m["parts"]]
        assert [p["state"]["status"] for p in tools if p["type"] == "tool"] == ["error"]
