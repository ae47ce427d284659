"""``adapters/acp/agent`` with ``protocol = 2``: the port against the demo agent, a real process that speaks ACP v2.

All that the gateway writes is checked against the SDK's v2 schema (``speaks_v2``).
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.acp.agent import probe
from gateway.agents import AgentConfig
from gateway.core import effects, inputs
from gateway.core.content import Text
from gateway.core.errors import AgentError
from gateway.core.ids import MessageId, OfferId, TurnId
from gateway.core.model import Accepted, Cancelled, Selected
from tests.acp.support import Driver, demo, demo_config, pending, told_to_agents

pytestmark = pytest.mark.usefixtures("npm_clients")

TURN = TurnId("trn_1")
PUPPET = Path(__file__).parent / "clients" / "puppet.py"
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def speaks_v2(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Json]]:
    """What was written to agents, each line checked; only what is asked for later is another version's."""
    with told_to_agents(monkeypatch, 2) as written:
        yield written


def names(d: Driver, after: int = 0) -> list[str]:
    return [type(fact).__name__ for fact in d.sink.facts[after:]]


def steer(d: Driver, *texts: str) -> tuple[OfferId, list[MessageId]]:
    d._offers += 1
    offer = OfferId(f"off_{d._offers}")
    messages = []
    for text in texts:
        messages.append(msgspec.structs.replace(pending(text), id=MessageId(f"msg_{offer}_{text}")))
    d.port.perform(effects.OfferSteer(offer, TURN, tuple(messages)))
    return offer, [m.id for m in messages]


async def test_a_turn(tmp_path: Path) -> None:
    async with demo(tmp_path, protocol=2) as d:
        ready = d.sink.of(inputs.AgentReady)[0]
        assert ready.own_id.startswith("demo_") and not ready.can_steer and not ready.can_withdraw
        assert names(d)[:3] == ["AgentMode", "AgentConfig", "AgentReady"]
        await d.sink.one(inputs.AgentCommands)
        at = len(d.sink.facts)
        end = await d.turn("think hm\nsay hello\ntool ls\nplan a|b\nsay again")
        assert end.outcome == "end_turn" and end.tokens and end.tokens.total > 0
        told = [*("PromptWritten", "AgentUser", "AgentText", "AgentText", "AgentTool", "AgentTool", "AgentTool")]
        assert names(d, at) == [*told, "AgentPlan", "AgentText", "AgentTitle", "AgentUsage", "PromptEnded"]
        echo = d.sink.of(inputs.AgentUser)[0]
        assert (echo.content, echo.offer_id) == ((), end.offer_id) and echo.agent_id.startswith("msg_")
        assert (d.sink.text("thought"), d.sink.text()) == ("hm", "helloagain")
        config = d.sink.of(inputs.AgentConfig)[0]
        assert (config.model, config.mode) == ("quick", "code")
        assert [m["id"] for m in d.sink.of(inputs.AgentMode)[0].modes] == ["code", "ask"]


async def test_the_last_update_and_the_end_in_one_write(tmp_path: Path) -> None:
    async with demo(tmp_path, "--no-load", protocol=2) as d:
        for i in range(300):
            at = len(d.sink.facts)
            await d.turn(f"say turn {i}")
            assert d.sink.text(after=at) == f"turn {i}"
            assert isinstance(d.sink.facts[-1], inputs.PromptEnded)


async def test_a_burst_is_merged_and_complete(tmp_path: Path) -> None:
    async with demo(tmp_path, "--no-load", protocol=2) as d:
        await d.turn("flood 50000")
        assert d.sink.text() == "".join(f"{i:08d} the quick brown fox jumps over it. " for i in range(50000))
        assert len(d.sink.of(inputs.AgentText)) < 5000
        assert len({f.agent_id for f in d.sink.of(inputs.AgentText)}) == 1


