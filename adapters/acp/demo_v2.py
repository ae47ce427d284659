"""The demo agent on ACP v2: the same scripts, told in the words of that version. See ``demo``.

Standard library and msgspec only. Histories are kept in the words of v1, so that both versions load them.
"""

import base64
import threading
import time
from typing import Any

from adapters.acp import demo_calls as v1
from adapters.acp.demo_sessions import MODES, Cancelled, Fault, Session, Turn
from adapters.acp.demo_state import expand
from adapters.acp.demo_turns import Agent, block

Json = dict[str, Any]
PRECONDITION = "Inject precondition failed"


class Inject:
    """A message that waits for its place."""

    def __init__(self, message_id: str, content: list[Json]) -> None:
        self.id, self.content = message_id, content


class AgentV2(Agent):
    def __init__(self, flags: set[str]) -> None:
        super().__init__(flags)
        self.ids = True
        self.steering = "--steering" in flags
        self.told_ids: set[str] = set()  # injects that are in the conversation
        self.revoked: set[str] = set()
        self.children: dict[str, list[str]] = {}  # session → children that work in the background
        self.stops: dict[str, threading.Event] = {}  # tool calls and terminals that can be cancelled

    # --- output ------------------------------------------------------------------------------------------------------

    def update(self, session_id: str, update: Json) -> None:
        for each in translated(self, session_id, update):
            super().update(session_id, each)

    def state(self, session: Session, word: str, **more: Any) -> None:
        background = [{"type": "subagent", "sessionId": each} for each in self.children.get(session.id, ())]
        state = {"sessionUpdate": "state_update", "state": word, "background": background, **more}
        super().update(session.id, state)

    def user(self, session: Session, message_id: str, content: list[Json]) -> None:
        super().update(session.id, {"sessionUpdate": "user_message", "messageId": message_id, "content": content})

    # --- turns -------------------------------------------------------------------------------------------------------

    def begin(self, session: Session, turn: Turn) -> None:
        """The message is inserted: that is what answers a prompt."""
        if not turn.own:
            turn.user_id = turn.user_id or self.mint.message()
            self.user(session, turn.user_id, turn.prompt)
            if turn.request is not None:
                self.send({"id": turn.request, "result": {"messageId": turn.user_id}})
        self.state(session, "running")

    def land(self, session: Session, steer: Any, prompt: list[Json]) -> str:
        if isinstance(steer, Inject):
            with self.cond:
                self.told_ids.add(steer.id)
            self.user(session, steer.id, prompt)
            return steer.id
        message_id = self.mint.message()
        self.send({"id": steer, "result": {"outcome": "injected"}})
        self.user(session, message_id, prompt)
        return message_id

    def left(self, session: Session, steers: list[tuple[Any, list[Json]]]) -> None:
        """Injects survive their turn: each begins one of its own."""
        for steer, prompt in steers:
            if isinstance(steer, Inject):
                self.later(session, steer)
            else:
                super().left(session, [(steer, prompt)])

    def later(self, session: Session, inject: Inject) -> None:
        turn = Turn(None, inject.content, detached=True)
        turn.user_id = inject.id
        v1.enqueue(self, session, turn)

    def script(self, session: Session, turn: Turn, prompt: list[Json], user_id: str = "") -> None:
        with self.cond:
            self.told_ids.add(user_id)
        super().script(session, turn, prompt, user_id)

    def end(self, session: Session, turn: Turn) -> None:
        if turn.cancelled and not turn.user_id and not turn.own:  # it never was inserted
            with self.cond:
                session.running = None
            self.send({"id": turn.request, "error": {"code": -32800, "message": "Request cancelled"}}, flush=True)
            return
        super().end(session, turn)

    def finish(self, session: Session, turn: Turn, usage: Json) -> None:
        more: Json = {"stopReason": turn.stop, "usage": usage}
        if turn.failure:
            more["error"] = {"code": -32603, "message": turn.failure}
        self.state(session, "idle", **more)
        self.flush()

    def ask(self, turn: Turn, method: str, params: Json) -> Any:
        session = self.sessions[params["sessionId"]]
        if method == "session/request_permission":
            call = params["toolCall"]
            subject = {"type": "tool_call", "toolCall": call}
            params = {**params, "title": f"Run {call['title']}?", "subject": subject}
            del params["toolCall"]
        self.state(session, "requires_action")
        answer = super().ask(turn, method, params)
        self.state(session, "running")
        return answer

    # --- commands ----------------------------------------------------------------------------------------------------

    def replaced(self, session: Session, turn: Turn, text: str) -> None:
        whole = {"sessionUpdate": "agent_message", "messageId": turn.message_id, "content": block(text)}
        last = session.history.updates[-1]
        last["content"] = {"type": "text", "text": text}
        self.update(session.id, whole)

    def terminal(self, session: Session, turn: Turn, pause: float, lines: list[str]) -> None:
        head = self.called(session, turn, "terminal", "in_progress")
        call_id = head["toolCallId"]
        name = f"term_{call_id}"
        stop = self.stops[call_id] = self.stops[name] = threading.Event()
        cancel: Json = {"capabilities": {"cancel": {}}}
        shown = {"content": [{"type": "terminal", "terminalId": name}]}
        command: Json = {"command": "show lines", "cwd": session.history.meta["cwd"], **cancel}
        of = {"terminalId": name}
        self.update(session.id, {"sessionUpdate": "terminal_update", **of, **command})
        self.told(session, {**head, **cancel, **shown})
        done: Json = {"sessionUpdate": "tool_call_update", "toolCallId": call_id}
        try:
            for line in lines:
                data = base64.b64encode(f"{line}\n".encode()).decode()
                self.update(session.id, {"sessionUpdate": "terminal_output_chunk", **of, "data": data})
                self.flush()
                until = time.monotonic() + pause
                while not stop.wait(0.01) and time.monotonic() < until:
                    self.check(turn)
                if stop.is_set():
                    break
            code: Json = {"signal": "TERM"} if stop.is_set() else {"exitCode": 0}
            done["status"] = "cancelled" if stop.is_set() else "completed"
        except Cancelled:
            code, done["status"] = {"signal": "TERM"}, "cancelled"
            raise
        finally:
            self.update(session.id, {"sessionUpdate": "terminal_update", **of, "exitStatus": code})
            self.told(session, done)

    def do_background(self, session: Session, turn: Turn, rest: str) -> None:
        name, _, ms = rest.partition(" ")
        turn.role = ""
        child = f"{session.id}_{self.mint.message()[-6:]}"
        working = self.children.setdefault(session.id, [])
        head = {"sessionUpdate": "subagent_update", "sessionId": child}
        self.told(session, {**head, "title": name, "capabilities": {"cancel": {}}, "state": {"state": "running"}})
        self.update(child, {"sessionUpdate": "state_update", "state": "running"})
        working.append(child)
        self.state(session, "running")

        def done() -> None:
            text = {"sessionUpdate": "agent_message_chunk", "messageId": self.mint.message()}
            self.update(child, {**text, "content": {"type": "text", "text": f"{name} worked"}})
            over = {"state": "idle", "stopReason": "end_turn"}
            self.told(session, {**head, "state": over})
            self.update(child, {"sessionUpdate": "state_update", **over})
            working.remove(child)
            self.state(session, "running" if session.running else "idle")
            self.awake(session, f"{name} is done")

        self.after(int(ms or 0), done)

    def do_wake(self, session: Session, turn: Turn, rest: str) -> None:
        ms, _, text = rest.partition(" ")
        self.after(int(ms), lambda: self.awake(session, text))

    def after(self, ms: int, what: Any) -> None:
        timer = threading.Timer(ms / 1000, what)
        timer.daemon = True
        timer.start()

    def awake(self, session: Session, text: str) -> None:
        """A turn of the agent's own."""
        turn = Turn(None, block(f"say {text}"), detached=True)
        turn.own = True
        v1.enqueue(self, session, turn)

    # --- injects -----------------------------------------------------------------------------------------------------

    def waiting(self, session: Session, message_id: str) -> Any:
        """Where an inject waits: (the steers or turns that it is in, its index). Under ``cond``."""
        for turn in (session.running, *session.turns):
            for index, (steer, _) in enumerate(turn.steers if turn else ()):
                if isinstance(steer, Inject) and steer.id == message_id:
                    return turn.steers, index  # type: ignore[union-attr]
        for index, turn in enumerate(session.turns):
            if turn.user_id == message_id:
                return session.turns, index
        return None


