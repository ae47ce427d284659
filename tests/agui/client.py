"""A client of AG-UI in Python, as strict as the official ones: what they reject raises here, and what they warn of.

The rules are those of the verifier and the reducer of ``@ag-ui/client``; the real ones are run in
``test_real_clients.py``.
"""

import copy
from typing import Any

import msgspec
from ag_ui.core import Event
from pydantic import TypeAdapter

Json = dict[str, Any]
_shape: TypeAdapter[Any] = TypeAdapter(Event)


class Rejected(AssertionError):
    pass


def reject(why: str) -> None:
    raise Rejected(why)


class Rules:
    """The sequence rules of one stream."""

    def __init__(self, modern: bool = True) -> None:
        self.modern = modern
        self.running = False
        self.first = True
        self.open: dict[str, set[str]] = {}
        self.owner: dict[str, str | None] = {}
        self.subagents: set[str] = set()
        self.ended: set[str] = set()
        self.results: set[str] = set()
        self.finished = 0

    def of(self, kind: str) -> set[str]:
        return self.open.setdefault(kind, set())

    def check(self, e: Json) -> None:
        kind = e["type"]
        if self.first and kind not in ("RUN_STARTED", "RUN_ERROR"):
            reject(f"First event must be RUN_STARTED, not {kind}")
        self.first = False
        if not self.running and kind not in ("RUN_STARTED", "RUN_ERROR"):
            reject(f"{kind} outside of a run")
        match kind:
            case "RUN_STARTED":
                if self.running:
                    reject("RUN_STARTED while a run is active")
                self.running = True
                self.subagents, self.ended, self.results = set(), set(), set()
                if (e.get("protocolVersion") is not None) != self.modern:
                    reject("protocolVersion is for clients that know it")
            case "RUN_FINISHED" | "RUN_ERROR":
                still = {name: ids for name, ids in self.open.items() if ids}
                if still or self.subagents:
                    reject(f"{kind} while {still or self.subagents} are open")
                if not self.modern and (e.get("outcome") or {}).get("type") == "cancelled":
                    reject("0.0.59 knows no cancelled")
                self.running = False
                self.finished += 1
            case "TEXT_MESSAGE_START":
                self._open("text", e["messageId"], e)
            case "TEXT_MESSAGE_CONTENT":
                self._in("text", e["messageId"], e)
            case "TEXT_MESSAGE_END":
                self._close("text", e["messageId"], e)
            case "REASONING_START":
                self._open("span", e["messageId"], e)
            case "REASONING_MESSAGE_START":
                if e.get("role") != "reasoning":
                    reject("reasoning needs its role")
                self._open("reasoning", e["messageId"], e)
            case "REASONING_MESSAGE_CONTENT":
                self._in("reasoning", e["messageId"], e)
            case "REASONING_MESSAGE_END":
                self._close("reasoning", e["messageId"], e)
            case "REASONING_END":
                self._close("span", e["messageId"], e)
            case "TOOL_CALL_START":
                self._open("tool", e["toolCallId"], e)
            case "TOOL_CALL_ARGS":
                self._in("tool", e["toolCallId"], e)
            case "TOOL_CALL_END":
                self._close("tool", e["toolCallId"], e)
            case "TOOL_CALL_RESULT":
                if e["toolCallId"] in self.results:
                    reject(f"a second result of {e['toolCallId']}")
                self.results.add(e["toolCallId"])
                if not isinstance(e["content"], str):
                    reject("0.0.59 takes results as strings only")
            case "SUBAGENT_STARTED":
                if not self.modern:
                    reject("SUBAGENT_* is for 1.0")
                if e["subagentRunId"] in self.subagents | self.ended:
                    reject(f"subagent {e['subagentRunId']} started twice")
                self.subagents.add(e["subagentRunId"])
            case "SUBAGENT_FINISHED" | "SUBAGENT_ERROR":
                if e["subagentRunId"] not in self.subagents:
                    reject(f"subagent {e['subagentRunId']} is not open")
                self.subagents.discard(e["subagentRunId"])
                self.ended.add(e["subagentRunId"])
            case _:
                pass

    def _open(self, kind: str, name: str, e: Json) -> None:
        if name in self.of(kind):
            reject(f"{e['type']}: {name} is open already")
        self.of(kind).add(name)
        self.owner[f"{kind} {name}"] = e.get("subagentRunId")

    def _in(self, kind: str, name: str, e: Json) -> None:
        if name not in self.of(kind):
            reject(f"{e['type']}: {name} is not open")
        if self.owner[f"{kind} {name}"] != e.get("subagentRunId"):
            reject(f"{e['type']}: {name} is another agent's")

    def _close(self, kind: str, name: str, e: Json) -> None:
        self._in(kind, name, e)
        self.of(kind).discard(name)


def shaped(e: Json) -> None:
    """The official models take it, and nothing is null where a field may be left out."""
    _shape.validate_python(e)
    for key, value in e.items():
        if value is None and not (e["type"] == "CUSTOM" and key == "value"):
            reject(f"{e['type']}.{key} is null")


def patched(document: Any, ops: list[Json]) -> Any:
    document = copy.deepcopy(document)
    for op in ops:
        *path, last = [step.replace("~1", "/").replace("~0", "~") for step in op["path"].split("/")[1:]]
        target = document
        for step in path:
            target = target[int(step)] if isinstance(target, list) else target[step]
        if op["op"] == "add":
            if isinstance(target, list):
                assert last == "-", op
                target.append(op["value"])
            else:
                target[last] = op["value"]
        elif op["op"] == "remove":
            del target[last]
        else:
            reject(f"unknown op {op}")
    return document


