"""Clients that only look: each folds what its wire sends, as the real ones do, and says it as lines.

``open`` attaches, ``cut`` drops the connection in the middle of whatever comes, ``catch_up`` attaches again
if it has to. ``lines`` and ``pending`` are what the client would show now.
"""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx

from gateway.core.model import Pending
from gateway.core.transcript import Transcript
from tests.acp.clients.raw import Client as AcpClient
from tests.acp.clients.raw import client as acp_client
from tests.agui.client import Client as AguiClient
from tests.opencode.support import Store
from tests.wires import lines as ln
from tests.wires.house import House
from tests.wires.lines import Lines

Json = dict[str, Any]


class Eye:
    """``name`` of the wire. ``told`` is set whenever something came."""

    name = ""
    ascending = False  # user messages have OpenCode's ids

    def __init__(self, house: House, session_id: str) -> None:
        self.house = house
        self.session_id = session_id
        self.told = asyncio.Event()

    async def open(self) -> None: ...

    async def cut(self) -> None: ...

    async def catch_up(self) -> None: ...

    def lines(self) -> list[str]:
        raise NotImplementedError

    def pending(self) -> list[str] | None:
        """None where the wire has no words for it."""
        return None

    def true_lines(self, transcript: Transcript, pending: list[Pending]) -> list[str]:
        return ln.of_transcript(transcript, self.ascending)

    def same(self, transcript: Transcript, pending: list[Pending]) -> str:
        """Empty, or what is different."""
        found = different(self.true_lines(transcript, pending), self.lines())
        waits = self.pending()
        if not found and waits is not None:
            found = different(ln.of_pending(pending, self.ascending), waits)
        return found

    async def __aenter__(self) -> "Eye":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()


def waiting(name: str, lane: str, state: str, held: str | None, text: str) -> str:
    """As ``lines.of_pending``; some wires say ``held`` for a state of its own."""
    return f"{name} {lane} {'pending' if state == 'held' else state} {held or ''} {text}"


def different(true: list[str], shown: list[str]) -> str:
    if true == shown:
        return ""
    at = next((i for i, (a, b) in enumerate(zip(true, shown, strict=False)) if a != b), min(len(true), len(shown)))
    return "\n".join(
        [
            f"line {at}:",
            *(f"   is    {x[:160]}" for x in true[at : at + 6]),
            *(f"   shown {x[:160]}" for x in shown[at : at + 6]),
        ]
    )


# --- ACP -------------------------------------------------------------------------------------------------------------


class Acp(Eye):
    """A client loads the session whenever it connects: its history is what it was told since."""

    version = 1

    def __init__(self, house: House, session_id: str) -> None:
        super().__init__(house, session_id)
        self._stack = AsyncExitStack()
        self.client: AcpClient | None = None
        self.name = f"ACP v{self.version}"

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        one = await self._stack.enter_async_context(acp_client(self.house.url, self.version))
        self.client, one.session = one, self.session_id
        one.answer = lambda message: None  # it only looks
        where: Json = {"sessionId": self.session_id, "cwd": str(self.house.workspace)}
        if self.version == 1:
            await one.call("session/load", **where, mcpServers=[])
        else:
            await one.call("session/resume", **where, replayFrom={"type": "start"})

    async def cut(self) -> None:
        self.client = None
        await self._stack.aclose()

    async def catch_up(self) -> None:
        if self.client is None or self.client.failed is not None:
            await self.cut()
            await self.open()

    def lines(self) -> list[str]:
        assert self.client is not None
        return acp_lines(self.client, self.session_id).told()

    def pending(self) -> list[str] | None:
        assert self.client is not None
        told = [m["params"]["pending"] for m in self.client.got if m.get("method") == "_trunkline/pending"]
        return [
            waiting(
                m["messageId"], m["mode"], m["state"], m.get("held"), "".join(b.get("text", "") for b in m["content"])
            )
            for m in (told[-1] if told else [])
        ]


class AcpV1(Acp):
    version = 1


class AcpV2(Acp):
    version = 2


def acp_lines(client: AcpClient, session_id: str) -> Lines:
    """The fold of an ACP client, both versions."""
    lines = Lines()
    kinds = {"user": "user", "agent": "agent"}
    for update in client.updates(session=session_id):
        kind = update["sessionUpdate"]
        match kind:
            case "user_message_chunk" | "agent_message_chunk":
                lines.say(kinds[kind.partition("_")[0]], update["messageId"], update["content"].get("text", ""))
            case "agent_thought_chunk":
                lines.say("thought", update["messageId"], update["content"].get("text", ""))
            case "user_message" | "agent_message" | "agent_thought":
                role = {"user_message": "user", "agent_message": "agent", "agent_thought": "thought"}[kind]
                content = update.get("content")
                if content is not None:
                    text = "".join(block.get("text", "") for block in content)
                    lines.set(role, update["messageId"], text)
            case "tool_call" | "tool_call_update":
                lines.tool(update["toolCallId"], update.get("status"), update.get("title"))
    return lines


