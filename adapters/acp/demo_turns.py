"""The commands of the demo agent's scripts; ``demo.HELP`` tells them. Standard library and msgspec only."""

import os
import time
from typing import Any

from adapters.acp.demo_machine import Machine
from adapters.acp.demo_sessions import Cancelled, Session, Turn
from adapters.acp.demo_state import expand

Json = dict[str, Any]
COMMANDS = (
    "say think stream flood big replace plan sleep tool ask terminal form child background wake late noise fail refuse "
    "crash hang"
).split()
OPTIONS = [
    {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]
NOISE = (
    b'plain words on stdout\n\x1b[31mred\x1b[0m\n42\n"text"\nnull\n[1,2,3]\n'
    b'[{"jsonrpc":"2.0","method":"x"}]\n{"id":3}\n{}\n\xff\xfe\x00bad\n{"jsonrpc":"2.0","met\n\n'
)


class Agent(Machine):
    """``do_X(session, turn, rest)`` is the command X."""

    def do_say(self, session: Session, turn: Turn, rest: str) -> None:
        self.text(session, turn, rest)

    def do_think(self, session: Session, turn: Turn, rest: str) -> None:
        self.text(session, turn, rest, "thought")

    def do_late(self, session: Session, turn: Turn, rest: str) -> None:
        turn.late.append(rest)

    def do_stream(self, session: Session, turn: Turn, rest: str) -> None:
        count, _, ms = rest.partition(" ")
        for i in range(int(count)):
            if i:
                self.pause(session, turn, int(ms or 0) / 1000, True)
            self.text(session, turn, f"chunk {i} ")

    def do_flood(self, session: Session, turn: Turn, rest: str) -> None:
        self.flood(session, turn, int(rest))

    def do_big(self, session: Session, turn: Turn, rest: str) -> None:
        update = {**self.open(turn, "message"), "big": int(rest)}
        session.history.add(update)
        for big in expand(update):
            self.update(session.id, big)

    def do_replace(self, session: Session, turn: Turn, rest: str) -> None:
        first, _, then = rest.partition("|")
        turn.role = ""  # a message of its own
        self.text(session, turn, first)
        self.replaced(session, turn, then)

    def replaced(self, session: Session, turn: Turn, text: str) -> None:
        """v1 cannot take back what it said: it says the rest."""
        self.text(session, turn, text)

    def do_terminal(self, session: Session, turn: Turn, rest: str) -> None:
        ms, _, lines = rest.partition(" ")
        self.terminal(session, turn, int(ms) / 1000, lines.split("|"))

    def terminal(self, session: Session, turn: Turn, pause: float, lines: list[str]) -> None:
        """v1 has no terminal of the agent's own: a tool call with the output."""
        call = self.called(session, turn, "terminal", "completed")
        self.told(session, {**call, "content": tool_text("\n".join(lines))})

    def called(self, session: Session, turn: Turn, title: str, status: str) -> Json:
        """The head of an update of a new tool call."""
        turn.role = ""
        head = {"title": title, "kind": "execute", "rawInput": {"command": title}, "status": status}
        return {"sessionUpdate": "tool_call", "toolCallId": f"call_{self.mint.message()[4:]}", **head}

    def do_background(self, session: Session, turn: Turn, rest: str) -> None:
        self.do_child(session, turn, rest.partition(" ")[0])

    def do_wake(self, session: Session, turn: Turn, rest: str) -> None:
        turn.late.append(rest.partition(" ")[2])

    def do_fail(self, session: Session, turn: Turn, rest: str) -> None:
        turn.stop, turn.failure = "error", rest or "it failed"

    def do_plan(self, session: Session, turn: Turn, rest: str) -> None:
        entries = [{"content": e.strip(), "priority": "medium", "status": "pending"} for e in rest.split("|")]
        self.told(session, {"sessionUpdate": "plan", "entries": entries})

    def do_sleep(self, session: Session, turn: Turn, rest: str) -> None:
        self.pause(session, turn, int(rest) / 1000, True)

    def do_tool(self, session: Session, turn: Turn, rest: str) -> None:
        title, _, ms = rest.rpartition(" ")
        if not (title and ms.isdigit()):
            title, ms = rest, "0"
        self.tool(session, turn, title, int(ms), session.history.meta["mode"] == "ask")

    def do_ask(self, session: Session, turn: Turn, rest: str) -> None:
        self.tool(session, turn, rest, 0, True)

    def tool(self, session: Session, turn: Turn, title: str, ms: int, ask: bool) -> None:
        session.calls += 1
        call = {"toolCallId": f"call_{self.mint.message()[4:]}"}
        turn.role = ""
        head = {"title": title, "kind": "execute", "rawInput": {"command": title}}
        self.told(session, {"sessionUpdate": "tool_call", **call, **head, "status": "pending"})
        result: Json = {"sessionUpdate": "tool_call_update", **call, "status": "failed"}
        try:
            if ask and title not in session.allowed:
                params = {"sessionId": session.id, "toolCall": {**call, **head, "status": "pending"}}
                answer = self.ask(turn, "session/request_permission", {**params, "options": OPTIONS})
                outcome = (answer or {}).get("outcome") or {}
                if outcome.get("outcome") == "cancelled":
                    raise Cancelled
                if outcome.get("optionId") == "always":
                    session.allowed.add(title)
                elif outcome.get("optionId") != "once":
                    self.told(session, {**result, "content": tool_text("The user rejected this tool call.")})
                    return
            self.told(session, {"sessionUpdate": "tool_call_update", **call, "status": "in_progress"})
            if ms:
                self.pause(session, turn, ms / 1000, False)
        except Cancelled:
            self.told(session, {**result, "content": tool_text("Cancelled")})
            raise
        done = f"{title}: done"
        self.told(session, {**result, "status": "completed", "content": tool_text(done), "rawOutput": {"output": done}})

    def do_form(self, session: Session, turn: Turn, rest: str) -> None:
        if (self.client.get("elicitation") or {}).get("form") is None:
            self.text(session, turn, "The client shows no forms.")
            return
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
        params = {"sessionId": session.id, "mode": "form", "message": rest, "requestedSchema": schema}
        answer = self.ask(turn, "elicitation/create", params) or {}
        self.text(
            session, turn, f"Form: {answer.get('action')} {(answer.get('content') or {}).get('answer', '')}".rstrip()
        )

    def do_child(self, session: Session, turn: Turn, rest: str) -> None:
        if self.client.get("subagents") is None:
            return self.tool(session, turn, f"child {rest}", 0, False)
        turn.role = ""
        child = f"{session.id}_{self.mint.message()[-6:]}"
        task, seen, reply, back = (self.mint.message() for _ in range(4))
        down = {"senderSessionId": session.id, "recipientSessionId": child, "content": block(f"Task for {rest}")}
        up = {"senderSessionId": child, "recipientSessionId": session.id, "content": block(f"Reply of {rest}")}
        note = {"sessionUpdate": "session_message"}
        state = {"sessionUpdate": "subagent_update", "sessionId": child}
        running = {**state, "title": rest, "description": "demo child", "capabilities": {"cancel": {}}}
        self.told(session, {**running, "state": {"state": "running"}})
        self.told(session, {**note, "messageId": task, "recipientMessageId": seen, **down})
        self.update(child, {**note, "messageId": seen, "senderMessageId": task, **down})
        text = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": f"{rest} at work"}}
        self.update(child, {**text, "messageId": self.mint.message()} if self.ids else text)
        self.update(child, {**note, "messageId": reply, "recipientMessageId": back, **up})
        self.told(session, {**note, "messageId": back, "senderMessageId": reply, **up})
        self.told(session, {**state, "state": {"state": "idle", "stopReason": "end_turn"}})

    def do_noise(self, session: Session, turn: Turn, rest: str) -> None:
        self.write(NOISE, flush=True)

    def do_refuse(self, session: Session, turn: Turn, rest: str) -> None:
        turn.stop = "refusal"

    def do_crash(self, session: Session, turn: Turn, rest: str) -> None:
        self.flush()
        os.write(2, b"demo agent: crashed as told\n")
        os._exit(1)

    def do_hang(self, session: Session, turn: Turn, rest: str) -> None:
        import subprocess  # slow to import, and only this needs it

        self.hanging = True  # not even the end of stdin ends it
        self.flush()
        subprocess.Popen(["sleep", "100000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).wait()
        while True:
            time.sleep(1000)


def block(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


def tool_text(text: str) -> list[Json]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]
