"""Random stories of one session on every wire: made from a seed, played, judged, and made small when they fail."""

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from typing import Any, TypeAlias

from gateway.app import RUN_DIR
from gateway.core.content import text_of
from gateway.core.ids import SessionId
from gateway.views import SessionView
from tests.wires.eyes import AcpV1, AcpV2, Agui, Eye, OpenCodeV1, OpenCodeV2
from tests.wires.hands import WIRES, Hands
from tests.wires.house import House

Step: TypeAlias = tuple[Any, ...]
EYES: tuple[type[Eye], ...] = (AcpV1, AcpV2, OpenCodeV1, OpenCodeV2, Agui)
PATIENCE = 30  # seconds; a loaded machine is slow, not wrong

SCRIPTS = (
    "say {0}",
    "think hm\nsay {0}",
    "stream 6 4\nsay {0}",
    "tool look\nsay {0}",
    "ask may I\nsay {0}",
    "say {0}\nsleep 40\nsay more",
    "stream 3 5\ntool work 20\nthink so\nsay {0}",
)
WEIGHTS = {
    "submit": 20,
    "revoke": 6,
    "replace": 6,
    "steer": 2,
    "queue": 2,
    "answer": 8,
    "abort": 4,
    "cut": 6,
    "pause": 12,
    "die": 2,
    "restart": 1,
    "rest": 4,
}


class Broken(AssertionError):
    """The story shows a fault."""


# What is done while the agent asks and nothing moves: here what waits can be compared before it goes.
SCENE = {"submit": 8, "revoke": 2, "replace": 2, "steer": 3, "queue": 2, "cut": 1, "abort": 1, "die": 1}


def make(seed: int, length: int = 14) -> list[Step]:
    """A story. Every prompt has a word of its own, so that it can be found wherever it went."""
    rand = random.Random(seed)
    steps: list[Step] = []
    while len(steps) < length:
        if rand.random() < 0.12:
            steps.append(("submit", rand.choice(WIRES), "go", "queue", f"ask may I\nsay w{len(steps)}"))
            steps.append(("asked",))
            for _ in range(rand.randrange(2, 6)):
                steps.append(_step(rand, SCENE, len(steps)))
            steps.append(("look",))
        else:
            steps.append(_step(rand, WEIGHTS, len(steps)))
    return steps


def _step(rand: random.Random, weights: dict[str, int], number: int) -> Step:
    [kind] = rand.choices(list(weights), list(weights.values()))
    wire, word = rand.choice(WIRES), f"w{number}"
    match kind:
        case "submit":
            script = rand.choice(SCRIPTS).format(word)
            return (kind, wire, rand.choice(("wait", "go")), rand.choice(("steer", "queue")), script)
        case "replace":
            return (kind, wire, rand.random(), f"say {word}")
        case "revoke" | "steer" | "queue":
            return (kind, wire, rand.random())
        case "answer":
            return (kind, wire, rand.random() < 0.7)
        case "abort":
            return (kind, wire)
        case "cut":
            return (kind, rand.randrange(len(EYES)))
        case "pause":
            return (kind, rand.choice((0, 1, 5, 20, 60)))
        case _:
            return (kind,)