@pytest.mark.parametrize(("choice", "status"), [("once", "completed"), ("reject", "failed")])
async def test_permission(tmp_path: Path, choice: str, status: str) -> None:
    async with demo(tmp_path, protocol=2) as d:
        d.offer("ask rm it\nsay after")
        ask = await d.sink.one(inputs.AgentAsk)
        assert (ask.kind, ask.title) == ("permission", "Run rm it?")
        assert [o.kind for o in ask.options] == ["allow_once", "allow_always", "reject_once"]
        assert ask.tool and ask.tool.call_id == d.sink.of(inputs.AgentTool)[0].call_id and ask.tool.title == "rm it"
        d.port.perform(effects.AnswerAgent(ask.agent_ref, Selected(choice)))
        await d.sink.one(inputs.PromptEnded, outcome="end_turn")
        assert d.sink.of(inputs.AgentTool)[-1].status == status and d.sink.text() == "after"


async def test_form(tmp_path: Path) -> None:
    async with demo(tmp_path, protocol=2) as d:
        d.offer("form Your name?")
        ask = await d.sink.one(inputs.AgentAsk)
        d.port.perform(effects.AnswerAgent(ask.agent_ref, Accepted({"answer": "Ada"})))
        await d.sink.one(inputs.PromptEnded)
        assert d.sink.text() == "Form: accept Ada"


async def test_cancel(tmp_path: Path) -> None:
    async with demo(tmp_path, protocol=2) as d:
        d.offer("stream 1000 50")
        await d.sink.one(inputs.AgentText)
        d.port.perform(effects.CancelTurn(TURN))
        await d.sink.one(inputs.PromptEnded, outcome="cancelled")
        d.offer("ask x")
        ask = await d.sink.one(inputs.AgentAsk)
        d.port.perform(effects.AnswerAgent(ask.agent_ref, Cancelled("abort")))
        d.port.perform(effects.CancelTurn(TURN))
        await d.sink.one(inputs.PromptEnded, offer_id=OfferId("off_2"), outcome="cancelled")
        assert (await d.turn("say next")).outcome == "end_turn"


async def test_an_error_is_the_agents_own(tmp_path: Path) -> None:
    async with demo(tmp_path, protocol=2) as d:
        end = await d.turn("say on\nfail no credit")
        assert end.outcome == "error" and end.error and end.error.message == "no credit"
        assert (await d.turn("refuse")).outcome == "refusal"


async def test_a_message_that_is_replaced(tmp_path: Path) -> None:
    async with demo(tmp_path, protocol=2) as d:
        await d.turn("replace one|two")
        (whole,) = d.sink.of(inputs.AgentMessage)
        assert whole.content == (Text("two"),) and whole.agent_id == d.sink.of(inputs.AgentText)[0].agent_id


# --- steers ----------------------------------------------------------------------------------------------------------


async def test_a_steer_by_inject(tmp_path: Path) -> None:
    async with demo(tmp_path, "--steer", protocol=2) as d:
        ready = d.sink.of(inputs.AgentReady)[0]
        assert ready.can_steer and ready.can_withdraw
        d.offer("tool slow 500\nsay one")
        await d.sink.one(inputs.AgentTool, status="in_progress")
        offer, (first, second) = steer(d, "say steered", "say again")
        accepted = await d.sink.one(inputs.SteerVerdict)
        assert accepted == inputs.SteerVerdict(offer_id=offer, verdict="accepted")
        await d.sink.one(inputs.PromptEnded)
        landed = [f for f in d.sink.of(inputs.SteerVerdict) if f.verdict == "injected"]
        assert [f.message_id for f in landed] == [first, second] and all(f.agent_id for f in landed)
        assert d.sink.text() == "steeredagainone"
        assert len(d.sink.of(inputs.AgentUser)) == 1  # the prompt's; a steer is never a second message


async def test_a_steer_without_a_turn_is_refused(tmp_path: Path) -> None:
    async with demo(tmp_path, "--steer", protocol=2) as d:
        offer, (only,) = steer(d, "say x")
        verdict = await d.sink.one(inputs.SteerVerdict)
        assert verdict == inputs.SteerVerdict(offer_id=offer, verdict="refused", message_id=only)


