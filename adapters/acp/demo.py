"""The scripted demo agent: a real ACP v1 agent process on stdio, whose prompts are scripts.

Run it as ``python -m adapters.acp.demo``; ``--help`` (``HELP`` below) tells its flags, and the commands: one a line of
the prompt. It needs no model and no network, starts fast (standard library and msgspec only: nothing of the gateway may
be imported here) and writes exactly what its prompt says, so it serves as example, test double and load generator.

Any other line is echoed. With ``--steer``, a steer is executed at the next break point: between two commands, between
two chunks of ``stream``, inside ``sleep``; never inside a tool or while a request is open. In the mode ``ask`` a
``tool`` asks first. What the agent writes between two waits leaves in one write, the last update and the response too.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from adapters.acp.demo_state import History, expand
from adapters.acp.demo_turns import COMMANDS, Agent, Fault, Session, Turn

Json = dict[str, Any]
FLAGS = {"--no-ids", "--steer", "--load", "--no-load", "--mute"}

HELP = """\
Usage: trunkline demo-agent [--steer] [--no-ids] [--no-load] [--mute]

A scripted agent that speaks ACP v1 on stdin and stdout. It needs no model, no key and no network.

Flags:
  --steer     take steers: a message that joins the running turn at its next break point
  --no-ids    give messages no ids
  --no-load   forget sessions at the end, and load none (--load, the default, keeps them)
  --mute      answer nothing at all
  -h, --help  this text

A prompt is a script, one command a line. A line that is none is echoed.
  say TEXT         the text
  think TEXT       the text, as a thought
  stream N MS      N chunks of text, MS milliseconds apart
  flood N          N chunks of text, as fast as it can
  big BYTES        one chunk of that size
  plan A|B         a plan with these entries
  sleep MS         wait
  tool TITLE [MS]  a tool call that takes MS milliseconds; in the mode "ask" it asks for permission first
  ask TITLE        a tool call that asks for permission
  form TITLE       ask for a text, where the client can show a form
  child NAME       a subagent at work, where the client knows them, else a tool call
  late TEXT        the text, after the turn has ended
  noise            lines that are no messages
  refuse           end the turn as refused
  crash            exit at once, with status 1
  hang             never end, not even when told to cancel

Environment:
  TRUNKLINE_DEMO_STATE  the folder of its sessions [~/.cache/trunkline-demo]
"""


def state_dir() -> Path:
    """Where histories are kept: TRUNKLINE_DEMO_STATE, else a folder of the user's cache."""
    return Path(os.environ.get("TRUNKLINE_DEMO_STATE") or Path.home() / ".cache" / "trunkline-demo")


def serve(agent: Agent) -> int:
    """Read stdin to its end. A running turn is cancelled then; only ``hang`` keeps the process."""
    for line in sys.stdin.buffer:
        if agent.mute:
            continue
        try:
            message = msgspec.json.decode(line)
        except msgspec.DecodeError:
            if line.strip():
                agent.send({"id": None, "error": {"code": -32700, "message": "Parse error"}}, flush=True)
            continue
        if not isinstance(message, dict):
            agent.send({"id": None, "error": {"code": -32600, "message": "Invalid request"}}, flush=True)
        elif "method" in message:
            _called(agent, message)
        elif isinstance(message.get("id"), int):
            with agent.cond:
                agent.answers[message["id"]] = message.get("result")
                agent.cond.notify_all()
    if agent.hanging:
        threading.Event().wait()
    for session in agent.sessions.values():
        _cancel(agent, session)
    for session in agent.sessions.values():
        worker = session.worker
        if worker:
            worker.join(1)  # what it said is in its history then
    os._exit(0)


def _called(agent: Agent, message: Json) -> None:
    request = message.get("id")
    params = message.get("params") or {}
    try:
        result = _handle(agent, message["method"], params, request)
    except Fault as fault:
        if "id" in message:
            agent.send({"id": request, "error": fault.error}, flush=True)
        return
    except (KeyError, TypeError, ValueError) as error:
        if "id" in message:
            agent.send({"id": request, "error": {"code": -32602, "message": f"Invalid params: {error}"}}, flush=True)
        return
    if result is not None:
        agent.send({"id": request, "result": result})
        if message["method"] in ("session/new", "session/load", "session/resume"):
            session_id = result.get("sessionId") or params["sessionId"]
            commands = [{"name": name, "description": f"The demo command {name}"} for name in COMMANDS]
            agent.update(session_id, {"sessionUpdate": "available_commands_update", "availableCommands": commands})
        agent.flush()


