"""How the demo agent runs its turns: sessions, the script's commands, output. See ``demo`` for the words.

Standard library and msgspec only. Threads, not asyncio: the main thread reads stdin, one worker a running session
executes its turns. ``Agent.cond`` guards the state, ``Agent.out_lock`` the output.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from adapters.acp.demo_state import FLOOD_TEXT, History, Ids, expand

Json = dict[str, Any]
COMMANDS = "say think stream flood big plan sleep tool ask form child late noise refuse crash hang".split()
MODES = [
    {"id": "code", "name": "Code", "description": "Runs tools at once"},
    {"id": "ask", "name": "Ask", "description": "Asks before every tool"},
]
MODELS = [{"value": "quick", "name": "Demo Quick"}, {"value": "careful", "name": "Demo Careful"}]
OPTIONS = [
    {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]
NOISE = (
    b'plain words on stdout\n\x1b[31mred\x1b[0m\n42\n"text"\nnull\n[1,2,3]\n'
    b'[{"jsonrpc":"2.0","method":"x"}]\n{"id":3}\n{}\n\xff\xfe\x00bad\n{"jsonrpc":"2.0","met\n\n'
)


class Cancelled(Exception):
    """The turn was cancelled: unwinds the command that runs."""


class Fault(Exception):
    """A JSON-RPC error answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


class Turn:
    def __init__(self, request: Any, prompt: list[Json], detached: bool = False) -> None:
        self.request = request
        self.prompt = prompt
        self.detached = detached  # started by a steer: nobody gets its result
        self.cancelled = False
        self.steers: deque[tuple[Any, list[Json]]] = deque()
        self.late: list[str] = []
        self.stop = "end_turn"
        self.role = ""  # of the message that is open
        self.message_id = ""
        self.words = 0


class Session:
    def __init__(self, session_id: str, history: History) -> None:
        self.id = session_id
        self.history = history
        self.turns: deque[Turn] = deque()
        self.running: Turn | None = None
        self.worker: threading.Thread | None = None
        self.allowed: set[str] = set()
        self.calls = 0
        self.used = 0

    def state(self) -> Json:
        """What session/new, load and resume answer beside the id."""
        meta = self.history.meta
        return {
            "modes": {"currentModeId": meta["mode"], "availableModes": MODES},
            "configOptions": self.options(),
        }

    def options(self) -> list[Json]:
        return [
            {
                "id": "model",
                "name": "Model",
                "category": "model",
                "type": "select",
                "currentValue": self.history.meta["model"],
                "options": MODELS,
            }
        ]


