"""Providers, models, OpenCode agents: what clients are offered, when they are told of more, and what choosing does."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.core import effects as fx
from gateway.core.inputs import AgentCommands, AgentMode
from gateway.core.inputs import AgentConfig as AgentOptions
from tests.fake_port import Farm
from tests.opencode.support import Gateway, gateway
from tests.opencode.test_catalog import MODELS, MODES
from tests.opencode.test_stream import settled
from tests.served import serve

NEWS = "server.instance.disposed"


async def test_choosing_in_a_client_changes_the_session_of_the_agent(tmp_path: Path) -> None:
    """The demo agent: modes ``code`` and ``ask``, models ``quick`` and ``careful``. A prompt waits for both."""
    async with serve(tmp_path) as served:
        sid = await served.session()
        await served.post(sid, "say hello")
        (provider,) = (await served.http.get("/config/providers")).json()["providers"]
        assert provider["id"] == "demo" and set(provider["models"]) == {"quick", "careful"}
        assert [agent["name"] for agent in (await served.http.get("/agent")).json()] == ["code", "ask"]
        async with served.events() as frames:
            model = {"providerID": "demo", "modelID": "careful"}
            await served.send(sid, "tool Deploy", model=model, agent="ask")
            asked = await frames.until("permission.asked", sessionID=sid)  # in the mode "ask" it asks
        answer = await served.http.post(f"/permission/{asked['properties']['id']}/reply", json={"reply": "once"})
        assert answer.json() is True
        info = (await served.http.get(f"/session/{sid}")).json()
        assert info["agent"] == "ask" and info["model"] == {"id": "careful", "providerID": "demo"}
        last = (await served.http.get(f"/session/{sid}/message")).json()[-1]["info"]
        assert (last["modelID"], last["providerID"], last["agent"]) == ("careful", "demo", "ask")


async def test_what_is_known_stays_known_after_a_restart(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        await served.post(await served.session(), "say hello")
    async with serve(tmp_path) as served:
        (provider,) = (await served.http.get("/provider")).json()["all"]
        assert set(provider["models"]) == {"quick", "careful"}
    async with serve(tmp_path) as served:
        assert [agent["name"] for agent in (await served.http.get("/agent")).json()] == ["code", "ask"]


async def test_clients_are_told_once_when_an_agent_says_something_new(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        stream = one.read()
        await stream.until("server.connected")
        sid = await one.new()
        await one.prompt(sid, "x")
        assert NEWS not in kinds(await stream.now())  # it has nothing to choose from
        farm.port.tell(AgentMode(mode="code", modes=MODES), AgentOptions(options=MODELS, model="big"))
        await settled(one)
        (told,) = [e for e in await stream.now() if e["type"] == NEWS]
        assert told["properties"] == {"directory": str(one.workspace)}
        farm.port.tell(AgentMode(mode="ask"), AgentOptions(options=MODELS, model="small"))  # nothing new
        await settled(one)
        second = await one.new()
        await one.prompt(second, "y")
        farm.port.tell(AgentMode(mode="code", modes=MODES), AgentOptions(options=MODELS, model="big"))
        await settled(one)
        assert NEWS not in kinds(await stream.now())
        farm.port.tell(AgentCommands(commands=[{"name": "review"}]))
        await settled(one)
        assert kinds(await stream.now()).count(NEWS) == 1
        await stream.close()


async def test_a_stream_of_one_directory_is_not_ended_by_it(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        stream = one.read(kind="event")
        await one.prompt(await one.new(), "x")
        farm.port.tell(AgentMode(mode="code", modes=MODES))
        await settled(one)
        assert NEWS not in kinds(await stream.now())
        await stream.close()


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


@pytest.mark.parametrize("route", ["message", "prompt_async", "command"])
async def test_what_is_not_there_is_refused_before_anything_runs(tmp_path: Path, route: str) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await one.prompt(sid, "x")
        farm.port.tell(AgentMode(mode="code", modes=MODES), AgentOptions(options=MODELS, model="big"))
        await settled(one)
        fresh = await one.new()  # its agent has not spoken: another session's has

        for session in (sid, fresh):
            for choice, status, names in (
                ({"model": ("fake", "huge")}, 400, ["small", "big", '["model"]["modelID"]']),
                ({"agent": "nobody"}, 400, ["code", "ask", '["agent"]']),
                ({"model": ("nobody", "big")}, 404, ["fake", "other", '["model"]["providerID"]']),
            ):
                answer = await send(one, route, session, choice)
                assert answer.status_code == status, answer.text
                assert all(name in answer.json()["data"]["message"] for name in names), answer.text
        answer = await send(one, route, sid, {"model": ("other", "default")})
        assert answer.status_code == 409 and '"fake"' in answer.json()["data"]["message"]
        assert len(farm.prompts) == 1 and len(await one.messages(sid)) == 2
        assert (await one.http.get(f"/session/{fresh}")).json().get("model") is None


async def send(one: Gateway, route: str, session_id: str, choice: dict[str, Any]) -> httpx.Response:
    body: dict[str, Any] = {"parts": [{"type": "text", "text": "y"}]} if route != "command" else {"command": "review"}
    if "agent" in choice:
        body["agent"] = choice["agent"]
    if "model" in choice:
        provider, model = choice["model"]
        body["model"] = f"{provider}/{model}" if route == "command" else {"providerID": provider, "modelID": model}
    return await one.http.post(f"/session/{session_id}/{route}", json=body)


async def test_the_first_prompt_of_a_session_chooses_too(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        await one.prompt(await one.new(), "x")
        farm.port.tell(AgentMode(mode="code", modes=MODES), AgentOptions(options=MODELS, model="big"))
        await settled(one)
        sid = await one.new()
        await one.prompt(sid, "y", model={"providerID": "fake", "modelID": "small"}, agent="ask")
        assert farm.port.info.asked_mode == "ask" and farm.port.info.asked_model == "small"
        # the terminal sends the OpenCode agent that is chosen everywhere, also to an agent that has other modes
        other = await one.new()
        answer = await one.prompt(other, "z", model={"providerID": "other", "modelID": "default"}, agent="ask")
        assert answer.status_code == 200
        assert not any(isinstance(e, fx.ConfigureAgent) and e.mode for e in farm.port.effects)