def handle_v2(agent: AgentV2, method: str, params: Json, request: Any) -> Json | None:
    """The result, or None where there is none (yet)."""
    match method:
        case "initialize":
            return _initialize(agent, params)
        case "session/new":
            created = v1.new(agent, {"mcpServers": [], **params})
            return {"sessionId": created["sessionId"], "configOptions": options(agent, created["sessionId"])}
        case "session/fork" if agent.load:
            forked = v1.fork(agent, params)["sessionId"]
            return {"sessionId": forked, "configOptions": options(agent, forked)}
        case "session/resume":
            return _resume(agent, params)
        case "session/list":
            return {"sessions": [{"sessionId": s.id, "cwd": s.history.meta["cwd"]} for s in agent.sessions.values()]}
        case "session/set_config_option":
            session = v1.known(agent, params)
            values = {"mode": ("code", "ask"), "model": ("quick", "careful")}.get(params["configId"], ())
            if params["type"] != "id" or params["value"] not in values:
                raise Fault(-32602, "Invalid params: unknown option or value")
            session.history.set(**{params["configId"]: params["value"]})
            return {"configOptions": options(agent, session.id)}
        case "session/inject" if agent.steer:
            return _inject(agent, v1.known(agent, params), params)
        case "session/revoke_inject" | "session/replace_inject" if agent.steer:
            return _change(agent, v1.known(agent, params), params, method == "session/replace_inject")
        case "_session/steering" if agent.steering:
            return v1.steer(agent, v1.known(agent, params), params, request)
        case "tool_call/cancel" | "terminal/cancel":
            name = params["toolCallId" if method == "tool_call/cancel" else "terminalId"]
            if name not in agent.stops:
                raise Fault(-32602, "Invalid params: this cannot be cancelled")
            agent.stops[name].set()
            return {}
        case "session/cancel":
            session = v1.known(agent, params)
            with agent.cond:  # injects survive it
                for turn in (session.running, *(t for t in session.turns if t.request is not None)):
                    if turn is not None:
                        turn.cancelled = True
                agent.cond.notify_all()
            return None
        case "session/prompt" | "session/close":
            return v1.handle(agent, method, params, request)
        case "$/cancel_request":
            return None
    raise Fault(-32601, f"Method not found: {method}", {"method": method})