async def held_steer(d: Driver) -> tuple[OfferId, MessageId]:
    """A turn in a tool, and a steer that waits for its end."""
    d.offer("tool slow 1000\nsay one")
    await d.sink.one(inputs.AgentTool, status="in_progress")
    offer, (only,) = steer(d, "say steered")
    await d.sink.one(inputs.SteerVerdict, verdict="accepted")
    return offer, only


async def test_a_steer_is_revoked_until_it_lands(tmp_path: Path) -> None:
    async with demo(tmp_path, "--steer", protocol=2) as d:
        offer, only = await held_steer(d)
        d.port.perform(effects.Withdraw(offer, only, 1))
        assert (await d.sink.one(inputs.WithdrawVerdict)).done
        await d.sink.one(inputs.PromptEnded)
        assert d.sink.text() == "one" and not [f for f in d.sink.of(inputs.SteerVerdict) if f.verdict == "injected"]


async def test_a_steer_is_replaced_until_it_lands(tmp_path: Path) -> None:
    async with demo(tmp_path, "--steer", protocol=2) as d:
        offer, only = await held_steer(d)
        d.port.perform(effects.Withdraw(offer, only, 1, (Text("say other"),)))
        assert (await d.sink.one(inputs.WithdrawVerdict, question=1)).done
        await d.sink.one(inputs.PromptEnded)
        assert d.sink.text() == "otherone"
        d.port.perform(effects.Withdraw(offer, only, 2))
        assert not (await d.sink.one(inputs.WithdrawVerdict, question=2)).done


async def test_a_revoke_before_the_steer_was_accepted_waits_for_that(tmp_path: Path) -> None:
    async with demo(tmp_path, "--steer", protocol=2) as d:
        d.offer("tool slow 1000\nsay one")
        await d.sink.one(inputs.AgentTool, status="in_progress")
        offer, (only,) = steer(d, "say steered")
        d.port.perform(effects.Withdraw(offer, only, 1))
        assert (await d.sink.one(inputs.WithdrawVerdict)).done
        await d.sink.one(inputs.PromptEnded)
        assert d.sink.text() == "one"


async def test_a_steer_survives_a_cancel_and_begins_a_turn(tmp_path: Path) -> None:
    async with demo(tmp_path, "--steer", protocol=2) as d:
        _, only = await held_steer(d)
        d.port.perform(effects.CancelTurn(TURN))
        await d.sink.one(inputs.PromptEnded, outcome="cancelled")
        at = names(d).index("PromptEnded")
        await d.sink.one(inputs.PromptEnded, at + 1, outcome="end_turn")
        told = [n for n in names(d, at + 1) if n in ("TurnBegan", "SteerVerdict", "AgentText", "PromptEnded")]
        assert told == ["TurnBegan", "SteerVerdict", "AgentText", "PromptEnded"]
        assert d.sink.text() == "steered"


async def test_a_steer_by_the_extension_is_named_when_it_lands(tmp_path: Path) -> None:
    """codex-acp on v2: ``_session/steering``, and the message told when it is in the conversation."""
    async with demo(tmp_path, "--steering", protocol=2) as d:
        ready = d.sink.of(inputs.AgentReady)[0]
        assert ready.can_steer and not ready.can_withdraw
        d.offer("tool slow 300\nsay one")
        await d.sink.one(inputs.AgentTool, status="in_progress")
        offer, (only,) = steer(d, "say steered")
        d.port.perform(effects.Withdraw(offer, only, 1))
        assert not (await d.sink.one(inputs.WithdrawVerdict)).done
        await d.sink.one(inputs.PromptEnded)
        assert [(f.offer_id, f.verdict) for f in d.sink.of(inputs.SteerVerdict)] == [(offer, "injected")]
        prompt, landed = d.sink.of(inputs.AgentUser)
        assert landed.content == (Text("say steered"),) and landed.agent_id != prompt.agent_id
        assert d.sink.text() == "steeredone"


# --- the agent by itself ---------------------------------------------------------------------------------------------


