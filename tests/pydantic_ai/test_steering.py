"""Steer, drain, revoke and replace, in every order: the model sees what people are shown as delivered, only that."""

import asyncio
from itertools import permutations
from pathlib import Path

import pytest

from gateway.core.content import Text
from tests.pydantic_ai.world import World, world

STORIES = {
    "tool": ["call work", "done", "end"],  # drained before the second request
    "end": ["end"],  # drained when the run would end
    "abort": ["call work", "abort"],
    "model fails": ["call work", "done", "fail"],
    "tool fails": ["call work", "fail"],
}
CHANGES = ["revoke a", "replace a", "revoke b", "replace b", "replace a, revoke b", "replace a, replace a"]

SOME = ["revoke a", "replace a", "replace a, revoke b"]  # for the stories that end badly


def orders(story: list[str]) -> list[list[str]]:
    """All ways to mix two steers, a change and the steps of a story."""
    actions = ["steer a", "steer b", "change", *[f"{i} {step}" for i, step in enumerate(story)]]
    steps = actions[3:]
    found = []
    for order in permutations(actions):
        if [a for a in order if a in steps] == steps and order.index("steer a") < order.index("steer b"):
            if order.index("change") > order.index("steer b"):
                found.append(list(order))
    return found


def test_the_orders_are_many() -> None:
    assert [len(orders(story)) for story in STORIES.values()] == [20, 4, 10, 20, 10]


async def play(w: World, order: list[str], change: str) -> None:
    ids = {}
    texts: dict[str, str] = {"a": "a", "b": "b"}
    verdicts: dict[str, str] = {}
    await w.begin()
    for action in order:
        match action.split():
            case ["steer", name]:
                ids[name] = await w.steer(name)
            case ["change"]:
                for wish in change.split(", "):
                    kind, name = wish.split()
                    if kind == "revoke":
                        verdict = await asyncio.wait_for(w.c.revoke(w.id, ids[name]), 60)
                    else:
                        new = texts[name] + "+"
                        verdict = await asyncio.wait_for(w.c.replace(w.id, ids[name], (Text(new),)), 60)
                        if verdict.kind == "replaced":
                            texts[name] = new
                    verdicts[name] = verdict.kind
            case [_, "abort"]:
                await w.c.abort(w.id)
                await w.until(lambda: w.c.live[w.id].tree.root.state.turn_id is None)
            case [_, *step]:
                if not w.machine.at:
                    await w.next_place()
                if w.machine.at:
                    await w.machine.step(" ".join(step))
                    await w.next_place()
    await w.reconciled()
    users = await w.users()
    for name in ("a", "b"):
        if verdicts.get(name) == "revoked":
            assert not any(text.rstrip("+") == name for seen in w.machine.seen for text in seen), name
            assert name not in [u.rstrip("+") for u in users]
        else:
            assert users.count(texts[name]) == 1
    both = [u.rstrip("+") for u in users if u.rstrip("+") in "ab"]
    assert both == sorted(both), "order"
    assert all(seen.count(text) == 1 for seen in w.machine.seen for text in seen), "seen twice"


@pytest.mark.parametrize(
    ("story", "change"),
    [(story, change) for story in STORIES for change in CHANGES if story in ("tool", "end") or change in SOME],
)
async def test_every_order(tmp_path: Path, story: str, change: str) -> None:
    async with world(tmp_path) as w:
        for order in orders(STORIES[story]):
            try:
                await w.again()
                await play(w, order, change)
            except BaseException as error:
                error.add_note(f"order: {order}, change: {change}")
                raise
