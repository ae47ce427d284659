"""Tool calls as OpenCode's clients draw them: from the words of the agents that there are, and in the real terminal."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.opencode.translate_tools import named, tool_part
from gateway.core.ids import PartId, StepId, TurnId
from gateway.core.inputs import AgentTool
from gateway.core.model import ToolCall
from tests.fake_port import Farm
from tests.opencode.support import gateway
from tests.opencode.terminal import OPENCODE, Terminal, environment
from tests.opencode.test_stream import end, settled
from tests.opencode.test_translate import schema
from tests.served import serve

AT = [{"path": "/w/a.py"}]
DIFF = [{"type": "diff", "path": "/w/a.py", "oldText": "a\n", "newText": "b\n"}]
TWO = [*DIFF, {"type": "diff", "path": "/w/b.py", "oldText": None, "newText": "n\n"}]
TODOS = [{"content": "x", "status": "pending", "priority": "high"}]

# kind, name, title, raw input, content, locations → tool, what the input must have
SHAPES: list[tuple[str, str, str, Any, Any, Any, str, dict[str, Any]]] = [
    # Claude's
    ("execute", "Bash", "Terminal", {}, None, None, "bash", {}),
    ("execute", "Bash", "ls", {"command": "ls", "description": "Lists"}, None, None, "bash", {"command": "ls"}),
    (
        "read",
        "Read",
        "Read a.py",
        {"file_path": "/w/a.py", "limit": 3},
        None,
        AT,
        "read",
        {"filePath": "/w/a.py", "limit": 3},
    ),
    (
        "edit",
        "Edit",
        "Edit a.py",
        {"file_path": "/w/a.py", "old_string": "a", "new_string": "b", "replace_all": True},
        DIFF,
        AT,
        "edit",
        {"filePath": "/w/a.py", "oldString": "a", "newString": "b", "replaceAll": True},
    ),
    (
        "edit",
        "Write",
        "Write",
        {"file_path": "/w/n", "content": "n"},
        DIFF,
        None,
        "write",
        {"filePath": "/w/n", "content": "n"},
    ),
    ("search", "Grep", "grep", {"pattern": "x", "path": "/w"}, None, None, "grep", {"pattern": "x", "path": "/w"}),
    ("search", "Glob", "Find", {"pattern": "*.py"}, None, None, "glob", {"pattern": "*.py"}),
    ("search", "LS", "List", {"path": "/w"}, None, None, "list", {"path": "/w"}),
    ("fetch", "WebFetch", "Fetch", {"url": "http://x", "prompt": "p"}, None, None, "webfetch", {"url": "http://x"}),
    ("fetch", "WebSearch", "Search", {"query": "q"}, None, None, "websearch", {"query": "q"}),
    (
        "think",
        "Task",
        "job",
        {"description": "job", "prompt": "do", "subagent_type": "explore"},
        None,
        None,
        "task",
        {"description": "job", "prompt": "do", "subagent_type": "explore"},
    ),
    ("think", "Agent", "job", {"description": "job", "prompt": "do"}, None, None, "task", {"subagent_type": "general"}),
    ("think", "TodoWrite", "Todos", {"todos": TODOS}, None, None, "todowrite", {"todos": TODOS}),
    ("other", "Skill", "pdf", {"skill": "pdf"}, None, None, "skill", {"name": "pdf"}),
    ("other", "mcp__db__query", "Query", {"command": "select"}, None, None, "mcp__db__query", {"command": "select"}),
    # Codex's
    (
        "execute",
        "",
        "echo hi",
        {"command": "/bin/bash -lc 'echo hi'", "cwd": "/w"},
        None,
        None,
        "bash",
        {"command": "echo hi", "workdir": "/w"},
    ),
    ("execute", "", "ls", {"command": ["bash", "-lc", "ls | wc"]}, None, None, "bash", {"command": "ls | wc"}),
    ("execute", "", "ls", {"cmd": ["ls", "-l"]}, None, None, "bash", {"command": "ls -l"}),
    ("edit", "", "Edit files", {"changes": {}}, TWO, None, "apply_patch", {}),
    ("edit", "", "Edit /w/a.py", {"changes": {}}, DIFF, None, "edit", {"filePath": "/w/a.py"}),
    ("think", "", "Guardian Review", {"reviewId": "x"}, None, None, "Guardian Review", {"reviewId": "x"}),
    # OpenCode's own
    ("execute", "", "bash", {"cwd": "/w"}, None, None, "bash", {}),
    ("execute", "", "make", {"command": "make", "cwd": "/w"}, None, AT, "bash", {"command": "make", "workdir": "/w"}),
    ("edit", "", "write", {}, None, [], "write", {}),
    ("edit", "", "w/out.txt", {"filePath": "/w/o", "content": "h"}, None, AT, "write", {"filePath": "/w/o"}),
    ("search", "", "src/**", {"pattern": "src/**"}, None, None, "glob", {"pattern": "src/**"}),
    ("search", "", "a.*b", {"pattern": "a.*b", "include": "*.py"}, None, None, "grep", {"pattern": "a.*b"}),
    # Gemini's: no input
    ("execute", "", "ls -l", None, None, None, "bash", {"command": "ls -l"}),
    ("read", "", "a.py", None, None, AT, "read", {"filePath": "/w/a.py"}),
    ("edit", "", "a.py: a => b", None, DIFF, AT, "edit", {"filePath": "/w/a.py"}),
    ("search", "", "'x' within ./", None, None, None, "'x' within ./", {}),
    # what cannot be drawn specially, or is odd
    ("read", "", "Something", {"what": 1}, None, None, "Something", {"what": 1}),
    ("execute", "", "Odd", {"command": [1, 2]}, None, None, "Odd", {}),
    ("fetch", "", "Odd", {"url": 5}, None, [7], "Odd", {}),
    ("edit", "", "Odd", ["a list"], "no list", "no list", "Odd", {"input": ["a list"]}),
    ("", "", "", None, None, None, "tool", {}),
]


@pytest.mark.parametrize(("kind", "name", "title", "raw", "content", "at", "tool", "has"), SHAPES)
def test_the_words_of_the_agents(
    kind: str, name: str, title: str, raw: Any, content: Any, at: Any, tool: str, has: dict[str, Any]
) -> None:
    drawn, given = named(kind, name, title, raw, content, at)
    assert drawn == tool and given.items() >= has.items(), (drawn, given)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("bash -c 'it'\\''s'", "it's"),
        ('/bin/zsh -lc "make all"', "make all"),
        ('bash -lc "echo $HOME"', 'bash -lc "echo $HOME"'),  # not ours to unfold
        ("bash -lc make", "make"),
        ("bash -lc 'a' 'b'", "bash -lc 'a' 'b'"),
        ("bash script.sh", "bash script.sh"),
    ],
)
def test_a_shells_own_words_are_left_out(line: str, command: str) -> None:
    assert named("execute", "", "t", {"command": line}, None, None)[1]["command"] == command


def call(**fields: Any) -> ToolCall:
    return ToolCall("c", PartId("prt_1"), StepId("msg_1"), TurnId("t"), 1, **fields)


def state(**fields: Any) -> dict[str, Any]:
    part = json.loads(msgspec.json.encode(tool_part(call(**fields), "ses_1")))
    schema("Part").validate(part)
    found: dict[str, Any] = part["state"]
    return found


def told(text: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


BASH = {"kind": "execute", "input": {"command": "make", "description": "Builds"}}


def test_the_output_of_a_command_grows_and_ends_with_its_code() -> None:
    running = state(**BASH, status="in_progress", content=told("Builds"))  # Claude's first word is no output
    assert running["metadata"]["output"] == ""
    assert state(**BASH, status="in_progress", content=told("one"))["metadata"] == {"output": "one"}
    for output in ({"exitCode": 2}, {"exit_code": 2}, {"output": "x", "metadata": {"exit": 2}}):
        done = state(**BASH, status="completed", content=told("```console\none\n```"), output=output)
        assert done["metadata"] == {"output": "one", "exit": 2} and done["output"] == "one"
    codex = state(**BASH, status="failed", output="boom", meta={"terminal_exit": {"exit_code": 1}})
    assert codex["error"] == "boom" and codex["metadata"]["exit"] == 1
    assert "exit" not in state(**BASH, status="failed", meta={"terminal_exit": {"exit_code": None}})["metadata"]


def test_an_edit_has_its_diff_in_both_forms() -> None:
    found = state(kind="edit", status="completed", input={"file_path": "/w/a.py"}, content=DIFF)["metadata"]
    patch = "--- /w/a.py\n+++ /w/a.py\n@@ -1 +1 @@\n-a\n+b\n"
    assert found["diff"] == patch and found["filediff"]["patch"] == patch
    assert found["filediff"]["file"] == "/w/a.py" and found["filediff"]["additions"] == 1
    several = state(kind="edit", status="completed", input={}, content=TWO)["metadata"]
    assert [(f["type"], f["filePath"], f["additions"], f["deletions"]) for f in several["files"]] == [
        ("update", "/w/a.py", 1, 1),
        ("add", "/w/b.py", 1, 0),
    ]
    huge = [{"type": "diff", "path": "/w/a", "oldText": "x\n" * 200_000, "newText": "y\n"}]
    assert "diff" not in state(kind="edit", status="completed", input={"path": "/w/a"}, content=huge)["metadata"]


def test_a_file_without_a_newline_at_its_end() -> None:
    content = [{"type": "diff", "path": "/w/a", "oldText": "a", "newText": "b"}]
    patch = state(kind="edit", status="completed", input={"path": "/w/a"}, content=content)["metadata"]["diff"]
    assert patch.endswith("-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n")


def test_what_else_clients_look_for() -> None:
    done: dict[str, Any] = {"status": "completed"}
    write = state(kind="edit", input={"file_path": "/w/n", "content": "n"}, **done)["metadata"]
    assert write["diagnostics"] == {} and write["filepath"] == "/w/n"
    assert "diagnostics" not in state(
        kind="edit", input={"file_path": "/w/n", "content": "n"}, status="in_progress"
    ).get("metadata", {})
    todo = state(kind="think", name="TodoWrite", input={"todos": TODOS}, **done)["metadata"]
    assert todo["todos"] == TODOS
    grep = state(kind="search", input={"pattern": "x"}, output={"output": "", "metadata": {"matches": 3}}, **done)
    assert grep["metadata"]["matches"] == 3
    glob = state(kind="search", input={"pattern": "x"}, output={"output": "", "metadata": {"count": 2}}, **done)
    assert glob["metadata"]["count"] == 2


async def test_a_call_keeps_its_part_while_it_changes(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await one.queue(sid, "x")
        await settled(one)
        stream = one.read()
        await stream.now()
        head: dict[str, Any] = {"call_id": "1", "kind": "execute", "name": "Bash"}
        farm.port.tell(AgentTool(**head, new=True, title="Terminal", input={}))
        farm.port.tell(AgentTool(**head, title="make", input={"command": "make"}, status="in_progress"))
        for output in ("one", "one\ntwo"):
            farm.port.tell(AgentTool(**head, content=told(output)))
        farm.port.tell(AgentTool(**head, status="completed", output={"exitCode": 0}))
        await settled(one)
        parts = [e["properties"]["part"] for e in await stream.now() if e["type"] == "message.part.updated"]
        parts = [part for part in parts if part["type"] == "tool"]
        assert len({part["id"] for part in parts}) == 1 and {part["tool"] for part in parts} == {"bash"}
        assert [part["state"]["status"] for part in parts] == ["pending", "running", "running", "running", "completed"]
        assert [p["state"].get("metadata", {}).get("output") for p in parts] == [
            None,
            "",
            "one",
            "one\ntwo",
            "one\ntwo",
        ]
        await stream.close()


async def test_a_message_to_a_subagent_is_a_task_with_its_child_session(tmp_path: Path) -> None:
    """The demo agent's ``child`` works as Claude's agent does where subagents are sessions."""
    async with serve(tmp_path) as served:
        sid = await served.session()
        async with served.events() as frames:
            await served.post(sid, "child scout")
            await frames.until("session.idle", sessionID=sid)
        (child,) = (await served.http.get(f"/session/{sid}/children")).json()
        listed = (await served.http.get(f"/session/{sid}/message")).json()
        (task,) = [part for message in listed for part in message["parts"] if part["type"] == "tool"]
        schema("Part").validate(task)
        assert task["tool"] == "task" and task["state"]["status"] == "completed"
        assert task["state"]["metadata"]["sessionId"] == child["id"]
        assert task["state"]["input"] == {
            "description": "scout",
            "prompt": "Task for scout",
            "subagent_type": "demo child",
        }
        told = [event["properties"]["part"] for _, event in frames.seen if event["type"] == "message.part.updated"]
        states = [part["state"]["status"] for part in told if part["id"] == task["id"]]
        assert states[-1] == "completed" and set(states) <= {"running", "completed"}
        # the answer comes back as a text, and the child's own list has the task as a text
        texts = [part.get("text") for message in listed for part in message["parts"] if part["type"] == "text"]
        assert "Reply of scout" in texts
        inside = (await served.http.get(f"/session/{child['id']}/message")).json()
        assert [p["text"] for m in inside for p in m["parts"] if p["type"] == "text"][:1] == ["Task for scout"]


async def test_the_files_of_a_session_are_told_when_a_turn_ends(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        stream = one.read()
        await stream.now()
        for number, kind in enumerate(("edit", "read")):
            await one.queue(sid, "x")
            await settled(one)
            content = DIFF if kind == "edit" else None
            farm.port.tell(AgentTool(call_id=str(number), new=True, kind=kind, status="completed", content=content))
            end(farm)
            await settled(one)
        (told,) = [event for event in await stream.now() if event["type"] == "session.diff"]  # the second changed none
        (file,) = told["properties"]["diff"]
        schema("SnapshotFileDiff").validate(file)
        assert (file["file"], file["additions"], file["deletions"]) == ("/w/a.py", 1, 1)
        await stream.close()


@pytest.mark.usefixtures("npm_clients")
async def test_the_terminal_client_draws_them(tmp_path: Path) -> None:
    assert shutil.which("tmux"), "tmux is not installed"
    agent = f"tools={sys.executable} {Path(__file__).with_name('tool_agent.py')}"
    async with serve(tmp_path, "--agent", agent) as served:
        terminal = Terminal(served.workspace, environment(tmp_path / "home"))
        await terminal.start(str(OPENCODE), "attach", served.url)
        try:
            await terminal.until("Ask anything")
            await terminal.tmux("resize-window", "-x", "110", "-y", "90")
            await terminal.enter("go")
            screen = await terminal.until("all tools called")
            for shown in (
                "$ make all",
                "compiled two",
                "→ Read seen.md",
                "← Edit edited.py",
                "- old line",
                "+ new line",
                "# Wrote made.txt",
                "made content",
                '✱ Grep "needle"',
                "% WebFetch https://example.org/page",
                "Explorer Task — look around",
            ):
                assert shown in screen, f"{shown!r} is not in\n{screen}"
        finally:
            await terminal.close()