class Client:
    """One client: its messages and state through any number of streams. ``stream()`` begins another one."""

    def __init__(self, modern: bool = True) -> None:
        self.modern = modern
        self.messages: list[Json] = []
        self.state: Json = {}
        self.interrupts: list[Json] = []
        self.last: Json = {}
        self.rules = Rules(modern)

    def stream(self) -> "Client":
        self.rules = Rules(self.modern)
        return self

    def find(self, name: str) -> Json | None:
        return next((m for m in self.messages if m["id"] == name), None)

    def take(self, e: Json) -> None:
        shaped(e)
        self.rules.check(e)
        self.last = e
        match e["type"]:
            case "RUN_STARTED":
                for message in (e.get("input") or {}).get("messages", ()):
                    if self.find(message["id"]) is None:
                        self.messages.append(copy.deepcopy(message))
            case "RUN_FINISHED":
                self.interrupts = (e.get("outcome") or {}).get("interrupts", [])
            case "TEXT_MESSAGE_START":
                self._text(e, e["role"])
            case "REASONING_MESSAGE_START":
                self._text(e, "reasoning")
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                message = self.find(e["messageId"])
                assert message is not None
                message["content"] = (message.get("content") or "") + e["delta"]
            case "TOOL_CALL_START":
                self._tool(e)
            case "TOOL_CALL_ARGS":
                self._call(e["toolCallId"])["function"]["arguments"] += e["delta"]
            case "TOOL_CALL_RESULT":
                self._result(e)
            case "STATE_SNAPSHOT":
                self.state = copy.deepcopy(e["snapshot"])
            case "STATE_DELTA":
                self.state = patched(self.state, e["delta"])
            case "MESSAGES_SNAPSHOT":
                self._snapshot(e["messages"])
            case "ACTIVITY_SNAPSHOT":
                known = self.find(e["messageId"])
                made = {"id": e["messageId"], "role": "activity", "activityType": e["activityType"]}
                made["content"] = copy.deepcopy(e["content"])
                if e.get("subagentRunId"):
                    made["subagentRunId"] = e["subagentRunId"]
                if known is None:
                    self.messages.append(made)
                else:
                    known.clear()
                    known.update(made)
            case "ACTIVITY_DELTA":
                known = self.find(e["messageId"])
                if known is None:
                    reject(f"delta of an unknown activity {e['messageId']}")
                else:
                    known["content"] = patched(known["content"], e["patch"])
            case _:
                pass

    def _text(self, e: Json, role: str) -> None:
        known = self.find(e["messageId"])
        if known is not None:
            if known["role"] != role:
                reject(f"{e['messageId']} is a message of {known['role']}, and becomes one of {role}")
            return
        made: Json = {"id": e["messageId"], "role": role, "content": ""}
        for key in ("subagentRunId", "metadata"):
            if e.get(key):
                made[key] = e[key]
        self.messages.append(made)

    def _call(self, name: str) -> Json:
        return next(call for m in self.messages for call in m.get("toolCalls", ()) if call["id"] == name)

    def _tool(self, e: Json) -> None:
        if any(call["id"] == e["toolCallId"] for m in self.messages for call in m.get("toolCalls", ())):
            return
        parent = self.find(e["parentMessageId"])
        if parent is None:
            parent = {"id": e["parentMessageId"], "role": "assistant"}
            if e.get("subagentRunId"):
                parent["subagentRunId"] = e["subagentRunId"]
            self.messages.append(parent)
        if parent["role"] != "assistant":
            reject(f"{e['parentMessageId']} is no message of the assistant")
        function = {"name": e["toolCallName"], "arguments": ""}
        made = {"id": e["toolCallId"], "type": "function", "function": function, "metadata": e["metadata"]}
        parent.setdefault("toolCalls", []).append(made)

    def _result(self, e: Json) -> None:
        if self.find(e["messageId"]) is not None:
            reject(f"a second message {e['messageId']}")
        made = {"id": e["messageId"], "role": "tool", "toolCallId": e["toolCallId"], "content": e["content"]}
        made["metadata"] = e["metadata"]
        if e.get("subagentRunId"):
            made["subagentRunId"] = e["subagentRunId"]
        for index, message in enumerate(self.messages):
            if any(call["id"] == e["toolCallId"] for call in message.get("toolCalls", ())):
                at = index + 1
                while at < len(self.messages) and self.messages[at]["role"] == "tool":
                    at += 1
                self.messages.insert(at, made)
                return
        self.messages.append(made)

    def _snapshot(self, messages: list[Json]) -> None:
        new = {m["id"]: copy.deepcopy(m) for m in messages}
        if len(new) != len(messages):
            ids = [m["id"] for m in messages]
            reject(f"twice in a snapshot: {[m for m in messages if ids.count(m['id']) > 1]}")
        roles = {m["role"] for m in messages}
        kept = [m for m in self.messages if m["id"] in new or (m["role"] in {"activity", "reasoning"} - roles)]
        kept = [new.get(m["id"], m) for m in kept]
        ids = {m["id"] for m in kept}
        self.messages = [*kept, *(m for name, m in new.items() if name not in ids)]


def frames(data: bytes) -> list[tuple[str, Json]]:
    """(id, event) of each frame of a stream; comments are left out. Only LF, each frame ended by an empty line."""
    assert b"\r" not in data
    assert data == b"" or data.endswith(b"\n\n")
    found = []
    for block in data.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            fields = dict(line.split(": ", 1) for line in lines)
            assert set(fields) <= {"id", "data"}, block
            found.append((fields.get("id", ""), msgspec.json.decode(fields["data"])))
    return found


def place(cursor: str) -> tuple[int, ...]:
    return tuple(int(word) for word in cursor.split("."))


def rising(ids: list[str]) -> None:
    places = [place(cursor) for cursor in ids]
    assert all(a < b for a, b in zip(places, places[1:], strict=False)), ids