def _handle(agent: Agent, method: str, params: Json, request: Any) -> Json | None:
    """The result, or None where there is none (yet)."""
    match method:
        case "initialize":
            return _initialize(agent, params)
        case "session/new":
            return _new(agent, params)
        case "session/load" | "session/resume" if agent.load:
            session = _load(agent, params["sessionId"])
            if method == "session/load":
                for update in session.history.updates:
                    for each in expand(update):
                        if not agent.ids:
                            each.pop("messageId", None)
                        agent.update(session.id, each)
            return session.state()
        case "session/prompt":
            _prompt(agent, _known(agent, params), params, request)
            return None
        case "_session/steering" if agent.steer:
            return _steer(agent, _known(agent, params), params, request)
        case "session/cancel":
            _cancel(agent, _known(agent, params))
            return None
        case "session/close":
            session = _known(agent, params)
            _cancel(agent, session)
            del agent.sessions[session.id]
            return {}
        case "session/set_mode":
            session = _known(agent, params)
            if params["modeId"] not in ("code", "ask"):
                raise Fault(-32602, "Invalid params: unknown mode", {"modeId": params["modeId"]})
            session.history.set(mode=params["modeId"])
            agent.update(session.id, {"sessionUpdate": "current_mode_update", "currentModeId": params["modeId"]})
            return {}
        case "session/set_config_option":
            session = _known(agent, params)
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


def _initialize(agent: Agent, params: Json) -> Json:
    agent.client = params.get("clientCapabilities") or {}
    capabilities: Json = {
        "loadSession": agent.load,
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
        "sessionCapabilities": {"close": {}, **({"resume": {}} if agent.load else {})},
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


def _new(agent: Agent, params: Json) -> Json:
    if not os.path.isabs(params["cwd"]) or not isinstance(params["mcpServers"], list):
        raise ValueError("cwd must be absolute, mcpServers a list")
    session_id = "demo_" + agent.mint.message()[4:]
    path = state_dir() / f"{session_id}.jsonl" if agent.load else None
    session = agent.sessions[session_id] = Session(session_id, History(path, {}))
    session.history.set(mode="code", model="quick", cwd=params["cwd"])
    return {"sessionId": session_id, **session.state()}


def _load(agent: Agent, session_id: str) -> Session:
    if session_id in agent.sessions:
        return agent.sessions[session_id]
    safe = session_id.startswith("demo_") and session_id.replace("_", "").isalnum()
    history = History.read(state_dir() / f"{session_id}.jsonl") if safe else None
    if history is None:
        raise Fault(-32002, "Session not found", {"sessionId": session_id})
    session = agent.sessions[session_id] = Session(session_id, history)
    return session


def _known(agent: Agent, params: Json) -> Session:
    session = agent.sessions.get(params["sessionId"])
    if session is None:
        raise Fault(-32002, "Session not found", {"sessionId": params["sessionId"]})
    return session


def _prompt(agent: Agent, session: Session, params: Json, request: Any, detached: bool = False) -> None:
    prompt = params["prompt"]
    if not isinstance(prompt, list) or not all(isinstance(block, dict) for block in prompt):
        raise ValueError("prompt must be a list of content blocks")
    _enqueue(agent, session, Turn(request, prompt, detached))


def _enqueue(agent: Agent, session: Session, turn: Turn) -> None:
    with agent.cond:
        session.turns.append(turn)
        if session.worker is None:
            session.worker = threading.Thread(target=agent.work, args=(session,), daemon=True)
            session.worker.start()


def _steer(agent: Agent, session: Session, params: Json, request: Any) -> Json | None:
    prompt = params["prompt"]
    if not isinstance(prompt, list) or not prompt:
        raise ValueError("prompt must be a non-empty list of content blocks")
    idle = ((params.get("_meta") or {}).get("steering") or {}).get("idleBehavior")
    if idle not in (None, "promptRequired"):
        raise ValueError("unknown idleBehavior")
    with agent.cond:
        turn = session.running or (session.turns[0] if session.turns else None)  # one may just be about to begin
        if turn is not None and not turn.cancelled:
            turn.steers.append((request, prompt))
            agent.cond.notify_all()
            return None
    if idle == "promptRequired":
        return {"outcome": "promptRequired", "reason": "noRunningTurn"}
    _prompt(agent, session, params, None, detached=True)
    return {"outcome": "startedNewTurn"}


def _cancel(agent: Agent, session: Session) -> None:
    """Ends the running turn and those that wait behind it."""
    with agent.cond:
        for turn in (session.running, *session.turns):
            if turn is not None:
                turn.cancelled = True
        agent.cond.notify_all()


def main(argv: list[str] | None = None) -> int:
    """Serve stdin until it ends. Returns the exit status."""
    flags = set(sys.argv[1:] if argv is None else argv)
    if flags & {"--help", "-h"}:
        sys.stdout.write(HELP)
        return 0
    unknown = flags - FLAGS
    if unknown:
        sys.stderr.write(f"demo agent: unknown flag {sorted(unknown)[0]}; --help tells them\n")
        return 2
    return serve(Agent(flags))


if __name__ == "__main__":
    sys.exit(main())
