"""What two servers of the OpenCode API say of the same story, made comparable: ids by order, times by presence."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

import httpx

TIMEOUT = 400  # seconds; a loaded machine is slow, not wrong
ID = re.compile(r"\b(ses|msg|prt|per|que|evt|call)_[0-9A-Za-z_]+")
BARRIER = "the end of this story"

Json = Any


class Player:
    """One server on which a story is told: prompts go in, and everything its stream says of the session is kept."""

    def __init__(self, http: httpx.AsyncClient, tasks: asyncio.TaskGroup) -> None:
        self.http = http
        self.events: list[dict[str, Json]] = []
        self.session_id = ""
        self._tasks = tasks
        self._more = asyncio.Event()

    async def listen(self, opened: asyncio.Event) -> None:
        async with self.http.stream("GET", "/global/event", timeout=None) as answer:
            async for line in answer.aiter_lines():
                if not line.startswith("data:"):
                    continue
                event = json.loads(line[5:])["payload"]
                if event["type"] == "server.connected":
                    opened.set()
                elif self._is_mine(event):
                    self.events.append(event)
                    self._more.set()

    def _is_mine(self, event: dict[str, Json]) -> bool:
        told = event.get("properties") or {}
        inner = [told, told.get("info") or {}, told.get("part") or {}]
        return any(self.session_id and self.session_id in (one.get("sessionID"), one.get("id")) for one in inner)

    async def until(self, wanted: Callable[[dict[str, Json]], bool], what: str, after: int = 0) -> dict[str, Json]:
        """The first such event from index ``after`` on."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while True:
                    for event in self.events[after:]:
                        if wanted(event):
                            return event
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"never: {what}; seen {[event['type'] for event in self.events]}") from None

    def start(self, text: str, **body: Json) -> "asyncio.Task[httpx.Response]":
        """A prompt, answered at the end of its turn."""
        body = {"parts": [{"type": "text", "text": text}], **body}
        asked = self.http.post(f"/session/{self.session_id}/message", json=body)
        return self._tasks.create_task(_response(asked))

    async def seen(self, kind: str, count: int = 1) -> None:
        """When so many events of this type have come."""
        await self.until(lambda _: sum(e["type"] == kind for e in self.events) >= count, f"{count} of {kind}")

    async def reply(self, reply: str, number: int = 0) -> None:
        """Answer the permission that was asked as the ``number``-th."""
        await self.seen("permission.asked", number + 1)
        asked = [event for event in self.events if event["type"] == "permission.asked"][number]
        answer = await self.http.post(f"/permission/{asked['properties']['id']}/reply", json={"reply": reply})
        assert answer.status_code == 200, answer.text

    async def end(self) -> None:
        """All that belongs to the story has been seen: a mark of our own comes after it on the same stream."""
        await self.seen("session.idle")
        await self.http.patch(f"/session/{self.session_id}", json={"title": BARRIER})

        def is_mark(event: dict[str, Json]) -> bool:
            return bool(event["type"] == "session.updated" and event["properties"]["info"]["title"] == BARRIER)

        await self.until(is_mark, "the mark")
        del self.events[next(i for i, event in enumerate(self.events) if is_mark(event)) :]


async def _response(asked: Awaitable[httpx.Response]) -> httpx.Response:
    return await asked


Story = Callable[[Player], Awaitable[list[httpx.Response]]]


async def play(http: httpx.AsyncClient, story: Story, folder: str) -> dict[str, Json]:
    """``events``, ``messages``, ``answers`` (status, what it is an answer with) of a story in a new session."""
    http.timeout = TIMEOUT
    async with asyncio.TaskGroup() as tasks:
        player = Player(http, tasks)
        opened = asyncio.Event()
        listening = tasks.create_task(player.listen(opened))
        async with asyncio.timeout(TIMEOUT):
            await opened.wait()
        player.session_id = (await http.post("/session", json={})).json()["id"]
        answers = await story(player)
        await player.end()
        messages = (await http.get(f"/session/{player.session_id}/message")).json()
        listening.cancel()
    return {
        "events": player.events,
        "messages": messages,
        "answers": [[one.status_code, one.json()["info"]["id"] if one.is_success else one.json()] for one in answers],
        "folder": folder,
    }


# --- normal forms ----------------------------------------------------------------------------------------------------


def normal(story: dict[str, Json], folder: str) -> dict[str, Json]:
    """Ids by the order of the list (others: only what they are ids of), times only as being there, paths from here."""
    names: dict[str, str] = {}
    for message in story["messages"]:
        for one in [message["info"], *message["parts"]]:
            for key in ("id", "callID"):
                if key in one:
                    kind = one[key].partition("_")[0] if key == "id" else "call"
                    names.setdefault(one[key], f"{kind}#{1 + sum(n.startswith(kind) for n in names.values())}")
    return {key: _plain(story[key], names, folder) for key in ("messages", "answers")}


def _plain(value: Json, names: dict[str, str], folder: str, key: str = "") -> Json:
    if isinstance(value, dict):
        return {k: _plain(v, names, folder, "time" if key == "time" else k) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v, names, folder, key) for v in value]
    if isinstance(value, str):
        return ID.sub(lambda found: names.get(found[0], f"{found[1]}?"), value.replace(folder, "FOLDER"))
    return "a time" if key == "time" and isinstance(value, (int, float)) else value


