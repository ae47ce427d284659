"""The demo agent, whose subagents (``child NAME``) ask for permission before they work."""

import sys
from typing import Any

from adapters.acp import demo
from adapters.acp.demo_turns import OPTIONS, Agent, tool_text


class Asking(Agent):
    def do_child(self, session: Any, turn: Any, rest: str) -> None:
        child = f"{session.id}_{self.mint.message()[-6:]}"
        state = {"sessionUpdate": "subagent_update", "sessionId": child}
        self.told(session, {**state, "title": rest, "description": "demo child", "state": {"state": "running"}})
        call = {"toolCallId": f"call_{self.mint.message()[4:]}"}
        head = {**call, "title": f"Work of {rest}", "kind": "execute", "rawInput": {"command": f"work {rest}"}}
        self.update(child, {"sessionUpdate": "tool_call", **head, "status": "pending"})
        params = {"sessionId": child, "toolCall": {**head, "status": "pending"}, "options": OPTIONS}
        answer = self.ask(turn, "session/request_permission", params)
        allowed = ((answer or {}).get("outcome") or {}).get("optionId") == "once"
        result = {"status": "completed" if allowed else "failed", "content": tool_text("allowed" if allowed else "no")}
        self.update(child, {"sessionUpdate": "tool_call_update", **call, **result})
        self.told(session, {**state, "state": {"state": "idle", "stopReason": "end_turn"}})


if __name__ == "__main__":
    demo.Agent = Asking  # type: ignore[misc]
    sys.exit(demo.main(sys.argv[1:]))