def _initialize(agent: AgentV2, params: Json) -> Json:
    agent.client = {"subagents": {}, "elicitation": (params.get("capabilities") or {}).get("elicitation")}
    session: Json = {"prompt": {"image": {}, "embeddedContext": {}}, "mcp": {"stdio": {}, "http": {}}}
    if agent.load:
        session["fork"] = {}
    if agent.steer:
        session["inject"] = {"modes": ["queue", "steer"], "steerInStream": ["finish"], "pending": {"replace": True}}
    result: Json = {
        "protocolVersion": 2,
        "info": {"name": "trunkline-demo", "title": "Trunkline demo agent", "version": "1"},
        "capabilities": {"session": session},
        "authMethods": [],
    }
    if agent.steering:
        result["_meta"] = {"steering": {"supported": True}}
    return result


def _resume(agent: AgentV2, params: Json) -> Json:
    if not agent.load:
        raise Fault(-32002, "Session not found", {"sessionId": params["sessionId"]})
    session = v1.load(agent, params["sessionId"])
    if (params.get("replayFrom") or {}).get("type") == "start":
        for stored in session.history.updates:
            for each in expand(stored):
                agent.update(session.id, each)
    agent.state(session, "running" if session.running else "idle")
    return {"configOptions": options(agent, session.id)}


def _inject(agent: AgentV2, session: Session, params: Json) -> Json:
    content = params["content"]
    if not isinstance(content, list) or not content:
        raise ValueError("content must be a non-empty list of content blocks")
    inject = Inject(agent.mint.message(), content)
    if params["mode"] == "queue":
        agent.later(session, inject)
        return {"messageId": inject.id}
    if params["mode"] != "steer":
        raise Fault(-32602, "Invalid params: unknown mode", {"reason": "mode_not_supported"})
    with agent.cond:
        turn = session.running
        if turn is None or turn.cancelled:
            raise Fault(-32010, PRECONDITION, {"reason": "no_running_turn"})
        turn.steers.append((inject, content))
        agent.cond.notify_all()
    return {"messageId": inject.id}


def _change(agent: AgentV2, session: Session, params: Json, replace: bool) -> Json:
    """Revoke, or replace: until it is told as a user message."""
    message_id = params["messageId"]
    with agent.cond:
        found = agent.waiting(session, message_id)
        if found is None:
            if message_id in agent.revoked and not replace:
                return {}
            known = message_id in agent.told_ids
            data = {"reason": "already_delivered" if known else "unknown_message_id", "messageId": message_id}
            raise Fault(-32010, PRECONDITION, data) if known else Fault(-32002, "Unknown message id", data)
        where, index = found
        if not replace:
            del where[index]
            agent.revoked.add(message_id)
            return {}
        if isinstance(where[index], Turn):
            where[index].prompt = params["content"]
        else:
            where[index] = (where[index][0], params["content"])
        return {"messageId": message_id}


# --- the words of v2 -------------------------------------------------------------------------------------------------


def options(agent: AgentV2, session_id: str) -> list[Json]:
    session = agent.sessions[session_id]
    choices = [{"value": m["id"], "name": m["name"], "description": m["description"]} for m in MODES]
    head = {"configId": "mode", "name": "Mode", "category": "mode", "type": "select"}
    out = [{**head, "currentValue": session.history.meta["mode"], "options": choices}]
    for option in session.options():
        out.append({"configId": option["id"], **{k: v for k, v in option.items() if k != "id"}})
    return out


def translated(agent: AgentV2, session_id: str, update: Json) -> list[Json]:
    """An update of v1 in the words of v2; others as they are."""
    match update["sessionUpdate"]:
        case "tool_call":
            return [{**update, "sessionUpdate": "tool_call_update"}]
        case "plan":
            return [
                {
                    "sessionUpdate": "plan_update",
                    "plan": {"type": "items", "planId": "plan", "entries": update["entries"]},
                }
            ]
        case "available_commands_update":
            tagged = [{"type": "command", **each} for each in update["availableCommands"]]
            return [{**update, "availableCommands": tagged}]
    return [update]
