"""The scripted demo agent: a real ACP agent process on stdio, of version 1 or 2, whose prompts are scripts.

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
from typing import Any

import msgspec

from adapters.acp.demo_calls import cancel, handle
from adapters.acp.demo_sessions import Fault
from adapters.acp.demo_turns import COMMANDS, Agent
from adapters.acp.demo_v2 import AgentV2, handle_v2

Json = dict[str, Any]
FLAGS = {"--no-ids", "--steer", "--steering", "--load", "--no-load", "--mute"}

HELP = """\
Usage: trunkline demo-agent [--steer] [--steering] [--no-ids] [--no-load] [--mute]

A scripted agent that speaks ACP on stdin and stdout, version 1 or 2 as it is asked. It needs no model, no key and no
network.

Flags:
  --steer     take steers, messages that join the running turn at its next break point: by _session/steering on v1, by
              session/inject on v2 (revoke_inject and replace_inject too; mode queue as well)
  --steering  take steers by _session/steering on v2 too
  --no-ids    give messages no ids (v1)
  --no-load   forget sessions at the end, and load none (--load, the default, keeps them)
  --mute      answer nothing at all
  -h, --help  this text

A prompt is a script, one command a line. A line that is none is echoed.
  say TEXT         the text
  think TEXT       the text, as a thought
  stream N MS      N chunks of text, MS milliseconds apart
  flood N          N chunks of text, as fast as it can
  big BYTES        one chunk of that size
  replace A|B      a message A, whose text becomes B (v1: A, then B)
  plan A|B         a plan with these entries
  sleep MS         wait
  tool TITLE [MS]  a tool call that takes MS milliseconds; in the mode "ask" it asks for permission first
  ask TITLE        a tool call that asks for permission
  terminal MS A|B  a tool call with a terminal that shows these lines, MS milliseconds apart, and can be cancelled
                   (v1: a tool call with the lines)
  form TITLE       ask for a text, where the client can show a form
  child NAME       a subagent at work, where the client knows them, else a tool call
  background NAME MS  a subagent that works on after the turn; when it is done, the agent says so in a turn of its own
                   (v1: as child)
  wake MS TEXT     a turn of the agent's own that says the text, so long after the turn (v1: as late)
  late TEXT        the text, after the turn has ended
  noise            lines that are no messages
  fail TEXT        end the turn as an error
  refuse           end the turn as refused
  crash            exit at once, with status 1
  hang             never end, not even when told to cancel

Environment:
  TRUNKLINE_DEMO_STATE  the folder of its sessions [~/.cache/trunkline-demo]
"""


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
            if message["method"] == "initialize" and (message.get("params") or {}).get("protocolVersion") == 2:
                agent = AgentV2(agent.flags)
            _called(agent, message)
        elif isinstance(message.get("id"), int):
            with agent.cond:
                agent.answers[message["id"]] = message.get("result")
                agent.cond.notify_all()
    if agent.hanging:
        threading.Event().wait()
    for session in agent.sessions.values():
        cancel(agent, session)
    for session in agent.sessions.values():
        worker = session.worker
        if worker:
            worker.join(1)  # what it said is in its history then
    os._exit(0)


def _called(agent: Agent, message: Json) -> None:
    request = message.get("id")
    params = message.get("params") or {}
    try:
        if isinstance(agent, AgentV2):
            result = handle_v2(agent, message["method"], params, request)
        else:
            result = handle(agent, message["method"], params, request)
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