class Player:
    """Plays one story on a gateway that is open; a restart in it is a restart of the whole gateway."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.counts: dict[str, int] = {}
        self.eyes: list[Eye] = []

    async def play(self, steps: Sequence[Step]) -> SessionId:
        """The session, unloaded: what it has become is in the store. Raises Broken."""
        created = await self.house.http.post("/session", json={"title": "story"})
        self.session_id = SessionId(created.json()["id"])
        self.hands = Hands(self.house, self.session_id)
        self.eyes = [kind(self.house, self.session_id) for kind in EYES]
        try:
            await self.hands.open()
            for eye in self.eyes:
                await eye.open()
            for step in steps:
                await self.step(*step)
            await self.judge()
        finally:
            for eye in self.eyes:
                await eye.cut()
            await self.hands.close()
        await self.house.controller.unload(self.session_id)
        return self.session_id

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    async def view(self) -> SessionView:
        return await self.house.controller.view(self.session_id)

    # --- one step ----------------------------------------------------------------------------------------------------

    async def step(self, kind: str, *rest: Any) -> None:
        hands = self.hands
        work: asyncio.Task[None] | None = None
        match kind:
            case "submit":
                wire, how, delivery, text = rest
                work = hands.begin(hands.submit(wire, how, delivery, text))
            case "revoke" | "replace" | "steer" | "queue":
                pending = await hands.pending()
                if not pending:
                    return
                message = pending[int(rest[1] * len(pending))]
                work = hands.begin(hands.change(rest[0], kind, message, rest[2] if kind == "replace" else ""))
            case "answer":
                requests = [r for s, r in self.house.controller.requests() if s == self.session_id]
                if not requests:
                    return
                work = hands.begin(hands.answer(rest[0], requests[0], rest[1]))
            case "abort":
                work = hands.begin(hands.abort(rest[0]))
            case "cut":
                await self.eyes[rest[0]].cut()
                await self.eyes[rest[0]].catch_up()
            case "pause":
                await asyncio.sleep(rest[0] / 1000)  # the story's own time, not a wait for anything
            case "die":
                for record in (self.house.settings.data / RUN_DIR).glob("agent-*.json"):
                    os.kill(int(record.stem.partition("-")[2]), signal.SIGKILL)
            case "restart":
                await self.restart()
            case "asked":
                await self.asked()
            case "look":
                await self.look("in the middle")
            case "rest":
                await self.rest()
        self.count(kind)
        if work is not None:  # most are answered at once; one that waits for a turn goes on beside the story
            await asyncio.wait([work], timeout=0.05)
            if work.done():
                work.result()

    async def restart(self) -> None:
        for eye in self.eyes:
            await eye.cut()
        await self.house.restart()
        await self.hands.close()
        if self.hands.running:
            await asyncio.wait(self.hands.running, timeout=PATIENCE)
        await self.hands.open()
        for eye in self.eyes:
            await eye.catch_up()

    async def asked(self) -> None:
        """Until the agent asks, or nothing runs that could ask."""
        async with asyncio.timeout(PATIENCE):
            while True:
                view = await self.view()
                if view.requests or (not view.busy and all(m.held for m in view.pending)):
                    return
                await asyncio.sleep(0.01)

    async def rest(self) -> None:
        """Until nothing runs: every request is allowed."""
        async with asyncio.timeout(PATIENCE):
            while True:
                await self.hands.allow_all()
                view = await self.view()
                if view.turn_id is None and not view.busy and all(m.held for m in view.pending) and not view.requests:
                    return
                await asyncio.sleep(0.01)

    # --- judging -----------------------------------------------------------------------------------------------------

    async def judge(self) -> None:
        """Who waited was answered; the promises are kept; all clients show what is, and new ones too."""
        await self.rest()
        if self.hands.running:
            _, late = await asyncio.wait(set(self.hands.running), timeout=PATIENCE)
            if late:
                raise Broken(f"{len(late)} requests were never answered: {late}")
        await self.rest()
        self.promises(await self.view())
        await self.look("live")
        for kind in EYES:
            async with kind(self.house, self.session_id) as eye:
                await agree(eye, "as a new client")

    async def look(self, when: str) -> None:
        self.count("pending seen", len((await self.view()).pending))
        for eye in self.eyes:
            await agree(eye, when)

    def promises(self, view: SessionView) -> None:
        ledger = self.hands.ledger
        delivered = {str(u.id): text_of(u.content) for u in view.transcript.users()}
        pending = {str(m.id): text_of(m.content) for m in view.pending}
        revoked = {str(k.id) for k in view.known.values() if k.state == "revoked"}
        both = delivered.keys() & pending.keys() | delivered.keys() & revoked | pending.keys() & revoked
        if both:
            raise Broken(f"in two states at once: {both}")
        for name in ledger.revoked:
            if name not in revoked:
                raise Broken(f"{name} was answered as revoked, and is {delivered.get(name) or pending.get(name)!r}")
        for name in ledger.delivered:
            if name not in delivered:
                raise Broken(f"{name} was answered as delivered, and is not")
        known = {str(k.ascending_id): str(k.id) for k in view.known.values()}
        for text, name in ledger.admitted.items():
            found = known.get(name, name)
            if found and found not in delivered and found not in pending and found not in revoked:
                raise Broken(f"{name} ({text!r}) was admitted and is gone")
        for text in ledger.refused:
            if text in delivered.values():
                raise Broken(f"{text!r} was refused and delivered")
        texts = [t for t in delivered.values()]
        twice = {t for t in texts if texts.count(t) > 1}
        if twice:
            raise Broken(f"delivered twice: {twice}")
        said = "\n".join(" ".join(line) for line in _agent_words(view))
        for text in delivered.values():
            word = text.split()[-1] if text.startswith("say") else text.rpartition("say ")[2].split("\n")[0]
            if word.startswith("w") and said.split().count(word) > 1:
                raise Broken(f"the agent did {text!r} more than once")


async def agree(eye: Eye, when: str) -> None:
    """Wait until the eye shows the session as it is. Raises Broken, with the first difference."""
    found = "it shows nothing"
    try:
        async with asyncio.timeout(PATIENCE):
            while found:
                await eye.catch_up()
                view = await eye.house.controller.view(SessionId(eye.session_id))
                found = eye.same(view.transcript, view.pending)
                if found:
                    await asyncio.sleep(0.02)
    except TimeoutError:
        raise Broken(f"{eye.name}, {when}, shows something else. {found}") from None


async def read_again(house: House, sessions: Sequence[SessionId]) -> None:
    """After a restart, new clients of every wire show what the sessions have become. Raises Broken."""
    await house.restart()
    for session_id in sessions:
        for kind in EYES:
            async with kind(house, session_id) as eye:
                await agree(eye, "after a restart")


def _agent_words(view: SessionView) -> list[list[str]]:
    found = []
    for item in view.transcript.items:
        for part in getattr(item, "parts", ()):
            if getattr(part, "role", "") == "agent" and hasattr(part, "text"):
                found.append(part.text.split())
    return found


# --- making it small -------------------------------------------------------------------------------------------------


async def smaller(steps: list[Step], fails: Any, budget: int = 40) -> list[Step]:
    """A shorter story that still fails. ``fails(steps)`` plays one; at most ``budget`` are played."""
    size = max(len(steps) // 2, 1)
    while size and budget > 0:
        at = 0
        while at < len(steps) and budget > 0:
            tried = steps[:at] + steps[at + size :]
            budget -= 1
            if tried and await fails(tried):
                steps = tried
            else:
                at += size
        size //= 2
    return steps
