"""Random stories of steers, revokes and replaces against a run that moves on, cut at any point of the loop."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.content import Text
from tests.pydantic_ai.world import World, world

SEEN = {"revoked": 0, "already_delivered": 0, "replaced": 0, "injected": 0}

OPS = st.one_of(
    st.just(("steer",)),
    st.just(("steer",)),
    st.just(("queue",)),
    st.tuples(st.just("revoke"), st.integers(0, 5)),
    st.tuples(st.just("revoke"), st.integers(0, 5)),
    st.tuples(st.just("replace"), st.integers(0, 5)),
    st.tuples(st.just("replace"), st.integers(0, 5)),
    st.tuples(st.just("step"), st.sampled_from(["call work", "end", "end", "fail"])),
    st.tuples(st.just("step"), st.sampled_from(["call work", "end"])),
    st.tuples(st.just("yield"), st.integers(1, 12)),
    st.just(("place",)),
    st.just(("abort",)),
)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        path: Path = tmp_path_factory.mktemp("random")
        w: World = runner.run(stack.enter_async_context(world(path)))
        yield lambda story: runner.run(story(w))
        runner.run(stack.aclose())


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(ops=st.lists(OPS, min_size=8, max_size=16))
def test_stories(one: Any, ops: list[Any]) -> None:
    one(lambda w: asyncio.wait_for(play(w, ops), 120))


def test_the_stories_reached_everything() -> None:
    """After the other: stories that never get there show nothing."""
    assert all(count >= 3 for count in SEEN.values()), SEEN


async def play(w: World, ops: list[Any]) -> None:
    await w.again()
    ids: list[str] = []
    versions: list[list[str]] = []
    asked: list[tuple[int, str, str, asyncio.Task[Any]]] = []
    loop = asyncio.get_running_loop()
    await w.begin()
    for op in ops:
        match op:
            case ("steer" | "queue" as delivery,):
                text = f"m{len(ids)}"
                ids.append(await w.send(text, delivery))
                versions.append([text])
            case ("revoke", number) if ids:
                i = number % len(ids)
                asked.append((i, "revoke", "", loop.create_task(w.c.revoke(w.id, ids[i]))))  # type: ignore[arg-type]
            case ("replace", number) if ids:
                i = number % len(ids)
                text = f"m{i}.{len(versions[i])}"
                versions[i].append(text)
                wish = w.c.replace(w.id, ids[i], (Text(text),))  # type: ignore[arg-type]
                asked.append((i, "replace", text, loop.create_task(wish)))
            case ("step", order) if w.machine.at:
                await w.machine.step("done" if w.machine.at == "tool" and order != "fail" else _fit(w, order))
            case ("yield", count):
                for _ in range(count):
                    await asyncio.sleep(0)
            case ("place",):
                await w.next_place()
            case ("abort",):
                await w.c.abort(w.id)
    await w.finish()
    verdicts = [(i, kind, text, (await asyncio.wait_for(task, 60)).kind) for i, kind, text, task in asked]
    await w.send("release")  # what an abort or an error held goes with it
    await w.finish()
    await w.reconciled()
    users = await w.users()
    for i, texts in enumerate(versions):
        mine = [v for v in verdicts if v[0] == i]
        shown = [u for u in users if u in texts]
        if any(kind == "revoke" and verdict == "revoked" for _, kind, _, verdict in mine):
            assert shown == [], (texts, mine)
        else:
            replaced = [text for _, kind, text, verdict in mine if kind == "replace" and verdict == "replaced"]
            assert shown == [replaced[-1] if replaced else texts[0]], (texts, mine)
        for seen in w.machine.seen:
            assert [text for text in seen if text in texts] in ([], shown), (texts, seen)
        for _, _, _, verdict in mine:
            SEEN[verdict] += 1
    root = w.c.live[w.id].tree.root
    SEEN["injected"] += sum(
        1 for item in root.transcript.items if getattr(getattr(item, "message", None), "how", "") == "injected"
    )


def _fit(w: World, order: str) -> str:
    return order if w.machine.at == "model" or order == "fail" else "done"
