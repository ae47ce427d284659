"""A fork: a session that begins as a copy of another, here and at the agent."""

import sys
from pathlib import Path

import pytest

from gateway.controller import SessionController
from gateway.core import effects as fx
from gateway.core import events as ev
from gateway.core import fork
from gateway.core.content import Image
from gateway.core.errors import AuthRequired, Busy, NotSupported
from gateway.core.ids import SessionId
from gateway.core.inputs import AgentBlock, AgentGone, AgentText, AgentTool, PromptEnded
from gateway.core.model import Error, SessionInfo
from gateway.core.transcript import TextPart, ToolPart, Transcript, UserItem
from tests.acp.clients.raw import client
from tests.fake_port import FakePort, Farm
from tests.served import serve
from tests.test_controller import gateway, until, words


def said(transcript: Transcript) -> list[str]:
    """Everything that is in a transcript but the ids."""
    lines = []
    for item in transcript.items:
        if isinstance(item, UserItem):
            lines.append(f"user {item.message.content}")
        else:
            lines.append("step")
            for part in item.parts:
                if isinstance(part, TextPart):
                    lines.append(f"{part.role} {part.agent_id} {part.text}")
                elif isinstance(part, ToolPart):
                    lines.append(f"tool {part.call.call_id} {part.call.title} {part.call.status} {part.call.content}")
                else:
                    lines.append(f"{part.role} {part.block}")
    return lines


def ids(transcript: Transcript) -> set[str]:
    found: set[str] = set()
    for item in transcript.items:
        if isinstance(item, UserItem):
            found |= {item.message.id, *item.message.part_ids}
        else:
            found |= {item.step.id, item.step.start_part, *(part.part_id for part in item.parts)}
    return found


async def play(c: SessionController, farm: Farm, session_id: SessionId, text: str) -> None:
    """A turn with a thought, two messages around a tool, and a picture."""
    at = c.log.position
    admission = await c.submit(session_id, words(text))
    await until(c, session_id, ev.MessageDelivered, at)
    offer = farm.port.last(fx.OfferPrompt)
    assert isinstance(offer, fx.OfferPrompt)
    farm.port.tell(
        AgentText(role="thought", text="hm"),
        AgentText(role="agent", text="first ", agent_id=f"m-{text}"),
        AgentText(role="agent", text="part", agent_id=f"m-{text}"),
        AgentTool(call_id=f"c-{text}", new=True, title="Look", status="completed", content=[{"type": "x"}]),
        AgentText(role="agent", text="then", agent_id=f"n-{text}"),
        AgentBlock(role="agent", block=Image("AAAA", "image/png")),
        PromptEnded(offer_id=offer.offer_id, outcome="end_turn"),
    )
    await c.wait(session_id, admission.message_id, timeout=5)


async def test_a_fork_has_the_same_history_under_other_ids(tmp_path: Path) -> None:
    farm = Farm(can_fork=True, auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w", title="Plan", mode="ask")
        for text in ("one", "two"):
            await play(c, farm, info.id, text)
        forked = await c.fork(info.id)
        old, new = (await c.view(info.id)).transcript, (await c.view(forked.id)).transcript
        assert said(new) == said(old) and len(said(old)) == 16
        assert not ids(new) & ids(old)
        assert (forked.title, forked.cwd, forked.agent, forked.asked_mode) == ("Plan (fork #1)", "/w", "fake", "ask")
        assert farm.port.info.fork_of == "agent-1" and farm.port.info.agent_session == ""
        await play(c, farm, forked.id, "three")
        assert said((await c.view(info.id)).transcript) == said(old) and len(said(old)) == 16
        assert (await c.fork(forked.id)).title == "Plan (fork #2)"
    async with gateway(tmp_path, farm) as c:  # and so it is after a restart
        assert said((await c.view(info.id)).transcript) == said(old)
        again = (await c.view(forked.id)).transcript
        assert said(again)[:16] == said(old) and len(said(again)) == 24


async def test_an_agent_that_cannot_and_a_turn_that_runs(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        with pytest.raises(NotSupported, match="'fake' does not offer"):
            await c.fork(info.id)
    farm = Farm(can_fork=True, auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        await c.submit(info.id, words("work"))
        await until(c, info.id, ev.MessageDelivered)
        with pytest.raises(Busy):
            await c.fork(info.id)
        assert len(await c.sessions()) == 1


class Refusing(FakePort):
    """It lets nobody copy a session."""

    def start(self, info: SessionInfo, has_history: bool) -> None:
        if info.fork_of:
            self.tell(AgentGone(error=Error("auth_required", "log in first")))
        else:
            super().start(info, has_history)


async def test_a_fork_that_fails_at_the_agent_leaves_nothing(tmp_path: Path) -> None:
    class Refuse(Farm):
        def __call__(self, *given: object) -> FakePort:
            self.ports.append(Refusing(self, *given))  # type: ignore[arg-type]
            return self.ports[-1]

    farm = Refuse(can_fork=True)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        with pytest.raises(AuthRequired, match="log in first"):
            await c.fork(info.id)
        assert [one.id for one in await c.sessions()] == [info.id]


def test_titles() -> None:
    assert [fork.title(t) for t in ("", "A", "A (fork #9)", "A (fork #x)")] == [
        "(fork #1)",
        "A (fork #1)",
        "A (fork #10)",
        "A (fork #x) (fork #1)",
    ]


@pytest.mark.parametrize("protocol", [1, 2])
async def test_a_fork_by_any_client_at_an_agent_that_tells_the_copy_again(tmp_path: Path, protocol: int) -> None:
    """What the agent replays of the copy is not written twice; both sessions go on, also after a restart."""
    command = ", ".join(f'"{word}"' for word in (sys.executable, "-m", "adapters.acp.demo"))
    config = tmp_path / "trunkline.toml"
    config.write_text(
        f'[agents.demo]\ncommand = [{command}]\nprotocol = {protocol}\npass_env = ["TRUNKLINE_DEMO_*", "PYTHONPATH"]\n'
    )
    async with serve(tmp_path, "--config", str(config)) as served:
        session = await served.session(title="Plan")
        await served.post(session, "think hm\nsay one\ntool look\nsay two")
        made = await served.http.post(f"/session/{session}/fork", json={})
        assert made.status_code == 200 and made.json()["title"] == "Plan (fork #1)", made.text
        forks = [made.json()["id"]]
        for version in (1, 2):
            async with client(served.url, version) as one:
                where = {"sessionId": session, "cwd": str(served.workspace), "mcpServers": []}
                answer = await one.call("session/fork", **where)
                forks.append(answer["sessionId"])
                assert answer["configOptions"]
        told = await served.told(session)
        for forked in forks:
            assert await served.told(forked) == told
            await served.post(forked, "say three")
        await served.stop()
        await served.start()
        for forked in forks:
            await served.post(forked, "say four")
            assert await served.told(forked) == [
                *told,
                "user: say three",
                "assistant: three",
                "user: say four",
                "assistant: four",
            ]
        assert await served.told(session) == told