async def test_background_work_and_a_turn_of_the_agents_own(tmp_path: Path) -> None:
    async with demo(tmp_path, protocol=2) as d:
        await d.turn("background Bob 200\nsay go")
        await d.sink.one(inputs.PromptEnded, offer_id=None)
        after = names(d).index("PromptEnded") + 1
        assert [n for n in names(d, after) if n != "AgentUsage"] == [
            *("AgentText", "AgentChild", "TurnBegan", "AgentText", "PromptEnded")
        ]
        child = d.sink.of(inputs.AgentChild)
        assert [(c.state, c.agent_session) for c in child] == [("running", ""), ("idle", "")]  # told once each
        assert d.sink.text() == "goBob workedBob is done"
        assert (await d.turn("say next")).outcome == "end_turn"


async def test_a_terminal_is_text_in_its_tool_call(tmp_path: Path) -> None:
    async with demo(tmp_path, protocol=2) as d:
        await d.turn("terminal 30 one|two")
        shown = [f.content[0] for f in d.sink.of(inputs.AgentTool) if f.content is not inputs.UNSET]
        assert [item["content"]["text"] for item in shown][-1] == "one\ntwo\n"
        kept = shown[-1]["_meta"]["trunkline"]
        assert kept["acp2"]["type"] == "terminal" and kept["terminal"]["exitStatus"] == {"exitCode": 0}
        raw = [f.kind for f in d.sink.of(inputs.AgentUnknown)]
        assert raw == ["terminal_update", "terminal_output_chunk", "terminal_output_chunk", "terminal_update"]


@pytest.mark.parametrize("kind", ["tool_call", "terminal"])
async def test_one_tool_call_is_cancelled(tmp_path: Path, kind: Any) -> None:
    async with demo(tmp_path, protocol=2) as d:
        d.offer("terminal 20000 one|two\nsay after")
        call = await d.sink.one(inputs.AgentTool)
        assert call.can_cancel
        name = call.call_id if kind == "tool_call" else f"term_{call.call_id}"
        d.port.perform(effects.CancelWork("", kind, name))
        assert (await d.sink.one(inputs.PromptEnded)).outcome == "end_turn"
        assert d.sink.of(inputs.AgentTool)[-1].status == "cancelled" and d.sink.text() == "after"


async def test_settings(tmp_path: Path) -> None:
    async with demo(tmp_path, protocol=2) as d:
        at = len(d.sink.facts)
        d.port.perform(effects.ConfigureAgent(mode="ask", model="careful"))
        assert (await d.sink.one(inputs.AgentConfig, at, model="careful")).mode == "ask"
        assert d.sink.of(inputs.AgentMode)[-1].mode == "ask"
        at = len(d.sink.facts)
        d.port.perform(effects.ConfigureAgent(mode="nonsense"))
        assert (await d.sink.one(inputs.AgentMode, at)).mode == "ask"


# --- opening ---------------------------------------------------------------------------------------------------------


async def test_load_after_restart(tmp_path: Path) -> None:
    async with demo(tmp_path, protocol=2) as d:
        own = d.sink.of(inputs.AgentReady)[0].own_id
        await d.turn("think hm\nsay hello\ntool ls\nreplace a|b\nterminal 0 x|y")
        ids = [f.agent_id for f in d.sink.of(inputs.AgentText)]
        user = d.sink.of(inputs.AgentUser)[0].agent_id
        await d.port.close()
        at = len(d.sink.facts)
        assert (await d.start(own, has_history=False)).own_id == own
        (replay,) = d.sink.of(inputs.Replayed)
        told = [type(f).__name__ for f in replay.facts if not isinstance(f, inputs.AgentTool | inputs.AgentUnknown)]
        assert told == ["AgentUser", "AgentText", "AgentText", "AgentText"]
        assert [f.agent_id for f in replay.facts if isinstance(f, inputs.AgentText)] == ids
        first = replay.facts[0]
        assert isinstance(first, inputs.AgentUser) and first.agent_id == user
        assert names(d, at)[:4] == ["Replayed", "AgentMode", "AgentConfig", "AgentReady"]
        assert "TurnBegan" not in names(d, at)
        await d.turn("say more")


