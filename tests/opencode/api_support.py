"""What the tests of version 2 share: frames of its streams, and what a client keeps of them."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from adapters.opencode.api.streams import StreamsV2
from adapters.opencode.translate_messages import Messages
from adapters.opencode.translate_v2 import TranslatorV2
from gateway.controller import SessionController
from gateway.core.ids import SessionId
from tests.opencode.support import task

Json = dict[str, Any]


def streams(controller: SessionController) -> StreamsV2:
    return StreamsV2(controller, TranslatorV2(Messages(controller.default_agent)))


def frames(data: bytes) -> list[tuple[str, Json]]:
    """Id (empty without one) and event of each frame; comments are left out."""
    assert data.endswith(b"\n\n")
    found = []
    for text in data.decode()[:-2].split("\n\n"):
        lines = text.split("\n")
        if lines[0].startswith(":"):
            continue
        cursor = lines.pop(0)[4:] if lines[0].startswith("id: ") else ""
        [body] = lines
        assert body.startswith("data: "), text
        found.append((cursor, json.loads(body[6:])))
    return found


class Reader:
    """A stream taken apart."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.seen: list[tuple[str, Json]] = []
        self._reading: asyncio.Task[bytes] | None = None

    @property
    def events(self) -> list[Json]:
        return [event for _, event in self.seen]

    async def more(self) -> bool:
        """One piece more; False at the end."""
        if self._reading is None:
            self._reading = task(anext(self._source))
        async with asyncio.timeout(20):
            await asyncio.wait([self._reading])
        done, self._reading = self._reading, None
        try:
            self.seen += frames(done.result())
        except StopAsyncIteration:
            return False
        return True

    async def until(self, kind: str, count: int = 1) -> list[Json]:
        while sum(event["type"] == kind for event in self.events) < count:
            assert await self.more(), f"the stream ended before {count} {kind}"
        return self.events

    async def upto(self, seq: int) -> list[tuple[str, Json]]:
        """Durable: until this number was seen."""
        while not self.seen or int(self.seen[-1][0]) < seq:
            assert await self.more(), f"the stream ended before {seq}"
        return self.seen

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._source.aclose()


async def durable(found: StreamsV2, session_id: str, after: int, upto: int) -> list[tuple[str, Json]]:
    """The durable stream from one number to another."""
    reader = Reader(await found.durable(SessionId(session_id), after))
    try:
        return await reader.upto(upto) if after < upto else []
    finally:
        await reader.close()


async def history(http: Any, session_id: str, after: int = 0, limit: int = 100) -> list[Json]:
    """All pages of it."""
    found: list[Json] = []
    while True:
        answer = await http.get(f"/api/session/{session_id}/history", params={"after": after, "limit": limit})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["data"]) <= limit
        found += page["data"]
        if not page["hasMore"]:
            return found
        after = page["data"][-1]["durable"]["seq"]


async def messages(http: Any, session_id: str, **query: Any) -> list[Json]:
    answer = await http.get(f"/api/session/{session_id}/message", params={"order": "asc", "limit": 200, **query})
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["data"]
    return found


# --- a client ------------------------------------------------------------------------------------------------------


class Fold:
    """What a client of the durable events holds: messages in the order of their events."""

    def __init__(self) -> None:
        self.messages: dict[str, Json] = {}
        self.pending: dict[str, Json] = {}

    def feed(self, events: Iterable[Json]) -> "Fold":
        for event in events:
            self._one(event["type"].removeprefix("session.next."), event["data"])
        return self

    def _one(self, kind: str, data: Json) -> None:
        match kind:
            case "prompt.admitted":
                self.pending[data["messageID"]] = {"delivery": data["delivery"], "prompt": data["prompt"]}
            case "pending.updated":
                waiting = self.pending.setdefault(data["messageID"], {})
                waiting |= {key: data[key] for key in ("delivery", "prompt") if key in data}
                if data["change"] == "revoked":
                    del self.pending[data["messageID"]]
            case "prompted":
                self.pending.pop(data["messageID"], None)
                assert data["messageID"] not in self.messages, "delivered twice"
                self.messages[data["messageID"]] = {"type": "user", **data["prompt"]}
            case "step.started":
                assert data["assistantMessageID"] not in self.messages, "opened twice"
                self.messages[data["assistantMessageID"]] = {"type": "assistant", "content": {}}
            case "step.ended":
                self._step(data)["finish"] = data["finish"]
            case "step.failed":
                self._step(data).update(finish="error", error=data["error"])
            case "text.started" | "reasoning.started":
                self._content(data)[_id(data)] = {"type": kind.partition(".")[0], "text": ""}
            case "text.delta" | "reasoning.delta":
                self._content(data)[_id(data)]["text"] += data["delta"]
            case "text.ended" | "reasoning.ended":
                self._content(data)[_id(data)]["text"] = data["text"]
            case "tool.input.started":
                self._content(data)[data["callID"]] = {"type": "tool", "name": data["name"], "status": "pending"}
            case "tool.called":
                self._content(data)[data["callID"]] |= {"status": "running", "input": data["input"]}
            case "tool.progress":
                assert self._content(data)[data["callID"]]["status"] == "running"
            case "tool.success":
                self._content(data)[data["callID"]] |= {"status": "completed", "content": data["content"]}
            case "tool.failed":
                self._content(data)[data["callID"]] |= {"status": "error", "error": data["error"]}

    def _step(self, data: Json) -> Json:
        return self.messages[data["assistantMessageID"]]

    def _content(self, data: Json) -> Json:
        content: Json = self._step(data)["content"]
        return content

    def shown(self) -> list[Json]:
        return [{"id": key, **value} for key, value in self.messages.items()]


def _id(data: Json) -> str:
    return str(data.get("textID") or data["reasoningID"])


def plain(listed: Iterable[Json]) -> list[Json]:
    """Messages of a GET as ``Fold.shown`` has them."""
    found = []
    for message in listed:
        kept: Json = {key: message[key] for key in ("id", "type", "text", "files", "finish", "error") if key in message}
        if message["type"] == "assistant":
            kept["content"] = {part["id"]: _part(part) for part in message["content"]}
        found.append(kept)
    return found


def _part(part: Json) -> Json:
    if part["type"] != "tool":
        return {"type": part["type"], "text": part["text"]}
    state = part["state"]
    kept = {"type": "tool", "name": part["name"], "status": state["status"]}
    kept |= {"input": state["input"]} if state["status"] != "pending" else {}
    match state["status"]:
        case "completed":
            kept["content"] = state["content"]
        case "error":
            kept["error"] = state["error"]
    return kept