# --- OpenCode --------------------------------------------------------------------------------------------------------


class Sse(Eye):
    """A stream that a task reads; ``cut`` closes the connection, and the cursor of the last whole frame is kept."""

    def __init__(self, house: House, session_id: str) -> None:
        super().__init__(house, session_id)
        self.cursor = ""
        self._task: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None

    def request(self) -> Json:
        raise NotImplementedError

    def take(self, event: Json) -> None:
        raise NotImplementedError

    async def open(self) -> None:
        opened = asyncio.Event()
        self._task = self.house.tasks.start(self._read(opened), name=self.name)
        await opened.wait()

    async def _read(self, opened: asyncio.Event) -> None:
        asked = self.request()
        headers = {"last-event-id": self.cursor} if self.cursor else {}
        try:
            async with self.house.http.stream(**asked, headers=headers, timeout=None) as answer:
                assert answer.status_code == 200, (await answer.aread())[:500]
                cursor = ""
                opened.set()
                async for line in answer.aiter_lines():
                    if line.startswith("id:"):
                        cursor = line[3:].strip()
                    elif line.startswith("data:"):
                        self.take(json.loads(line[5:]))
                        self.cursor = cursor or self.cursor
                        self.told.set()
        except (httpx.HTTPError, RuntimeError):
            pass  # cut, or the gateway ended
        except AssertionError as wrong:
            self._failed = wrong
        finally:
            opened.set()
            self.told.set()

    async def cut(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def catch_up(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._task is None or self._task.done():
            await self.open()


class OpenCodeV1(Sse):
    """The terminal client's store, fed by ``/global/event``."""

    name = "OpenCode v1"
    ascending = True

    def __init__(self, house: House, session_id: str) -> None:
        super().__init__(house, session_id)
        self.store = Store()
        self.waits: dict[str, Json] = {}

    def request(self) -> Json:
        return {"method": "GET", "url": "/global/event"}

    async def open(self) -> None:
        new = not self.cursor
        await super().open()
        if new:  # the stream tells of recent sessions; of this one the client wants all
            answer = await self.house.http.get(f"/session/{self.session_id}/message")
            for message in answer.json():
                self.store.feed({"type": "message.updated", "properties": {"info": message["info"]}})
                for part in message["parts"]:
                    self.store.feed({"type": "message.part.updated", "properties": {"part": part}})

    def take(self, event: Json) -> None:
        payload = event["payload"]
        self.store.feed(payload)
        if payload["type"] == "message.pending.updated" and payload["properties"]["sessionID"] == self.session_id:
            told = payload["properties"]
            if told["state"] in ("delivered", "revoked"):
                self.waits.pop(told["messageID"], None)
            else:
                self.waits[told["messageID"]] = told

    def lines(self) -> list[str]:
        return opencode_lines(self.store.messages(self.session_id))

    def true_lines(self, transcript: Transcript, pending: list[Pending]) -> list[str]:
        """What waits is last in the list. A call that failed has no title there."""
        told = [*ln.of_transcript(transcript, True)]
        told = [" ".join(line.split(" ")[:3]) if is_bad(line) else line for line in told]
        return [*told, *(f"user {m.ascending_id} {ln.text_of(m.content)}" for m in pending)]


def is_bad(line: str) -> bool:
    return line.startswith("tool ") and line.split(" ")[2] == ln.BAD


def opencode_lines(messages: list[Json]) -> list[str]:
    lines = Lines()
    for message in messages:
        info = message["info"]
        for part in message["parts"]:
            name = (part.get("metadata") or {}).get("messageId") or info["id"]
            match part["type"]:
                case "text" if info["role"] == "user":
                    lines.say("user", info["id"], part["text"])
                case "text":
                    lines.say((part.get("metadata") or {}).get("role") or "agent", name, part["text"])
                case "reasoning":
                    lines.say("thought", name, part["text"])
                case "tool":
                    state = part["state"]
                    lines.tool(part["callID"], state["status"], state.get("title") or part["tool"])
    return [" ".join(line.split(" ")[:3]) if is_bad(line) else line for line in lines.told()]


class OpenCodeV2(Sse):
    """The durable stream of a session, from its beginning; it tells whole texts, and steps by their ids."""

    name = "OpenCode v2"
    ascending = True

    def __init__(self, house: House, session_id: str) -> None:
        super().__init__(house, session_id)
        self.rows = Lines()
        self.waits: dict[str, list[str]] = {}  # lane, state, held, text
        self.listed: list[str] | None = None

    def request(self) -> Json:
        return {"method": "GET", "url": f"/api/session/{self.session_id}/event?after=0"}

    async def catch_up(self) -> None:
        await super().catch_up()
        answer = await self.house.http.get(f"/api/session/{self.session_id}/message?order=asc&limit=200")
        self.listed = opencode_v2_lines(answer.json()["data"])

    def take(self, event: Json) -> None:
        data, kind = event["data"], event["type"].removeprefix("session.next.")
        name, step = data.get("messageID", ""), data.get("assistantMessageID", "")
        match kind:
            case "prompt.admitted":
                self.waits[name] = [data["delivery"], "pending", "", data["prompt"]["text"]]
            case "prompted":
                self.waits.pop(name, None)
                self.rows.say("user", name, data["prompt"]["text"])
            case "pending.updated":
                self._change(self.waits.get(name, ["", "", "", ""]), name, data)
            case "text.started" | "reasoning.started":
                self.rows.rows.append([kind.partition(".")[0], data.get("textID") or data["reasoningID"], "", step])
            case "text.ended" | "reasoning.ended":
                part = data.get("textID") or data["reasoningID"]
                row = next(row for row in self.rows.rows if row[1] == part)
                row[2] = data["text"]
            case "tool.input.started":
                self.rows.tool(data["callID"], "pending", None)
            case "tool.called":
                self.rows.tool(data["callID"], "running", None)
            case "tool.success":
                self.rows.tool(data["callID"], "completed", None)
            case "tool.failed":
                self.rows.tool(data["callID"], "failed", None)

    def _change(self, entry: list[str], name: str, data: Json) -> None:
        match data["change"]:
            case "revoked":
                self.waits.pop(name, None)
            case "replaced":
                entry[3] = data["prompt"]["text"]
            case "promoted" | "demoted":
                entry[0] = data["delivery"]
            case "held":
                entry[2] = data["held"]
            case "released":
                entry[2] = ""
            case "offered":
                entry[1] = "offered"
            case "returned":
                entry[1:3] = ["pending", data.get("held", "")]

    def lines(self) -> list[str]:
        told = Lines()
        for row in self.rows.rows:
            if row[0] == "tool":
                told.rows.append(row[:3])
            elif row[0] == "user":
                told.say(*row[:3])
            else:
                told.say("thought" if row[0] == "reasoning" else "agent", row[3], row[2])
        return [line.rstrip() for line in told.told()]

    def true_lines(self, transcript: Transcript, pending: list[Pending]) -> list[str]:
        return [line.rstrip() for line in ln.of_steps(transcript)]

    def same(self, transcript: Transcript, pending: list[Pending]) -> str:
        true = self.true_lines(transcript, pending)
        waits = [" ".join([name, *row]) for name, row in self.waits.items()]
        found = different(true, self.lines()) or different(sorted(ln.of_pending(pending, True)), sorted(waits))
        return found or different(true, self.listed or [])


def opencode_v2_lines(messages: list[Json]) -> list[str]:
    lines = Lines()
    for message in messages:
        if message["type"] == "user":
            lines.say("user", message["id"], message["text"])
            continue
        for part in message["content"]:
            if part["type"] == "tool":
                lines.tool(part["id"], part["state"]["status"], None)
            else:
                lines.say("thought" if part["type"] == "reasoning" else "agent", message["id"], part["text"])
    return [line.rstrip() for line in lines.told()]


# --- AG-UI -----------------------------------------------------------------------------------------------------------


class Agui(Sse):
    """A client that connects again whenever its stream has ended: a stream is one run."""

    name = "AG-UI"

    def __init__(self, house: House, session_id: str) -> None:
        super().__init__(house, session_id)
        self.client = AguiClient()
        self.runs = 0

    def request(self) -> Json:
        self.client.stream()
        self.runs += 1
        body = {"threadId": self.session_id, "runId": f"look-{self.runs}", "protocolVersion": "1.0", "state": {}}
        body |= {"messages": [], "tools": [], "context": [], "forwardedProps": {}}
        return {"method": "POST", "url": "/agui/agent/connect", "json": body}

    def take(self, event: Json) -> None:
        self.client.take(event)

    def lines(self) -> list[str]:
        return agui_lines(self.client.messages)

    def same(self, transcript: Transcript, pending: list[Pending]) -> str:
        true, shown = ln.apart(self.true_lines(transcript, pending)), ln.apart(self.lines())
        found = different(true[0], shown[0]) or different(
            [t.split(" ")[1] for t in true[1]], [t.split(" ")[1] for t in shown[1]]
        )
        waits = [
            waiting(m["id"], m["delivery"], m["state"], m["held"], m["text"])
            for m in self.client.state.get("pending", {}).values()
        ]
        return found or different(sorted(ln.of_pending(pending, False)), sorted(waits))


def agui_lines(messages: list[Json]) -> list[str]:
    lines = Lines()
    for message in messages:
        name = message["id"]
        match message["role"]:
            case "user":
                content = message["content"]
                lines.say(
                    "user", name, content if isinstance(content, str) else "".join(p.get("text", "") for p in content)
                )
            case "reasoning":
                lines.say("thought", name.removeprefix("r-").partition("#")[0], message["content"])
            case "assistant":
                if message.get("content"):
                    lines.say("agent", name.partition("#")[0], message["content"])
                for call in message.get("toolCalls", ()):
                    lines.tool(call["id"], None, call["function"]["name"])
    return lines.told()