async def test_resume_where_the_history_is_known(tmp_path: Path, speaks_v2: list[Json]) -> None:
    async with demo(tmp_path, protocol=2) as d:
        own = d.sink.of(inputs.AgentReady)[0].own_id
        await d.turn("say hello")
        await d.port.close()
        assert (await d.start(own, has_history=True)).own_id == own
        assert not d.sink.of(inputs.Replayed)
        joined = [m["params"] for m in speaks_v2 if m.get("method") == "session/resume"]
        assert joined == [{"sessionId": own, "cwd": str(tmp_path), "mcpServers": []}]


async def test_a_session_that_the_agent_forgot(tmp_path: Path) -> None:
    async with demo(tmp_path, protocol=2, start=False) as d:
        ready = await d.start("demo_forgotten", has_history=True)
        assert ready.own_id != "demo_forgotten"
        assert (await d.turn("say hi")).outcome == "end_turn"


async def test_mcp_servers_have_their_type(tmp_path: Path, speaks_v2: list[Json]) -> None:
    servers: list[Json] = [
        {"name": "a", "command": "/bin/a", "args": [], "env": []},
        {"type": "http", "name": "b", "url": "http://127.0.0.1:1", "headers": []},
        {"type": "sse", "name": "c", "url": "http://127.0.0.1:1", "headers": []},
    ]
    async with demo(tmp_path, protocol=2, mcp_servers=servers):
        (params,) = [m["params"] for m in speaks_v2 if m.get("method") == "session/new"]
        assert [s["type"] for s in params["mcpServers"]] == ["stdio", "http"]


async def test_the_agent_dies(tmp_path: Path) -> None:
    async with demo(tmp_path, "--steer", protocol=2) as d:
        d.offer("say before\ncrash")
        error = (await d.sink.one(inputs.AgentGone)).error
        assert error and error.message == "demo exited with status 1; last stderr: demo agent: crashed as told"
        await d.start(d.sink.of(inputs.AgentReady)[0].own_id, True)
        assert (await d.turn("say alive")).outcome == "end_turn"


async def test_an_agent_that_has_only_v1_goes_on_as_that(tmp_path: Path, speaks_v2: list[Json]) -> None:
    d = Driver(AgentConfig(name="puppet", command=[sys.executable, str(PUPPET)], protocol=2), tmp_path)
    await d.start()
    assert d.port._dialect.version == 1
    said = {"sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": {"type": "text", "text": "hi"}}
    assert (await d.turn(json.dumps([{"update": said}, {"end": "end_turn"}]))).outcome == "end_turn"
    assert d.sink.text() == "hi"
    await d.port.close()
    assert speaks_v2[0]["params"]["clientCapabilities"]["subagents"] == {}
    speaks_v2[1:] = []  # the rest is v1


@pytest.mark.parametrize("version", [3, 0, None, "2"])
async def test_another_version_is_a_clear_error(tmp_path: Path, version: Any) -> None:
    answer = f'{{"protocolVersion": {json.dumps(version)}}}'
    code = f"import sys, json; i = json.loads(input())['id']; print(json.dumps({{'id': i, 'result': {answer}}}))"
    code = code.replace("null", "None") + "; sys.stdout.flush(); sys.stdin.read()"
    config = AgentConfig(name="odd", command=[sys.executable, "-c", code], protocol=2)
    with pytest.raises(AgentError, match=f"odd speaks version {version} of ACP, not 2"):
        await probe(config)


async def test_probe(tmp_path: Path) -> None:
    found = await probe(demo_config(tmp_path, "--steer", protocol=2))
    assert found["protocol"] == "ACP v2" and found["name"] == "Trunkline demo agent"
    can = ("load", "resume", "close", "fork", "image", "embedded context", "steer", "mcp http", "mcp stdio")
    assert found["can"] == [*can]
