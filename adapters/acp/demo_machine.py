"""How the demo agent runs its turns, on ACP v1; ``demo_v2`` is the other version, ``demo_turns`` has the commands.

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

from adapters.acp.demo_sessions import Cancelled, Session, Turn
from adapters.acp.demo_state import FLOOD_TEXT, Ids

Json = dict[str, Any]


class Machine:
    """Everything that the threads share."""

    def __init__(self, flags: set[str]) -> None:
        self.flags = flags
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
            steer, prompt = turn.steers.popleft()
            user_id = self.land(session, steer, prompt)
            turn.role = ""
            self.script(session, turn, prompt, user_id)
            turn.role = ""

    def land(self, session: Session, steer: Any, prompt: list[Json]) -> str:
        """A steer is in the conversation: say so. Returns the id of its message, empty if it has none yet."""
        self.send({"id": steer, "result": {"outcome": "injected"}})
        return ""

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
                self.begin(session, turn)
                self.script(session, turn, turn.prompt, turn.user_id)
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

    def begin(self, session: Session, turn: Turn) -> None:
        """v1 says nothing when a turn begins."""

    def left(self, session: Session, steers: list[tuple[Any, list[Json]]]) -> None:
        """Steers that found no break point any more."""
        for request, _ in steers:
            self.send({"id": request, "result": {"outcome": "promptRequired", "reason": "noRunningTurn"}})

    def finish(self, session: Session, turn: Turn, usage: Json) -> None:
        """v1 answers the prompt."""
        if turn.detached:
            return
        if turn.failure:
            self.send({"id": turn.request, "error": {"code": -32603, "message": turn.failure}}, flush=True)
        else:
            self.send({"id": turn.request, "result": {"stopReason": turn.stop, "usage": usage}}, flush=True)

    def end(self, session: Session, turn: Turn) -> None:
        with self.cond:
            session.running = None
            left, turn.steers = list(turn.steers), deque()
        self.left(session, left)
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
        self.finish(session, turn, usage)
        for text in turn.late:
            self.text(session, turn, text)
        self.flush()
        session.history.flush()

    def script(self, session: Session, turn: Turn, prompt: list[Json], user_id: str = "") -> None:
        named = {"messageId": user_id or self.mint.message()} if self.ids or user_id else {}
        for block in prompt if not turn.own else ():
            session.history.add({"sessionUpdate": "user_message_chunk", **named, "content": block})
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

    def echo(self, session: Session, turn: Turn, rest: str) -> None:
        self.text(session, turn, f"You said: {rest}")


def said(prompt: list[Json]) -> str:
    """The text of a prompt; other blocks by their type."""
    return "\n".join(str(b.get("text", "")) if b.get("type") == "text" else f"[{b.get('type')}]" for b in prompt)
