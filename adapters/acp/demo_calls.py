"""The methods that the demo agent serves, on ACP v1; ``demo_v2`` has what is different on v2. See ``demo``.

Standard library and msgspec only.
"""

import os
import threading
from pathlib import Path
from typing import Any

from adapters.acp.demo_sessions import Fault, Session, Turn
from adapters.acp.demo_state import History, expand
from adapters.acp.demo_turns import Agent

Json = dict[str, Any]


def state_dir() -> Path:
    """Where histories are kept: TRUNKLINE_DEMO_STATE, else a folder of the user's cache."""
    return Path(os.environ.get("TRUNKLINE_DEMO_STATE") or Path.home() / ".cache" / "trunkline-demo")


def handle(agent: Agent, method: str, params: Json, request: Any) -> Json | None:
    """The result, or None where there is none (yet)."""
    match method:
        case "initialize":
            return initialize(agent, params)
        case "session/new":
            return new(agent, params)
        case "session/load" | "session/resume" if agent.load:
            session = load(agent, params["sessionId"])
            if method == "session/load":
                for update in session.history.updates:
                    for each in expand(update):
                        if not agent.ids:
                            each.pop("messageId", None)
                        agent.update(session.id, each)
            return session.state()
        case "session/fork" if agent.load:
            return fork(agent, params)
        case "session/prompt":
            prompt(agent, known(agent, params), params, request)
            return None
        case "_session/steering" if agent.steer:
            return steer(agent, known(agent, params), params, request)
        case "session/cancel":
            cancel(agent, known(agent, params))
            return None
        case "session/close":
            session = known(agent, params)
            cancel(agent, session)
            del agent.sessions[session.id]
            return {}
        case "session/set_mode":
            session = known(agent, params)
            if params["modeId"] not in ("code", "ask"):
                raise Fault(-32602, "Invalid params: unknown mode", {"modeId": params["modeId"]})
            session.history.set(mode=params["modeId"])
            agent.update(session.id, {"sessionUpdate": "current_mode_update", "currentModeId": params["modeId"]})
            return {}
        case "session/set_config_option":
            session = known(agent, params)
            if params["configId"] != "model" or params["value"] not in ("quick", "careful"):
                raise Fault(-32602, "Invalid params: unknown option or value")
            session.history.set(model=params["value"])
            return {"configOptions": session.options()}
        case "$/cancel_request":
            for session in agent.sessions.values():
                with agent.cond:
                    for turn in (session.running, *session.turns):
                        if turn is not None and turn.request == params["requestId"]:
                            turn.cancelled = True
                    agent.cond.notify_all()
            return None
    raise Fault(-32601, f"Method not found: {method}", {"method": method})


def initialize(agent: Agent, params: Json) -> Json:
    agent.client = params.get("clientCapabilities") or {}
    capabilities: Json = {
        "loadSession": agent.load,
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
        "sessionCapabilities": {"close": {}, **({"resume": {}, "fork": {}} if agent.load else {})},
    }
    result: Json = {
        "protocolVersion": 1,
        "agentCapabilities": capabilities,
        "agentInfo": {"name": "trunkline-demo", "title": "Trunkline demo agent", "version": "1"},
        "authMethods": [],
    }
    if agent.steer:
        result["_meta"] = {"steering": {"supported": True}}
    return result


def new(agent: Agent, params: Json) -> Json:
    if not os.path.isabs(params["cwd"]) or not isinstance(params["mcpServers"], list):
        raise ValueError("cwd must be absolute, mcpServers a list")
    session_id = "demo_" + agent.mint.message()[4:]
    path = state_dir() / f"{session_id}.jsonl" if agent.load else None
    session = agent.sessions[session_id] = Session(session_id, History(path, {}))
    session.history.set(mode="code", model="quick", cwd=params["cwd"])
    return {"sessionId": session_id, **session.state()}


def fork(agent: Agent, params: Json) -> Json:
    """A copy of a session; the copy is told whole, as some agents do."""
    source = load(agent, params["sessionId"])
    made = new(agent, {"mcpServers": [], **params})
    session = agent.sessions[made["sessionId"]]
    session.history.set(**{**source.history.meta, "cwd": params["cwd"]})
    session.history.updates = [dict(update) for update in source.history.updates]
    session.history.flush()
    for update in session.history.updates:
        for each in expand(update):
            agent.update(session.id, each)
    return {"sessionId": session.id, **session.state()}


def load(agent: Agent, session_id: str) -> Session:
    if session_id in agent.sessions:
        return agent.sessions[session_id]
    safe = session_id.startswith("demo_") and session_id.replace("_", "").isalnum()
    history = History.read(state_dir() / f"{session_id}.jsonl") if safe else None
    if history is None:
        raise Fault(-32002, "Session not found", {"sessionId": session_id})
    session = agent.sessions[session_id] = Session(session_id, history)
    return session


def known(agent: Agent, params: Json) -> Session:
    session = agent.sessions.get(params["sessionId"])
    if session is None:
        raise Fault(-32002, "Session not found", {"sessionId": params["sessionId"]})
    return session


def prompt(agent: Agent, session: Session, params: Json, request: Any, detached: bool = False) -> None:
    blocks = params["prompt"]
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ValueError("prompt must be a list of content blocks")
    enqueue(agent, session, Turn(request, blocks, detached))


def enqueue(agent: Agent, session: Session, turn: Turn) -> None:
    with agent.cond:
        session.turns.append(turn)
        if session.worker is None:
            session.worker = threading.Thread(target=agent.work, args=(session,), daemon=True)
            session.worker.start()


def steer(agent: Agent, session: Session, params: Json, request: Any) -> Json | None:
    blocks = params["prompt"]
    if not isinstance(blocks, list) or not blocks:
        raise ValueError("prompt must be a non-empty list of content blocks")
    idle = ((params.get("_meta") or {}).get("steering") or {}).get("idleBehavior")
    if idle not in (None, "promptRequired"):
        raise ValueError("unknown idleBehavior")
    with agent.cond:
        turn = session.running or (session.turns[0] if session.turns else None)  # one may just be about to begin
        if turn is not None and not turn.cancelled:
            turn.steers.append((request, blocks))
            agent.cond.notify_all()
            return None
    if idle == "promptRequired":
        return {"outcome": "promptRequired", "reason": "noRunningTurn"}
    prompt(agent, session, params, None, detached=True)
    return {"outcome": "startedNewTurn"}


def cancel(agent: Agent, session: Session) -> None:
    """Ends the running turn and those that wait behind it."""
    with agent.cond:
        for turn in (session.running, *session.turns):
            if turn is not None:
                turn.cancelled = True
        agent.cond.notify_all()