def lines(events: list[dict[str, Json]]) -> list[str]:
    """Events as lines of what they mean, in order. Said once: the deltas of a part, each state of a tool, a user's
    message (where it is first shown), that a permission is asked and answered (of two tools at once the first may be
    done before the second is asked or after), and what is said again with nothing between. Around a permission the
    real server does several things at once: these lines are sorted. The beginning of a message is told as such: the
    real server sometimes writes it late, with what the message has become by then.
    """
    roles: dict[str, str] = {}
    shown: set[str] = set()
    told: list[str] = []
    for event in events:
        p, kind = event["properties"], event["type"]
        about = ""
        match kind:
            case _ if kind in UNORDERED:
                continue
            case "message.updated":
                info = p["info"]
                roles[info["id"]] = info["role"]
                about = info["id"] if info["role"] == "user" else ""
                begun = info["role"] == "user" or info["id"] in shown
                kind += " " + (", ".join(_state(info)) if begun else info["role"])
                shown.add(info["id"])
            case "message.part.updated":
                part = p["part"]
                kind += " " + " ".join([roles.get(part["messageID"], "?"), *_part(part)])
                about = part["id"] if part["type"] == "tool" or " user " in kind else ""
            case "message.part.delta":
                about = p["partID"]
            case "session.status":
                kind += f" {p['status']['type']}"
            case "session.error":
                kind += f" {p['error']['name']}"
            case "permission.asked":
                about = "once"
            case "permission.replied":
                kind += f" {p['reply']}"
                about = "once"
        if kind == "session.status busy" and next((t for t in reversed(told) if "session.status" in t), "") == kind:
            continue
        if (told and kind == told[-1]) or (about and kind + about in shown):
            continue
        shown.add(kind + about)
        told.append(kind)
    return [line for _, block in groupby(told, _is_at_once) for line in _block(list(block))]


AT_ONCE = (
    "tool bash pending",
    "tool bash running",
    "assistant text ended",
    "permission.asked",
    "permission.replied once",
)


def _is_at_once(line: str) -> bool:
    return line.endswith(AT_ONCE)


def _block(told: list[str]) -> list[str]:
    return sorted(set(told)) if _is_at_once(told[0]) else told


UNORDERED = {"session.created", "session.updated", "session.diff", "message.pending.updated", "message.removed"}
"""Events that one server sends at moments of its own."""


def _state(info: dict[str, Json]) -> list[str]:
    state: list[str] = [info["role"]]
    state += [f"finish {info['finish']}"] if info.get("finish") else []
    state += [f"error {info['error']['name']}"] if info.get("error") else []
    return state + (["completed"] if info["time"].get("completed") else [])


def _part(part: dict[str, Json]) -> list[str]:
    if part["type"] == "tool":
        return ["tool", part["tool"], part["state"]["status"]]
    if part["type"] in ("text", "reasoning") and "time" in part:
        return [part["type"], "ended" if part["time"].get("end") else "open"]
    return [part["type"]]


def event_differences(real: list[dict[str, Json]], ours: list[dict[str, Json]]) -> list[str]:
    """``- line``: only the real server says it there; ``+ line``: only ours. Then the fields of each type."""
    told = [lines(real), lines(ours)]
    found = []
    for what, a, b, c, d in SequenceMatcher(None, *told, autojunk=False).get_opcodes():
        if what != "equal":
            found += [f"- {line}" for line in told[0][a:b]] + [f"+ {line}" for line in told[1][c:d]]
    fields = [_fields(real), _fields(ours)]
    for kind in fields[0].keys() & fields[1].keys():
        found += [f"- {kind}.{name}" for name in fields[0][kind] - fields[1][kind]]
        found += [f"+ {kind}.{name}" for name in fields[1][kind] - fields[0][kind]]
    return found


def _fields(events: list[dict[str, Json]]) -> dict[str, set[str]]:
    """The names that events of a type have. Those of ``info`` and ``part`` are the message's, compared as such."""
    found: dict[str, set[str]] = {}
    for event in events:
        names = found.setdefault(event["type"], set())
        for name, value in event["properties"].items():
            names.add(name)
            if isinstance(value, dict) and name not in ("info", "part"):
                names |= {f"{name}.{inner}" for inner in value}
    return found


def field_differences(real: Json, ours: Json, at: str = "") -> list[str]:
    """Field by field: ``- path`` only the real one has, ``+ path`` only ours, ``path: real != ours``."""
    if isinstance(real, dict) and isinstance(ours, dict):
        found = [f"- {at}.{key}" for key in real.keys() - ours.keys()]
        found += [f"+ {at}.{key}" for key in ours.keys() - real.keys()]
        for key in real.keys() & ours.keys():
            found += field_differences(real[key], ours[key], f"{at}.{key}")
        return found
    if isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        return [
            d for i, (r, o) in enumerate(zip(real, ours, strict=True)) for d in field_differences(r, o, f"{at}[{i}]")
        ]
    return [] if real == ours else [f"{at}: {_short(real)} != {_short(ours)}"]


def _short(value: Json) -> str:
    return json.dumps(value, sort_keys=True)[:200]


def message_differences(real: list[Json], ours: list[Json]) -> list[str]:
    """Of two lists of messages: who speaks, the kinds of parts, and then each field."""
    found: list[str] = []
    roles = [[message["info"]["role"] for message in messages] for messages in (real, ours)]
    if roles[0] != roles[1]:
        return [f"messages: {roles[0]} != {roles[1]}"]
    for role, one, other in zip(roles[0], real, ours, strict=True):
        found += field_differences(one["info"], other["info"], role)
        kinds = [[part["type"] for part in message["parts"]] for message in (one, other)]
        if kinds[0] != kinds[1]:
            found.append(f"{role} parts: {', '.join(kinds[0])} != {', '.join(kinds[1])}")
            continue
        for kind, part, mine in zip(kinds[0], one["parts"], other["parts"], strict=True):
            found += field_differences(part, mine, f"{role} {kind}")
    return found
