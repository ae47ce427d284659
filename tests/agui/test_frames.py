"""Golden frames: what each thing that happens looks like on the wire, for clients of 1.0 and of 0.0.59.

``GOLDEN=write`` writes the files anew; read the diff before it is believed.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.agui import wire
from adapters.agui.translate_run import Run
from adapters.agui.translate_state import tokens_of
from gateway.core import effects as fx
from gateway.core.content import Image, Text
from gateway.core.ids import MessageId
from gateway.core.inputs import (
    Abort,
    AgentAsk,
    AgentBlock,
    AgentChild,
    AgentCommands,
    AgentConfig,
    AgentGone,
    AgentMessage,
    AgentMode,
    AgentPlan,
    AgentReady,
    AgentText,
    AgentTitle,
    AgentTool,
    AgentUnknown,
    AgentUsage,
    Promote,
    PromptEnded,
    PromptWritten,
    Reconcile,
    Replace,
    Revoke,
    SteerVerdict,
    Submit,
)
from gateway.core.model import By, Error, Tokens
from tests.agui.client import Client
from tests.agui.stories import OPTIONS, Story, Watcher
from tests.core.world import T0

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "agui"
BY = By("me", "agui", "run-1")
Json = dict[str, Any]


def say(words: str, role: Any = "agent", name: str = "", where: str = "") -> AgentText:
    return AgentText(role=role, text=words, agent_id=name, agent_session=where)


def speaking(story: Story) -> None:
    story.tell(say("hm", "thought", "1"))
    story.tell(say("Hel", "agent", "1"))
    story.tell(say("lo", "agent", "1"))
    story.tell(AgentTool(call_id="c", new=True, title="ls", kind="execute", name="bash", input={"command": "ls"}))
    story.tell(say("again", "agent", "1"))
    story.tell(PromptEnded(outcome="end_turn", tokens=Tokens(input=10, output=5, reasoning=2, cache_read=4, total=15)))


def tools(story: Story) -> None:
    story.tell(AgentTool(call_id="c", new=True, title="Edit", kind="edit", input={}))
    story.tell(AgentTool(call_id="c", input={"path": "/w/a"}, locations=[{"path": "/w/a", "line": 3}]))
    story.tell(AgentTool(call_id="c", status="in_progress"))
    item = {"type": "content", "content": {"type": "text", "text": "one"}}
    story.tell(AgentTool(call_id="c", append=[item]))
    diff = {"type": "diff", "path": "/w/a", "oldText": "x", "newText": "y"}
    story.tell(AgentTool(call_id="c", status="completed", append=[diff], output={"ok": True}))
    story.tell(AgentTool(call_id="c", status="completed", title="Edited"))
    story.tell(AgentTool(call_id="d", new=True, kind="execute"))
    story.tell(PromptEnded(outcome="cancelled"))


def about(story: Story) -> None:
    story.tell(AgentMode(mode="code", modes=[{"id": "code", "name": "Code"}]))
    story.tell(AgentConfig(options=[{"id": "model"}], model="big"))
    story.tell(AgentCommands(commands=[{"name": "plan", "description": "make one"}]))
    story.tell(AgentTitle(title="A title"))
    story.tell(AgentUsage(used=10, size=100, cost=0.5))
    story.tell(AgentPlan(entries=[{"content": "read", "priority": "high", "status": "pending"}]))
    story.tell(AgentUnknown(kind="vendor_thing", raw={"a": 1}))
    story.tell(AgentBlock(role="agent", block=Image("aGk=", "image/png")))
    story.tell(PromptEnded(outcome="max_tokens"))


def children(story: Story) -> None:
    story.tell(AgentChild(child="kid", title="Kid", description="helps", state="running"))
    story.tell(say("at work", where="kid"))
    story.tell(AgentTool(call_id="c", new=True, title="ls", kind="read", agent_session="kid"))
    story.tell(AgentChild(child="kid", state="idle"))
    story.tell(say("done"))
    story.tell(PromptEnded(outcome="end_turn"))


def asking(story: Story) -> None:
    call = AgentTool(call_id="c", title="rm", kind="execute", input={"command": "rm"})
    story.tell(say("Look"))
    story.tell(AgentAsk(agent_ref="x", title="Run rm?", tool=call, options=OPTIONS))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    story.tell(AgentAsk(agent_ref="y", kind="elicitation", title="How many?", schema=schema))


def waiting(story: Story) -> None:
    content = (Text("next"),)
    story.tell(Submit(by=BY, content=content, message_id=MessageId("q"), local_id=True))
    story.tell(Replace(by=BY, message_id=MessageId("q"), content=(Text("rather"),)))
    story.tell(Promote(by=BY, message_id=MessageId("q")))
    offer = story.steer
    assert isinstance(offer, fx.OfferSteer)
    story.tell(say("before"))
    story.tell(SteerVerdict(offer_id=offer.offer_id, verdict="injected"))
    story.tell(Submit(by=BY, content=content, message_id=MessageId("r"), local_id=True))
    story.tell(Revoke(by=BY, message_id=MessageId("r")))
    story.tell(say("after"))
    story.tell(Abort(by=BY))
    story.tell(PromptEnded(outcome="cancelled"))


def failing(story: Story) -> None:
    story.tell(say("half"))
    story.tell(AgentGone(error=Error("agent_exit", "the agent exited with code 1")))


def replacing(story: Story) -> None:
    story.tell(say("wrong", name="m"))
    story.tell(AgentMessage(role="agent", agent_id="m", content=(Text("right"),)))
    story.tell(PromptEnded(outcome="refusal"))


STORIES = (speaking, tools, about, children, asking, waiting, failing, replacing)


def recorded(tell: Callable[[Story], None], modern: bool) -> tuple[list[Json], Client]:
    story, client = Story(), Client(modern)
    assert story.now == T0
    run = Run(story.root_id, "thread", "run-1", modern)
    message = {"id": "u", "role": "user", "content": "hello"}
    run.echo, run.left, run.mine = [message], [MessageId("u")], frozenset({MessageId("u")})
    watcher = Watcher(story, run, client, story.position, run.head(story.views(), False))
    story.tell(Reconcile(by=BY, messages=((MessageId("u"), (Text("hello"),)),)))
    story.tell(AgentReady(own_id="own", can_steer=True))
    assert story.prompt is not None
    story.tell(PromptWritten(offer_id=story.prompt.offer_id))
    watcher.read()
    at = story.position
    tell(story)
    while watcher.position < story.position and not run.done:  # one at a time, as a reader that keeps up
        entry = story.log[watcher.position]
        watcher._show(watcher.frames.batch(run, [entry]))
        watcher.position = entry.pos
        if run.wants_snapshot:
            watcher.resync()
    watcher.read()
    assert at < story.position
    return watcher.sent, client


@pytest.mark.parametrize("modern", [True, False], ids=["1.0", "0.0.59"])
@pytest.mark.parametrize("tell", STORIES, ids=[story.__name__ for story in STORIES])
def test_frames(tell: Callable[[Story], None], modern: bool) -> None:
    sent, _ = recorded(tell, modern)
    path = GOLDEN / f"{tell.__name__}{'' if modern else '_0.0.59'}.json"
    data = msgspec.json.format(msgspec.json.encode(sent), indent=1) + b"\n"
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert path.read_bytes() == data, f"{path.name} differs: GOLDEN=write, then read the diff"


def test_every_event_has_a_frame() -> None:
    """The stories show every kind of event that this wire has."""
    kinds = {event["type"] for tell in STORIES for modern in (True, False) for event in recorded(tell, modern)[0]}
    ours = {kind.__struct_config__.tag for kind in wire.Event.__args__}  # type: ignore[attr-defined]
    assert ours - kinds == {"SUBAGENT_ERROR"}


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (Tokens(), None),
        (Tokens(input=10, output=5, total=15), {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}),
        (
            Tokens(input=10, output=5, cache_read=100, cache_write=20, total=135),
            {
                "inputTokens": 130,
                "outputTokens": 5,
                "totalTokens": 135,
                "cachedInputTokens": 100,
                "cacheWriteInputTokens": 20,
            },
        ),
        (
            Tokens(input=110, output=5, cache_read=100, total=115),
            {"inputTokens": 110, "outputTokens": 5, "totalTokens": 115, "cachedInputTokens": 100},
        ),
        (
            Tokens(input=10, output=5, reasoning=7, total=22),
            {"inputTokens": 10, "outputTokens": 12, "totalTokens": 22, "reasoningTokens": 7},
        ),
    ],
)
def test_usage_counts_parts_once(tokens: Tokens, found: Json | None) -> None:
    info = Story().tree.root.info
    made = tokens_of(tokens, info)
    assert made == (None if found is None else [{"provider": "demo", **found}])
