"""A scripted ACP v1 agent on stdio: to any prompt it calls the tools that OpenCode's clients draw specially, in the
words of Claude's agent. Run as a program; standard library only.
"""

import json
import sys
from typing import Any


def text(value: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": value}}


def diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def calls(cwd: str) -> list[list[dict[str, Any]]]:
    """One list of updates a tool call; the first announces it."""
    edited = f"{cwd}/edited.py"
    task = {"description": "look around", "prompt": "Look around here", "subagent_type": "explorer"}
    return [
        [
            {"name": "Bash", "kind": "execute", "title": "Terminal", "rawInput": {}, "status": "pending"},
            {
                "title": "make all",
                "rawInput": {"command": "make all", "description": "Builds"},
                "status": "in_progress",
            },
            {"content": [text("compiled one")]},
            {"content": [text("compiled one\ncompiled two")], "status": "completed", "rawOutput": {"exitCode": 0}},
        ],
        [
            {"name": "Read", "kind": "read", "title": "Read seen.md", "rawInput": {"file_path": f"{cwd}/seen.md"}},
            {"content": [text("# seen")], "status": "completed"},
        ],
        [
            {
                "name": "Edit",
                "kind": "edit",
                "title": "Edit",
                "rawInput": {"file_path": edited, "old_string": "old line", "new_string": "new line"},
            },
            {"content": [diff(edited, "above\nold line\nbelow\n", "above\nnew line\nbelow\n")], "status": "completed"},
        ],
        [
            {
                "name": "Write",
                "kind": "edit",
                "title": "Write",
                "rawInput": {"file_path": f"{cwd}/made.txt", "content": "made content"},
            },
            {"content": [diff(f"{cwd}/made.txt", None, "made content")], "status": "completed"},
        ],
        [
            {"name": "Grep", "kind": "search", "title": "grep", "rawInput": {"pattern": "needle", "path": cwd}},
            {"status": "completed", "content": [text("haystack:1: needle")]},
        ],
        [
            {"name": "WebFetch", "kind": "fetch", "title": "Fetch", "rawInput": {"url": "https://example.org/page"}},
            {"status": "completed", "content": [text("a page")]},
        ],
        [
            {"name": "Task", "kind": "think", "title": "look around", "rawInput": task},
            {"status": "completed", "content": [text("looked around")]},
        ],
    ]


def main() -> None:
    sessions: dict[str, str] = {}

    def send(message: dict[str, Any]) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        params, result = message.get("params") or {}, {}
        match message.get("method"):
            case "initialize":
                result = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
            case "session/new":
                session_id = f"tools_{len(sessions)}"
                sessions[session_id] = params["cwd"]
                result = {"sessionId": session_id}
            case "session/prompt":
                session_id = params["sessionId"]
                for number, updates in enumerate(calls(sessions[session_id])):
                    for index, update in enumerate(updates):
                        kind = "tool_call_update" if index else "tool_call"
                        head = {"sessionUpdate": kind, "toolCallId": f"call_{number}"}
                        send(
                            {
                                "method": "session/update",
                                "params": {"sessionId": session_id, "update": {**head, **update}},
                            }
                        )
                said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "all tools called"}}
                send({"method": "session/update", "params": {"sessionId": session_id, "update": said}})
                result = {"stopReason": "end_turn"}
        if "id" in message and "method" in message:
            send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
