"""One stream of runs: which events of a session it shows, how each run begins and ends. Pure.

A POST's run waits until the agent gets its messages, shows that turn, and ends with it; a follower shows the turn that
runs. A stream may hold several runs, one after the other: for steers of the run that the agent took only in a turn of
their own, and for followers that go on from a cursor.
"""

from collections.abc import Sequence

from adapters.agui import translate_messages as msgs
from adapters.agui import translate_requests, wire
from adapters.agui import translate_state as state
from adapters.agui.translate import Encoder
from adapters.agui.translate_content import user_value
from adapters.agui.translate_names import run_name, user_name
from adapters.agui.translate_state import View
from adapters.agui.wire import Json
from gateway.core import events as ev
from gateway.core.ids import MessageId, SessionId, TurnId
from gateway.core.model import Error, Outcome, Pending, SessionInfo, Tokens
from gateway.core.transcript import Transcript, UserItem

Views = Sequence[tuple[View, SessionId | None]]
"""The session, then its subagents' with their ids."""

ORDINARY = ("end_turn", "max_tokens", "max_turn_requests", "refusal")


def run_of(transcript: Transcript, turn_id: TurnId) -> str:
    """The run id of a turn: of the AG-UI client whose message began it, else one that is made of the turn's."""
    for item in transcript.items:
        if isinstance(item, UserItem) and item.message.turn_id == turn_id:
            by = item.message.by
            if by.protocol == "agui" and by.connection:
                return by.connection
    return run_name(turn_id)


