"""Whatever a session does, what its clients get is a stream that they accept, and folds to what the session holds."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.agui import translate_messages as msgs
from adapters.agui import translate_state as state
from adapters.agui.translate_run import Run, run_of
from gateway.core import events as ev
from gateway.core.content import Text
from gateway.core.ids import MessageId
from gateway.core.inputs import Reconcile
from gateway.core.model import By
from tests.agui.client import Client, place, rising
from tests.agui.stories import Pick, Story, Watcher

SETTINGS = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def follow(story: Story, client: Client, after: int | None = None) -> Watcher:
    """As ``threads._follow``."""
    views, position = story.views(), story.position
    view = views[0][0]
    run = Run(story.root_id, "t", "r", client.modern, has=frozenset(m["id"] for m in client.messages))
    run.follows = True
    if after is not None:
        turn_id = view.turn_id or view.last_turn_id
        run.run_id = run_of(view.transcript, turn_id) if turn_id else "r"
        for each, session_id in views:
            run.encoder.names |= msgs.known_names(each, session_id)
        return Watcher(story, run, client, after, run.begin(), cursor=True)
    head = run.resync(views)
    if run.asked:
        head += run.park(views)
    elif view.turn_id is None:
        head += run.settle(views)
    run.follows = False
    return Watcher(story, run, client, position, head)


def post(story: Story, client: Client, number: int) -> Watcher:
    """As ``threads._submit``."""
    views, position = story.views(), story.position
    view = views[0][0]
    busy = view.turn_id is not None or any(not p.held for p in view.pending)
    message = {"id": f"p{number}", "role": "user", "content": "mine"}
    client.messages.append(message)
    run = Run(story.root_id, "t", f"run-p{number}", client.modern, has=frozenset(m["id"] for m in client.messages))
    run.echo, run.left, run.late = [message], [MessageId(message["id"])], busy
    head = run.head(views, not busy, queued=busy)
    watcher = Watcher(story, run, client, position, head)
    by = By("me", "agui", run.run_id)
    story.tell(Reconcile(by=by, messages=((MessageId(message["id"]), (Text("mine"),)),), on_abort="keep"))
    run.mine = frozenset(run.left)
    return watcher


SAYING = (
    ev.MessageDelivered,
    ev.PartOpened,
    ev.TextDelta,
    ev.BlockAdded,
    ev.ToolUpdated,
    ev.PlanUpdated,
    ev.MessageReplaced,
)


def said_after(story: Story, position: int) -> bool:
    return any(isinstance(entry.record.event, SAYING) for entry in story.log[position:])


def same(client: Client, story: Story) -> None:
    """The client has what a fresh one would be shown: every message, whole; and the order of all that has one."""
    expected = msgs.messages(story.views(), client.modern)
    waiting = set(story.tree.root.state.inbox)
    mine = [m for m in client.messages if m["id"] not in waiting and m["id"] in {e["id"] for e in expected}]
    lacking = {e["id"] for e in expected} - {m["id"] for m in mine}
    assert not lacking, lacking

    def plain(message: dict[str, Any]) -> dict[str, Any]:
        found = {k: v for k, v in message.items() if k != "metadata"}
        if message["role"] == "user":
            found["content"] = ""
        if message["role"] == "tool":  # what is told of a call after its result waits for the next snapshot
            found["content"] = ""
        if "toolCalls" in found:
            found["toolCalls"] = [call["id"] for call in found["toolCalls"]]
        return found | {"content": found.get("content") or ""}

    theirs, ours = {m["id"]: plain(m) for m in mine}, {m["id"]: plain(m) for m in expected}
    for name, message in ours.items():
        assert theirs[name] == message, (theirs[name], message)


def accepted(pick: Pick, modern: bool) -> None:
    """Three clients: one reads at once, one is often behind, one drops out at random and comes back by a cursor."""
    story = Story()
    prompt, lazy, broken = Client(modern), Client(modern), Client(modern)
    watchers = [follow(story, prompt), follow(story, lazy), follow(story, broken)]
    own: list[Watcher] = []
    for number in range(5 + pick(56)):
        if not pick(10):
            own.append(post(story, Client(modern), number))
        else:
            story.act(pick)
        for watcher in own:
            if pick(3):
                watcher.read(merged=bool(pick(2)))
        watchers[0].read()
        if watchers[0].run.done:
            if story.tree.root.state.turn_id is None and not said_after(story, watchers[0].frames.position):
                same(prompt, story)
            watchers[0] = follow(story, prompt)
        if not pick(3):
            watchers[1].read(merged=True)
            if not pick(6):
                watchers[1].resync() if not watchers[1].run.done else None
        if watchers[1].run.done:
            watchers[1] = follow(story, lazy)
        if not pick(4):
            watchers[2].read()
            at = place(watchers[2].ids[-1])
            if watchers[2].run.done or len(at) == 2 and pick(2):
                rising(watchers[2].ids)
                watchers[2] = follow(story, broken, at[1] if len(at) == 2 else None)
    for watcher in [*watchers, *own]:
        watcher.read()
        rising(watcher.ids)
        if watcher.run.done:
            assert watcher.client.last["type"] in ("RUN_FINISHED", "RUN_ERROR")


def shown(pick: Pick) -> None:
    story = Story()
    for _ in range(5 + pick(76)):
        story.act(pick)
    client = Client()
    watcher = follow(story, client)
    same(client, story)
    assert client.state == state.snapshot(story.views()[0][0])
    for _ in range(20):
        story.act(pick)
    watcher.read()
    rising(watcher.ids)


@SETTINGS
@given(st.data(), st.booleans())
def test_any_story_is_a_stream_that_clients_accept(data: st.DataObject, modern: bool) -> None:
    accepted(lambda n: data.draw(st.integers(0, n - 1)), modern)


@SETTINGS
@given(st.data())
def test_a_fresh_client_is_shown_what_the_session_holds(data: st.DataObject) -> None:
    shown(lambda n: data.draw(st.integers(0, n - 1)))


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_long_stories(seed: int) -> None:
    """Many more of them, drawn by a plain generator: faster, and not to be shrunk."""
    for number in range(seed, seed + 20):
        draw = random.Random(number)
        accepted(draw.randrange, number % 2 == 0)
        shown(draw.randrange)
