"""``adapters/acp/agent``: the port against the demo agent, a real process.

All that the gateway writes is checked against the SDK's v1 schema (``speaks_v1``).
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from adapters.acp import noise
from adapters.acp.agent import AcpAgents, probe
from gateway import reaper
from gateway.agents import AgentConfig
from gateway.core import effects, inputs
from gateway.core.content import Image, Text
from gateway.core.errors import AgentTimeout, AgentUnavailable
from gateway.core.ids import TurnId
from gateway.core.model import Accepted, Cancelled, Error, Selected
from tests.acp.support import DEMO, ROOT, Driver, Sink, demo, demo_config, session, told_to_agents

pytestmark = pytest.mark.usefixtures("npm_clients")
TURN = TurnId("trn_1")


@pytest.fixture(autouse=True)
def speaks_v1(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with told_to_agents(monkeypatch, 1):
        yield


async def gone(pid: int) -> None:
    """Until nobody of the agent's kernel session is left."""
    async with asyncio.timeout(10):
        while reaper.members(pid):
            await asyncio.sleep(0.005)


async def test_a_turn(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        end = await d.turn("think hm\nsay hello\ntool ls\nplan a|b\nsay again")
        assert end.outcome == "end_turn" and end.tokens and end.tokens.total > 0
        kinds = [type(f).__name__ for f in d.sink.facts]
        assert kinds[:3] == ["AgentMode", "AgentConfig", "AgentReady"]
        assert kinds[kinds.index("PromptWritten") + 1 : -1] == [
            *("AgentText", "AgentText", "AgentTool", "AgentTool", "AgentTool", "AgentPlan", "AgentText"),
            *("AgentTitle", "AgentUsage"),
        ]
        assert kinds[-1] == "PromptEnded"
        assert (d.sink.text("thought"), d.sink.text()) == ("hm", "helloagain")
        ready = d.sink.of(inputs.AgentReady)[0]
        assert ready.own_id.startswith("demo_") and not ready.can_steer and not ready.can_withdraw
        config, mode = d.sink.of(inputs.AgentConfig)[0], d.sink.of(inputs.AgentMode)[0]
        assert config.model == "quick" and mode.mode == "code" and [m["id"] for m in mode.modes] == ["code", "ask"]
        assert d.sink.of(inputs.AgentCommands)


async def test_the_last_update_and_the_answer_in_one_write(tmp_path: Path) -> None:
    async with demo(tmp_path, "--no-load") as d:
        for i in range(1000):
            at = len(d.sink.facts)
            await d.turn(f"say turn {i}")
            assert d.sink.text(after=at) == f"turn {i}"
            assert isinstance(d.sink.facts[-1], inputs.PromptEnded)


async def test_a_burst_is_merged_and_complete(tmp_path: Path) -> None:
    async with demo(tmp_path, "--no-load") as d:
        await d.turn("flood 50000")
        text = d.sink.text()
        assert text == "".join(f"{i:08d} the quick brown fox jumps over it. " for i in range(50000))
        assert len(d.sink.of(inputs.AgentText)) < 5000
        assert len({f.agent_id for f in d.sink.of(inputs.AgentText)}) == 1


async def test_no_message_ids(tmp_path: Path) -> None:
    async with demo(tmp_path, "--no-ids") as d:
        await d.turn("say a\ntool t\nsay b")
        assert [f.agent_id for f in d.sink.of(inputs.AgentText)] == ["", ""]


@pytest.mark.parametrize(("choice", "status"), [("once", "completed"), ("reject", "failed")])
async def test_permission(tmp_path: Path, choice: str, status: str) -> None:
    async with demo(tmp_path) as d:
        d.offer("ask rm it\nsay after")
        ask = await d.sink.one(inputs.AgentAsk)
        assert (ask.kind, ask.title) == ("permission", "rm it")
        assert [o.kind for o in ask.options] == ["allow_once", "allow_always", "reject_once"]
        assert ask.tool and ask.tool.call_id == d.sink.of(inputs.AgentTool)[0].call_id
        for _ in range(2):  # the second answer goes nowhere
            d.port.perform(effects.AnswerAgent(ask.agent_ref, Selected(choice)))
        await d.sink.one(inputs.PromptEnded, outcome="end_turn")
        assert d.sink.of(inputs.AgentTool)[-1].status == status
        assert d.sink.text() == "after"


async def test_form(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        d.offer("form Your name?")
        ask = await d.sink.one(inputs.AgentAsk)
        assert (ask.kind, ask.title, ask.schema["type"]) == ("elicitation", "Your name?", "object")
        d.port.perform(effects.AnswerAgent(ask.agent_ref, Accepted({"answer": "Ada"})))
        await d.sink.one(inputs.PromptEnded)
        assert d.sink.text() == "Form: accept Ada"


async def test_cancel(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        d.offer("stream 1000 50")
        await d.sink.one(inputs.AgentText)
        began = time.monotonic()
        d.port.perform(effects.CancelTurn(TURN))
        await d.sink.one(inputs.PromptEnded, outcome="cancelled")
        assert time.monotonic() - began < 1


async def test_cancel_while_asked(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        d.offer("ask x")
        ask = await d.sink.one(inputs.AgentAsk)
        d.port.perform(effects.AnswerAgent(ask.agent_ref, Cancelled("abort")))
        d.port.perform(effects.CancelTurn(TURN))
        await d.sink.one(inputs.PromptEnded, outcome="cancelled")
        assert (await d.turn("say next")).outcome == "end_turn"


async def test_refusal_and_late_text(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        assert (await d.turn("refuse")).outcome == "refusal"
        at = len(d.sink.facts)
        await d.turn("late afterwards")
        await d.sink.one(inputs.AgentText, at, text="afterwards")
        assert isinstance(d.sink.facts[-1], inputs.AgentText)


async def test_steer(tmp_path: Path) -> None:
    async with demo(tmp_path, "--steer") as d:
        assert d.sink.of(inputs.AgentReady)[0].can_steer
        d.offer("tool slow 300\nsay one")
        await d.sink.one(inputs.AgentTool, status="in_progress")
        offer = d.steer("say steered")
        verdict = await d.sink.one(inputs.SteerVerdict)
        assert (verdict.offer_id, verdict.verdict) == (offer, "injected")
        await d.sink.one(inputs.PromptEnded)
        assert d.sink.text() == "steeredone"
        verdict = await d.sink.one(inputs.SteerVerdict, offer_id=d.steer("say idle"))
        assert verdict.verdict == "refused"


async def test_steer_without_an_answer_is_lost(tmp_path: Path) -> None:
    async with demo(tmp_path, "--steer", steer_timeout=0.2) as d:
        d.offer("tool slow 2000")
        await d.sink.one(inputs.AgentTool, status="in_progress")
        d.steer("say steered")
        assert (await d.sink.one(inputs.SteerVerdict)).verdict == "lost"


async def test_steer_of_an_agent_that_cannot(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        d.steer("say x")
        assert (await d.sink.one(inputs.SteerVerdict)).verdict == "refused"


async def test_child(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        await d.turn("child Bob")
        children = d.sink.of(inputs.AgentChild)
        child = children[0].child
        assert [(c.state, c.agent_session) for c in children] == [("running", ""), ("idle", "")]
        assert (children[0].title, children[0].can_cancel, children[1].outcome) == ("Bob", True, "end_turn")
        text = d.sink.of(inputs.AgentText)[0]
        assert (text.agent_session, text.text) == (child, "Bob at work")
        down, seen, up, back = d.sink.of(inputs.AgentRefs)
        assert [f.agent_session for f in (down, seen, up, back)] == ["", child, child, ""]
        assert down.refs.recipient_message == seen.agent_id and seen.refs.sender_message == down.agent_id
        assert down.content == (Text("Task for Bob"),)


async def test_a_prompt_runs_in_the_mode_that_was_chosen_before_it(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        d.port.perform(effects.ConfigureAgent(mode="ask", model="careful"))
        offer = d.offer("tool rm")
        ask = await d.sink.one(inputs.AgentAsk)  # in this mode a tool asks first
        told = [type(fact) for fact in d.sink.facts]
        assert d.sink.of(inputs.AgentConfig)[-1].model == "careful"
        last = max(i for i, kind in enumerate(told) if kind is inputs.AgentConfig)
        assert told.index(inputs.PromptWritten) > last
        d.port.perform(effects.AnswerAgent(ask.agent_ref, Selected(ask.options[0].id)))
        assert (await d.sink.one(inputs.PromptEnded, offer_id=offer)).outcome == "end_turn"


async def test_settings(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        at = len(d.sink.facts)
        d.port.perform(effects.ConfigureAgent(mode="ask", model="careful"))
        assert (await d.sink.one(inputs.AgentConfig, at)).model == "careful"
        assert d.sink.of(inputs.AgentMode)[-1].mode == "ask"
        at = len(d.sink.facts)
        d.port.perform(effects.ConfigureAgent(mode="nonsense"))
        assert (await d.sink.one(inputs.AgentMode, at)).mode == "ask"
        d.port.perform(effects.ConfigureAgent(config=("model", "quick")))
        assert (await d.sink.one(inputs.AgentConfig, at, model="quick")).options[0]["currentValue"] == "quick"


async def test_noise_is_skipped(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        assert (await d.turn("say a\nnoise\nsay b")).outcome == "end_turn"
        assert d.sink.text() == "ab"
        assert d.port._connection and d.port._connection.peer.noise >= 9


async def test_noise_is_told_once_a_burst(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> list[tuple[int, int]]:
        return [(line["lines"], line["so_far"]) for line in logged if "no message" in line["event"]]

    monkeypatch.setattr(noise, "FIRST", 0.5)
    with structlog.testing.capture_logs() as logged:
        async with demo(tmp_path) as d:
            await d.turn("noise\nsleep 1\nnoise\nsay x")
            async with asyncio.timeout(10):
                while not told():
                    await asyncio.sleep(0.005)
            assert d.port._connection
            seen = d.port._connection.peer.noise
            assert told() == [(seen, seen)]
            await d.turn("noise")
        assert told() == [(seen, seen), (seen // 2, seen + seen // 2)]  # the rest, at the end


async def test_noise_instead_of_a_beginning_is_said(tmp_path: Path) -> None:
    config = demo_config(tmp_path, command=["sh", "-c", "echo usage: agent; echo; echo words; exit 2"])
    with pytest.raises(AgentUnavailable, match="exited with status 2; it wrote 2 lines that are no ACP messages"):
        await probe(config)


@pytest.mark.parametrize("size", [64 * 1024, 1024 * 1024, 31 * 1024 * 1024])
async def test_long_lines_are_delivered(tmp_path: Path, size: int) -> None:
    async with demo(tmp_path, "--no-load") as d:
        await d.turn(f"big {size}")
        assert len(d.sink.text()) == size


async def test_a_line_over_the_limit_is_an_error_of_that_message_only(tmp_path: Path) -> None:
    async with demo(tmp_path, "--no-load") as d:
        end = await d.turn(f"say a\nbig {40 * 1024 * 1024}\nsay b")
        assert end.outcome == "end_turn" and d.sink.text() == "ab"
        (notice,) = d.sink.of(inputs.AgentUnknown)
        assert notice.kind == "notice" and notice.raw["_meta"]["trunkline"]["code"] == "message_too_large"


async def test_death_in_a_turn(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        d.offer("stream 1000 20")
        await d.sink.one(inputs.AgentText)
        pid = d.pid
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        fact = await d.sink.one(inputs.AgentGone)
        assert time.monotonic() - began < 0.05
        assert fact.error and fact.error.code == "agent_exit" and "signal 9" in fact.error.message
        d.offer("say x")
        assert isinstance(d.sink.facts[-1], inputs.PromptUnwritten)
        assert len(d.sink.of(inputs.AgentGone)) == 1
        await d.start(d.sink.of(inputs.AgentReady)[0].own_id, True)
        assert (await d.turn("say alive")).outcome == "end_turn"


async def test_crash_says_the_last_words(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        d.offer("say before\ncrash")
        error = (await d.sink.one(inputs.AgentGone)).error
        assert error and error.code == "agent_exit"
        assert error.message == "demo exited with status 1; last stderr: demo agent: crashed as told"
        assert d.sink.text() == "before" and not d.sink.of(inputs.PromptEnded)


async def test_kill(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        d.offer("say on\nhang")
        await d.sink.one(inputs.AgentText)
        pid = d.pid
        async with asyncio.timeout(5):
            while len(reaper.members(pid)) < 2:
                await asyncio.sleep(0.005)
        d.port.perform(effects.CancelTurn(TURN))
        d.port.perform(effects.KillAgent("it does not listen"))
        error = (await d.sink.one(inputs.AgentGone)).error
        assert error and "it does not listen" in error.message
        await gone(pid)


async def test_load_after_restart(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        first = d.sink.of(inputs.AgentReady)[0]
        await d.turn("think hm\nsay hello\ntool ls\nsay bye")
        ids = [f.agent_id for f in d.sink.of(inputs.AgentText)]
        await d.port.close()
        assert d.sink.facts[-1] == inputs.AgentGone()
        at = len(d.sink.facts)
        again = await d.start(first.own_id, has_history=False)
        assert again.own_id == first.own_id
        (replay,) = d.sink.of(inputs.Replayed)
        assert [type(f).__name__ for f in replay.facts] == [
            *("AgentUser", "AgentText", "AgentText", "AgentTool", "AgentTool", "AgentTool", "AgentText")
        ]
        assert [f.agent_id for f in replay.facts if isinstance(f, inputs.AgentText)] == ids
        user = replay.facts[0]
        assert isinstance(user, inputs.AgentUser) and user.content == (Text("think hm\nsay hello\ntool ls\nsay bye"),)
        names = [type(f).__name__ for f in d.sink.facts[at:]]
        assert names[:4] == ["Replayed", "AgentMode", "AgentConfig", "AgentReady"]
        await d.turn("say more")


async def test_resume_where_the_history_is_known(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        own = d.sink.of(inputs.AgentReady)[0].own_id
        await d.turn("say hello")
        await d.port.close()
        assert (await d.start(own, has_history=True)).own_id == own
        assert not d.sink.of(inputs.Replayed)


async def test_a_session_that_the_agent_forgot(tmp_path: Path) -> None:
    async with demo(tmp_path, start=False) as d:
        ready = await d.start("demo_forgotten", has_history=True)
        assert ready.own_id.startswith("demo_") and ready.own_id != "demo_forgotten"
        assert (await d.turn("say hi")).outcome == "end_turn"


async def test_mute_agent(tmp_path: Path) -> None:
    async with demo(tmp_path, "--mute", start=False, start_timeout=0.5) as d:
        d.port.start(session(str(tmp_path)), False)
        while not (d.port._connection and d.port._connection.process):
            await asyncio.sleep(0)
        pid = d.pid
        error = (await d.sink.one(inputs.AgentGone)).error
        assert error and error.code == "agent_timeout" and "initialize" in error.message
        await gone(pid)
    assert len(d.sink.facts) == 1


async def test_no_such_command(tmp_path: Path) -> None:
    async with demo(tmp_path, start=False, command=["/no/such/agent"]) as d:
        d.port.start(session(str(tmp_path)), False)
        error = (await d.sink.one(inputs.AgentGone)).error
        assert error and error.code == "agent_exit" and "/no/such/agent" in error.message


async def test_close_while_starting(tmp_path: Path) -> None:
    async with demo(tmp_path, "--mute", start=False) as d:
        d.port.start(session(str(tmp_path)), False)
        while not (d.port._connection and d.port._connection.process):
            await asyncio.sleep(0)
        pid = d.pid
        await d.port.close()
        assert d.sink.facts == [inputs.AgentGone()]
        assert not reaper.members(pid)


async def test_the_environment_is_not_the_gateways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKER_SECRET", "do not tell")
    monkeypatch.setenv("MARKER_WANTED", "tell")
    async with demo(tmp_path, pass_env=["MARKER_WANTED"]) as d:
        environ = Path(f"/proc/{d.pid}/environ").read_bytes()
        assert b"do not tell" not in environ
        assert b"MARKER_WANTED=tell" in environ and b"TRUNKLINE_DEMO_STATE" in environ and b"PATH=" in environ


async def test_a_launcher_leaves_nobody(tmp_path: Path) -> None:
    agent = " ".join(DEMO)
    async with demo(tmp_path, command=["sh", "-c", f"{agent}; :"]) as d:
        pid = d.pid
        assert len(reaper.members(pid)) == 2
        await d.turn("say hi")
        await d.port.close()
        assert not reaper.members(pid)


async def test_a_launcher_that_is_killed_leaves_nobody(tmp_path: Path) -> None:
    agent = " ".join(DEMO)
    async with demo(tmp_path, command=["sh", "-c", f"{agent}; :"]) as d:
        pid = d.pid
        os.kill(pid, signal.SIGKILL)
        await d.sink.one(inputs.AgentGone)
        await gone(pid)


async def test_back_pressure(tmp_path: Path) -> None:
    async with demo(tmp_path, "--no-load") as d:
        d.sink.is_full = True
        offer = d.offer("flood 200000")
        await d.sink.one(inputs.AgentText)
        held = len(d.sink.text())
        # Nothing is read while the sink is full: a turn of the loop that would bring more brings nothing.
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len(d.sink.text()) == held < 44 * 200000
        d.sink.drain()
        await d.sink.one(inputs.PromptEnded, offer_id=offer)
        assert len(d.sink.text()) == 44 * 200000


async def test_a_shared_process(tmp_path: Path) -> None:
    pool, config = AcpAgents(), demo_config(tmp_path, process="shared")
    a, b = Driver(config, tmp_path, pool), Driver(config, tmp_path, pool)
    await asyncio.gather(a.start(), b.start())
    pid = a.pid
    assert pid == b.pid and a.port.own_id != b.port.own_id
    await asyncio.gather(a.turn("stream 20 1\nsay A"), b.turn("stream 20 1\nsay B"))
    assert a.sink.text().endswith("A") and b.sink.text().endswith("B")
    await a.port.close()
    assert a.sink.facts[-1] == inputs.AgentGone() and reaper.members(pid)
    assert (await b.turn("say on")).outcome == "end_turn"
    os.kill(pid, signal.SIGKILL)
    await b.sink.one(inputs.AgentGone)
    assert len(a.sink.of(inputs.AgentGone)) == 1
    await b.start()
    assert b.pid != pid
    await b.port.close()
    await pool.close()


async def test_blocks_that_the_agent_does_not_take(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        await d.turn("", (Text("see"), Image("AAAA", "image/png")))
        assert d.sink.text() == "You said: seeYou said: [image]"


async def test_probe(tmp_path: Path) -> None:
    found = await probe(demo_config(tmp_path, "--steer"))
    assert found["name"] == "Trunkline demo agent" and found["protocol"] == "ACP v1"
    assert found["can"] == ["load", "resume", "close", "fork", "image", "embedded context", "steer"]
    with pytest.raises(AgentTimeout):
        await probe(demo_config(tmp_path, "--mute", start_timeout=0.3))
    broken = AgentConfig(name="x", command=[sys.executable, "-c", "import sys; sys.exit('no key')"])
    with pytest.raises(AgentUnavailable, match="x exited with status 1; last stderr: no key"):
        await probe(broken)


SCRIPTED = """
import json, sys
def send(**m): sys.stdout.write(json.dumps({"jsonrpc": "2.0", **m}) + "\\n"); sys.stdout.flush()
def update(sid, **u): send(method="session/update", params={"update": u, "sessionId": sid})
def chunk(sid, text):
    update(sid, content={"text": text, "type": "text"}, messageId=text, sessionUpdate="agent_message_chunk")
for line in sys.stdin:
    m = json.loads(line)
    i, method = m.get("id"), m.get("method")
    if method == "initialize":
        send(id=i, result={"protocolVersion": 1, "agentCapabilities": None, "authMethods": [{"id": "key"}]})
%s
"""


async def scripted(tmp_path: Path, body: str) -> Driver:
    code = SCRIPTED % "\n".join("    " + line for line in body.strip().split("\n"))
    return Driver(AgentConfig(name="odd", command=[sys.executable, "-c", code]), tmp_path)


async def test_updates_before_the_session_is_known_and_before_a_child_is(tmp_path: Path) -> None:
    d = await scripted(
        tmp_path,
        """
if method == "session/new":
    update("s1", sessionUpdate="available_commands_update", availableCommands=[])
    chunk("s1", "early")
    send(id=77, method="session/request_permission", params={"sessionId": "nobody", "toolCall": {}, "options": []})
    send(id="77", method="fs/read_text_file", params={"sessionId": "s1", "path": "/x"})
    send(id=i, result={"sessionId": "s1", "modes": None})
elif method == "session/prompt":
    chunk("kid", "before the announcement")
    update("s1", sessionUpdate="subagent_update", sessionId="kid", state={"state": "running"})
    send(id="9", result={}); send(id=999, result={})
    send(id=i, error={"code": 1001, "message": "app server died", "data": {"restartable": True}})
elif method is None:
    chunk("s1", json.dumps(m))
""",
    )
    await d.start()
    await d.sink.until(lambda f: isinstance(f, inputs.AgentText) and "-32601" in f.text)
    kinds = [type(f).__name__ for f in d.sink.facts]
    assert kinds == ["AgentReady", "AgentCommands", "AgentText", "AgentText", "AgentText"]
    stranger, unknown = (f.text for f in d.sink.of(inputs.AgentText)[1:])
    assert '"id": 77' in stranger and "-32002" in stranger
    assert '"id": "77"' in unknown and "-32601" in unknown
    end = await d.turn("x")
    assert end.error == Error("agent_error", "app server died", {"code": 1001, "data": {"restartable": True}})
    assert [type(f).__name__ for f in d.sink.facts[-3:]] == ["AgentChild", "AgentText", "PromptEnded"]
    text = d.sink.facts[-2]
    assert isinstance(text, inputs.AgentText) and text.agent_session == "kid"
    assert d.port._connection and d.port._connection.peer.strays == 2
    await d.port.close()


async def test_auth_required(tmp_path: Path) -> None:
    d = await scripted(
        tmp_path, 'if method == "session/new": send(id=i, error={"code": -32000, "message": "Authentication required"})'
    )
    d.port.start(session(str(tmp_path)), False)
    error = (await d.sink.one(inputs.AgentGone)).error
    assert error and (error.code, error.message) == ("auth_required", "Authentication required")
    assert error.data == {"code": -32000, "authMethods": [{"id": "key"}]}
    await d.port.close()
    assert len(d.sink.facts) == 1


async def test_a_request_that_the_agent_takes_back(tmp_path: Path) -> None:
    d = await scripted(
        tmp_path,
        """
if method == "session/new":
    send(id=i, result={"sessionId": "s1", "models": {"currentModelId": "a", "availableModels": [{"modelId": "a"}]}})
elif method == "session/prompt":
    send(id="req", method="session/request_permission", params={"options": [], "toolCall": None, "sessionId": "s1"})
    send(method="$/cancel_request", params={"requestId": "req"})
    prompt = i
elif method == "session/set_model":
    send(id=i, result={})
elif method is None:
    chunk("s1", json.dumps(m["error"]["code"]) + m["id"]); send(id=prompt, result={"stopReason": "odd", "usage": None})
""",
    )
    await d.start()
    end = await d.turn("x")
    assert (end.outcome, end.tokens) == ("end_turn", None)
    ask, back = d.sink.of(inputs.AgentAsk)[0], d.sink.of(inputs.AgentAskWithdrawn)[0]
    assert ask.agent_ref == back.agent_ref and d.sink.text() == "-32800req"
    assert d.sink.of(inputs.AgentConfig)[0].model == "a"
    d.port.perform(effects.ConfigureAgent(model="b"))
    await d.sink.one(inputs.AgentConfig, model="b")
    await d.port.close()


async def test_a_page_that_did_what_it_was_for(tmp_path: Path) -> None:
    """``elicitation/complete`` answers who was asked to open the page; later it is only told."""
    d = await scripted(
        tmp_path,
        """
if method == "session/new":
    send(id=i, result={"sessionId": "s1"})
elif method == "session/prompt":
    ask = {"sessionId": "s1", "mode": "url", "elicitationId": "e1", "url": "http://127.0.0.1/x", "message": "Open"}
    send(id="req", method="elicitation/create", params=ask)
    send(method="elicitation/complete", params={"elicitationId": "e1"})
    prompt = i
elif method is None:
    chunk("s1", m["result"]["action"] + m["id"])
    send(method="elicitation/complete", params={"elicitationId": "e1"})
    send(id=prompt, result={"stopReason": "end_turn"})
""",
    )
    await d.start()
    await d.turn("x")
    ask, back = d.sink.of(inputs.AgentAsk)[0], d.sink.of(inputs.AgentAskWithdrawn)[0]
    assert ask.agent_ref == back.agent_ref and d.sink.text() == "acceptreq"
    (told,) = d.sink.of(inputs.AgentUnknown)
    assert (told.kind, told.raw) == ("elicitation/complete", {"elicitationId": "e1"})
    await d.port.close()


async def test_nothing_is_told_after_the_end(tmp_path: Path) -> None:
    async with demo(tmp_path) as d:
        d.offer("stream 100000 0")
        await d.sink.one(inputs.AgentText)
        await d.port.close()
        assert d.sink.facts[-1] == inputs.AgentGone()


def test_sink_is_a_sink() -> None:
    from gateway import agents

    def takes(sink: agents.Sink) -> None: ...

    takes(Sink())
    assert (ROOT / "adapters").is_dir()