class Run:
    """``mine``: the messages of this POST, as ids; ``echo`` as they came. ``has``: user messages that the client has.

    After each call: ``done``: the stream is to end; ``wants_snapshot``: call ``resync`` with the session as it stands,
    and go on from there; ``asked``: a request is open, so the run ends soon (``park``).
    """

    def __init__(
        self,
        root_id: SessionId,
        thread_id: str,
        run_id: str,
        modern: bool,
        mine: Sequence[MessageId] = (),
        echo: Sequence[dict[str, Json]] = (),
        has: frozenset[str] = frozenset(),
    ) -> None:
        self.root_id = root_id
        self.thread_id = thread_id
        self.run_id = run_id
        self.modern = modern
        self.mine = frozenset(mine)
        self.left = list(mine)  # not delivered yet
        self.echo = list(echo)
        self.has = has
        self.encoder = Encoder(root_id, modern)
        self.turn_id: TurnId | None = None  # that is shown
        self.owner = False  # whether it began this turn (or answered for it): its end is the turn's
        self.begun = False  # a run is open on the wire
        self.done = False
        self.follows = False  # ends only when told to (``settle``)
        self.wants_snapshot = False
        self.asked = False
        self.late = False  # something was said that this stream did not show
        self.steers: list[str] = []  # admitted while this run is shown, not delivered
        self.kept: list[wire.Event] = []  # of the state, between two runs of this stream
        self.agent_error: Error | None = None

    def __repr__(self) -> str:
        state_ = "done" if self.done else f"shows {self.turn_id}" if self.turn_id else f"waits for {self.left}"
        return f"<Run {self.run_id} of {self.thread_id} {state_}>"

    # --- begin -------------------------------------------------------------------------------------------------------

    def begin(self) -> list[wire.Event]:
        self.begun = True
        echoed = None
        if self.echo:
            echoed = {
                "threadId": self.thread_id,
                "runId": self.run_id,
                "messages": self.echo,
                "tools": [],
                "context": [],
                "state": {},
                "forwardedProps": {},
            }
        version = wire.VERSION if self.modern else None
        kept, self.kept = self.kept, []
        started = wire.RunStarted(thread_id=self.thread_id, run_id=self.run_id, protocol_version=version, input=echoed)
        return [started, *kept]

    def _ensure(self, out: list[wire.Event], turn_id: TurnId) -> None:
        """A run is open: another one, of this turn, if the one before has ended."""
        if not self.begun:
            self.run_id = self.run_id or run_name(turn_id)
            out += self.begin()

    # --- one event ---------------------------------------------------------------------------------------------------

    def feed(self, record: ev.Record, info: SessionInfo, pending: Pending | None) -> list[wire.Event]:
        if self.done:
            return []
        event, out = record.event, list[wire.Event]()
        if type(event) is ev.TextDelta and self.turn_id is not None and self.begun:  # nearly all of them
            return self.encoder.encode(record, info, pending)
        if record.session_id != self.root_id:
            if self.turn_id is None and not self.follows:
                self.late = True
                return out
            if isinstance(event, ev.RequestOpened):
                self.asked = True
            elif isinstance(event, ev.MessageReplaced):
                self.wants_snapshot = True
            return self._shown(record, info, pending)
        match event:
            case ev.SessionDeleted():
                self.follows = False
                self._ensure(out, self.turn_id or TurnId(""))
                return out + self.fail("session_deleted", "the session was deleted")
            case ev.AgentStateChanged():
                self.agent_error = event.error
            case ev.TurnStarted():
                if self.turn_id is None and (self.follows or self.steers):
                    self.turn_id = event.turn_id
                    self.run_id = self.run_id if self.begun else run_name(event.turn_id)
            case ev.MessageDelivered():
                return self._delivered(event, record, info, pending)
            case ev.MessageAdmitted():
                if self.turn_id is not None and event.message.lane == "steer" and event.message.by.protocol == "agui":
                    self.steers.append(event.message.id)
            case ev.MessageRevoked():
                return self._fate(record, info, pending, event.message_id, "revoked")
            case ev.MessageHeld():
                return self._fate(record, info, pending, event.message_id, event.why)
            case ev.MessageReturned() if event.held:
                return self._fate(record, info, pending, event.message_id, event.held)
            case ev.TurnEnded():
                return self._ended(event, info)
            case ev.RequestOpened() if self.turn_id is not None:
                self.asked = True
            case ev.MessageReplaced() if self.turn_id is not None:
                self.wants_snapshot = True
            case _:
                pass
        if self.turn_id is None and not self.follows:
            if isinstance(event, ev.PartOpened | ev.BlockAdded | ev.ToolUpdated | ev.PlanUpdated | ev.MessageReplaced):
                self.late = True
            return self._state(record, info, pending)
        return self._shown(record, info, pending)

    def _state(self, record: ev.Record, info: SessionInfo, pending: Pending | None) -> list[wire.Event]:
        """Only what changes in the state; between two runs it waits for the next one."""
        shown = self.encoder.state(record, info, pending)
        if self.begun:
            return shown
        self.kept += shown
        return []

    def _shown(self, record: ev.Record, info: SessionInfo, pending: Pending | None) -> list[wire.Event]:
        shown, out = self.encoder.encode(record, info, pending), list[wire.Event]()
        if not self.begun and all(isinstance(each, wire.StateDelta | wire.Custom) for each in shown):
            self.kept += shown
            return out
        self._ensure(out, self.turn_id or TurnId(""))
        return out + shown

    def _delivered(
        self, event: ev.MessageDelivered, record: ev.Record, info: SessionInfo, pending: Pending | None
    ) -> list[wire.Event]:
        message, out = event.message, list[wire.Event]()
        if message.id in self.mine:
            self.left = [m for m in self.left if m != message.id]
            if self.turn_id is None:
                self.turn_id = message.turn_id
                self.owner = message.how == "prompt"
                self.wants_snapshot = self.late
            return self._state(record, info, pending)
        steered = message.id in self.steers
        self.steers = [m for m in self.steers if m != message.id]
        if not self.begun and (self.follows or steered):
            ours = message.by.protocol == "agui" and message.by.connection
            self.run_id = message.by.connection if ours else run_name(message.turn_id)
            self.turn_id = message.turn_id
            self.echo = [msgs.user_message(message)]
            return self.begin() + self._state(record, info, pending)
        if self.turn_id is None and not self.follows:
            self.late = True
            return self._state(record, info, pending)
        self._ensure(out, message.turn_id)
        if user_name(message) in self.has:
            return out + self._state(record, info, pending)
        return out + self.encoder.encode(record, info, pending)

    def _fate(
        self, record: ev.Record, info: SessionInfo, pending: Pending | None, message_id: MessageId, why: str
    ) -> list[wire.Event]:
        """A message is revoked or held: whoever waits for it is told."""
        self.steers = [m for m in self.steers if m != message_id]
        out = self._state(record, info, pending)
        if message_id not in self.left:
            if not self.begun and not self.follows and not self.steers:
                self.done = True
            return out
        self.left = [m for m in self.left if m != message_id]
        if self.turn_id is not None or self.left:
            return out
        return out + self._fated(why)

    def _fated(self, why: str) -> list[wire.Event]:
        error = self.agent_error
        if why == "unwritten":
            error = error or Error("unwritten", "the prompt could not be written to the agent")
        if error is not None and why not in ("revoked", "abort"):
            return self._failed(Error(error.code, f"{error.message} (the message is kept, held)"))
        return self._cancelled(None)

    def _ended(self, event: ev.TurnEnded, info: SessionInfo) -> list[wire.Event]:
        if self.follows and self.turn_id is None:
            self.turn_id = event.turn_id
        if self.turn_id is None or event.turn_id != self.turn_id:
            return []
        if self.left:  # more of this POST comes in another turn
            self.turn_id, self.owner = None, False
            return self.encoder.pause()
        out: list[wire.Event] = []
        self._ensure(out, event.turn_id)
        return out + self._over(event.outcome, event.error, event.tokens, info)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _over(
        self, outcome: Outcome, error: Error | None, tokens: Tokens | None, info: SessionInfo
    ) -> list[wire.Event]:
        usage = state.tokens_of(tokens, info)
        if outcome in ORDINARY:
            metadata = None if outcome == "end_turn" else {"acp": {"stopReason": outcome}}
            success = {"type": "success"}
            return self._finish(self._finished(outcome=success, usage=usage, metadata=metadata), bool(self.steers))
        if outcome == "cancelled":
            return self._cancelled(usage)
        return self._failed(error or Error(outcome, f"the turn was {outcome}"), usage)

    def _cancelled(self, usage: list[dict[str, Json]] | None) -> list[wire.Event]:
        """0.0.59 rejects the word: it gets a bare finish."""
        return self._finish(self._finished(outcome={"type": "cancelled"} if self.modern else None, usage=usage))

    def _failed(self, error: Error, usage: list[dict[str, Json]] | None = None) -> list[wire.Event]:
        return self._finish(wire.RunError(message=error.message, code=error.code, usage=usage))

    def _finished(
        self,
        *,
        result: Json = None,
        outcome: dict[str, Json] | None = None,
        usage: list[dict[str, Json]] | None = None,
        metadata: dict[str, Json] | None = None,
    ) -> wire.RunFinished:
        return wire.RunFinished(
            thread_id=self.thread_id,
            run_id=self.run_id,
            result=result,
            outcome=outcome,
            usage=usage,
            metadata=metadata,
        )

    def _finish(self, last: wire.Event, more: bool = False, suspended: bool = False) -> list[wire.Event]:
        """``more``: another run follows on this stream."""
        out = [] if self.begun else self.begin()
        out += self.encoder.close(suspended)
        self.begun, self.asked, self.turn_id, self.echo = False, False, None, []
        self.done = not (more or self.follows)
        return [*out, last]

    def settled(self) -> list[wire.Event]:
        """End well."""
        return self._finish(self._finished(outcome={"type": "success"}))

    def fail(self, code: str, message: str) -> list[wire.Event]:
        """End with an error of the request itself."""
        return self._failed(Error(code, message))

    def taken(self, delivery: str, active: str) -> list[wire.Event]:
        """The short run of a steer: its message appears in the run that is active."""
        result = {"delivery": delivery, "activeRunId": active, "messageIds": list(self.left)}
        value = {"messageIds": list(self.left), "delivery": delivery}
        out: list[wire.Event] = [wire.Custom(name="acp.message_queued", value=value)]
        return out + self._finish(self._finished(result=result, outcome={"type": "success"}))

    def park(self, views: Views) -> list[wire.Event]:
        """Requests are open, so the run ends with them as interrupts (the turn goes on). Nothing if none is."""
        self.asked = False
        found = [
            translate_requests.interrupt(request, view.transcript, session_id, self.modern)
            for view, session_id in views
            for request in view.requests
        ]
        if not found:
            return []
        self.follows = False
        return self._finish(self._finished(outcome={"type": "interrupt", "interrupts": found}), suspended=True)

    # --- as it stands ------------------------------------------------------------------------------------------------

    def head(self, views: Views, history: bool, queued: bool = False) -> list[wire.Event]:
        """The beginning of a POST's stream: the run, the state, and (``history``) all messages."""
        out = self.begin()
        out.append(wire.StateSnapshot(snapshot=state.snapshot(views[0][0])))
        if history:
            out += self._messages(views)
        if queued:
            out.append(
                wire.Custom(name="acp.message_queued", value={"messageIds": list(self.left), "delivery": "queue"})
            )
        return out

    def _messages(self, views: Views) -> list[wire.Event]:
        """All messages; what waits and is on the client's screen already stays there, last."""
        found = msgs.messages(views, self.modern)
        known = {message["id"] for message in found}
        echo = [message for message in self.echo if message["id"] not in known]
        waiting = [
            {"id": p.id, "role": "user", "content": user_value(p.content)}
            for p in views[0][0].pending
            if p.id in self.has and p.id not in known and p.id not in self.mine
        ]
        kept, more = msgs.spilled([*found, *waiting, *echo])
        return [wire.MessagesSnapshot(messages=kept), *more]

    def resync(self, views: Views) -> list[wire.Event]:
        """State and messages as they are, what is open begun again; what this stream waited for, if it came to pass."""
        view = views[0][0]
        self.wants_snapshot = self.late = False
        out = self.encoder.pause()
        if not self.begun:
            turn_id = view.turn_id or view.last_turn_id or TurnId("")
            self.run_id = run_of(view.transcript, turn_id) if turn_id else self.run_id
            out += self.begin()
        out.append(wire.StateSnapshot(snapshot=state.snapshot(view)))
        for message_id in list(self.left):
            delivered = view.transcript.user(message_id)
            if delivered is not None:
                self.left.remove(message_id)
                if self.turn_id is None:
                    self.turn_id, self.owner = delivered.turn_id, delivered.how == "prompt"
        if self.turn_id is None and not self.follows:
            waiting = {p.id: p for p in view.pending}
            held = [waiting[m].held for m in self.left if m in waiting]
            if all(held):
                return out + self._fated(held[0] if held else "revoked")
            return out
        out += self._messages(views)
        if self.follows and view.turn_id is not None:
            self.turn_id = view.turn_id
        if self.turn_id is not None and view.turn_id != self.turn_id and not self.left:
            return out + self._past(view)
        for each, _ in views:
            if each.turn_id is not None:
                texts, calls = msgs.open_parts(each), msgs.open_calls(each)
                out += self.encoder.reopen(each.info.id, each.info, texts, calls)
        self.asked = any(each.requests for each, _ in views)
        return out

    def _past(self, view: View) -> list[wire.Event]:
        turn = view.transcript.turns.get(self.turn_id) if self.turn_id is not None else None
        if turn is None or turn.outcome is None:
            return self._finish(self._finished(outcome={"type": "success"}))
        return self._over(turn.outcome, turn.error, turn.tokens, view.info)

    def settle(self, views: Views) -> list[wire.Event]:
        """A follower has caught up with a session that is idle: end, as the last turn did."""
        view, out = views[0][0], list[wire.Event]()
        self.follows = False
        self.turn_id = self.turn_id or view.last_turn_id
        if not self.begun:
            self.run_id = run_of(view.transcript, self.turn_id) if self.turn_id else self.run_id
            out += self.begin()
        self.steers.clear()
        return out + self._past(view)