class Agent:
    """Everything that the threads share."""

    def __init__(self, flags: set[str]) -> None:
        self.ids = "--no-ids" not in flags
        self.steer = "--steer" in flags
        self.load = "--no-load" not in flags
        self.mute = "--mute" in flags
        self.client: Json = {}
        self.sessions: dict[str, Session] = {}
        self.mint = Ids()
        self.cond = threading.Condition()
        self.answers: dict[int, Any] = {}
        self.asked = 0
        self.hanging = False
        self.out_lock = threading.Lock()
        self.out = bytearray()
        self.encode = msgspec.json.Encoder().encode

    # --- output ----------------------------------------------------------------------------------------------------

    def write(self, data: bytes, flush: bool = False) -> None:
        """Append whole lines; they leave at a flush, or when there are many."""
        with self.out_lock:
            self.out += data
            if flush or len(self.out) > 65536:
                self._flush()

    def flush(self) -> None:
        with self.out_lock:
            self._flush()

    def _flush(self) -> None:
        view = memoryview(bytes(self.out))
        self.out.clear()
        while view:
            try:
                view = view[os.write(1, view) :]
            except BrokenPipeError:
                os._exit(0)

    def send(self, message: Json, flush: bool = False) -> None:
        self.write(self.encode({"jsonrpc": "2.0", **message}) + b"\n", flush)

    def update(self, session_id: str, update: Json) -> None:
        self.send({"method": "session/update", "params": {"sessionId": session_id, "update": update}})

    def told(self, session: Session, update: Json) -> None:
        """An update that a later load tells again."""
        session.history.add(update)
        self.update(session.id, update)

    # --- messages --------------------------------------------------------------------------------------------------

    def open(self, turn: Turn, role: str) -> Json:
        """The fields that a chunk of ``role`` has beside its content; another role opens another message."""
        if turn.role != role:
            turn.role, turn.message_id = role, self.mint.message()
        head: Json = {"sessionUpdate": f"agent_{role}_chunk"}
        if self.ids:
            head["messageId"] = turn.message_id
        return head

    def text(self, session: Session, turn: Turn, text: str, role: str = "message") -> None:
        turn.words += len(text.split())
        self.told(session, {**self.open(turn, role), "content": {"type": "text", "text": text}})

    def flood(self, session: Session, turn: Turn, count: int) -> None:
        head = self.open(turn, "message")
        session.history.add({**head, "flood": count})
        turn.words += count
        update = {**head, "content": {"type": "text", "text": "@@"}}
        line = (
            self.encode(
                {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session.id, "update": update}}
            )
            + b"\n"
        )
        before, after = line.split(b"@@")
        after = FLOOD_TEXT.encode() + after
        for start in range(0, count, 256):
            self.check(turn)
            self.write(b"".join([b"%b%08d%b" % (before, i, after) for i in range(start, min(start + 256, count))]))

    # --- waiting ---------------------------------------------------------------------------------------------------

    def check(self, turn: Turn) -> None:
        if turn.cancelled:
            raise Cancelled

    def pause(self, session: Session, turn: Turn, seconds: float, steerable: bool) -> None:
        self.flush()
        until = time.monotonic() + seconds
        while True:
            if steerable:
                self.break_point(session, turn)
                self.flush()
            with self.cond:
                self.check(turn)
                left = until - time.monotonic()
                if left <= 0:
                    return
                if not (steerable and turn.steers):
                    self.cond.wait(left)

    def break_point(self, session: Session, turn: Turn) -> None:
        while turn.steers:
            self.check(turn)
            request, prompt = turn.steers.popleft()
            self.send({"id": request, "result": {"outcome": "injected"}})
            turn.role = ""
            self.script(session, turn, prompt)
            turn.role = ""

    def ask(self, turn: Turn, method: str, params: Json) -> Any:
        """A request to the client; its result, or None for an error answer."""
        with self.cond:
            request = self.asked
            self.asked += 1
        self.send({"id": request, "method": method, "params": params}, flush=True)
        with self.cond:
            while request not in self.answers:
                self.check(turn)
                self.cond.wait()
            self.check(turn)
            return self.answers.pop(request)

    # --- turns -----------------------------------------------------------------------------------------------------

    def work(self, session: Session) -> None:
        while True:
            with self.cond:
                if not session.turns:
                    session.worker = None
                    return
                turn = session.running = session.turns.popleft()
            try:
                self.check(turn)
                self.script(session, turn, turn.prompt)
                while True:
                    self.break_point(session, turn)
                    with self.cond:
                        # From here on a steer finds no turn: it is answered promptRequired, not lost.
                        if not turn.steers:
                            session.running = None
                            break
            except Cancelled:
                turn.stop = "cancelled"
            self.end(session, turn)

    def end(self, session: Session, turn: Turn) -> None:
        with self.cond:
            session.running = None
            refused, turn.steers = list(turn.steers), deque()
        for request, _ in refused:
            self.send({"id": request, "result": {"outcome": "promptRequired", "reason": "noRunningTurn"}})
        if not session.history.meta.get("title"):
            title = said(turn.prompt).strip().split("\n")[0][:60] or "Untitled"
            session.history.set(title=title)
            self.update(session.id, {"sessionUpdate": "session_info_update", "title": title})
        asked = len(said(turn.prompt).split())
        session.used += asked + turn.words
        cost = {"amount": session.used / 1e6, "currency": "USD"}
        self.update(session.id, {"sessionUpdate": "usage_update", "used": session.used, "size": 100000, "cost": cost})
        session.history.flush()  # before the answer: who has it may stop us and load the session again
        usage = {"inputTokens": asked, "outputTokens": turn.words, "totalTokens": asked + turn.words}
        if not turn.detached:
            self.send({"id": turn.request, "result": {"stopReason": turn.stop, "usage": usage}}, flush=True)
        for text in turn.late:
            self.text(session, turn, text)
        self.flush()
        session.history.flush()

    def script(self, session: Session, turn: Turn, prompt: list[Json]) -> None:
        user_id = {"messageId": self.mint.message()} if self.ids else {}
        for block in prompt:
            session.history.add({"sessionUpdate": "user_message_chunk", **user_id, "content": block})
        for line in said(prompt).split("\n"):
            self.check(turn)
            bare = line.strip()
            if len(bare) > 1 and bare[0] == bare[-1] == '"':
                line = bare = bare[1:-1]  # `opencode run` sends an argument with blanks in quotes
            word, _, rest = bare.partition(" ")
            run: Callable[[Session, Turn, str], None] = getattr(self, f"do_{word}", None) or self.echo
            if run == self.echo:
                rest = line
            try:
                run(session, turn, rest)
            except ValueError:
                self.text(session, turn, f"Bad number in: {line}")
            if turn.stop != "end_turn":
                return
            if session.running is turn and turn.steers:
                self.break_point(session, turn)

    # --- commands --------------------------------------------------------------------------------------------------

    def echo(self, session: Session, turn: Turn, rest: str) -> None:
        self.text(session, turn, f"You said: {rest}")

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


def said(prompt: list[Json]) -> str:
    """The text of a prompt; other blocks by their type."""
    return "\n".join(str(b.get("text", "")) if b.get("type") == "text" else f"[{b.get('type')}]" for b in prompt)
