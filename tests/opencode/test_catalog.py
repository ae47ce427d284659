"""What there is to choose from: agents, modes, models, commands; what clients ask when they start."""

from pathlib import Path

from gateway.core import effects as fx
from gateway.core.inputs import AgentCommands, AgentMode
from gateway.core.inputs import AgentConfig as AgentOptions
from tests.fake_port import Farm
from tests.opencode.support import gateway
from tests.opencode.test_routes import prompted
from tests.opencode.test_stream import end, settled
from tests.opencode.test_translate import schema

MODES = [{"id": "code", "name": "Code", "description": "Writes"}, {"id": "ask", "name": "Ask"}]
MODELS = [
    {
        "id": "model",
        "category": "model",
        "type": "select",
        "currentValue": "big",
        "options": [{"value": "small", "name": "Small"}, {"group": "g", "options": [{"value": "big", "name": "Big"}]}],
    }
]


async def test_the_catalog_before_and_after_an_agent_has_spoken(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        agents = (await one.http.get("/agent")).json()
        assert [a["name"] for a in agents] == ["build"]
        providers = (await one.http.get("/config/providers")).json()
        assert providers["default"] == {"fake": "default", "other": "default"}
        sid = await one.new()
        await one.queue(sid, "x", model={"providerID": "fake", "modelID": "default"}, agent="build")
        await prompted(farm, "x")
        farm.port.tell(
            AgentMode(mode="code", modes=MODES),
            AgentOptions(options=MODELS, model="big"),
            AgentCommands(commands=[{"name": "review", "description": "Reviews"}]),
        )
        await settled(one)
        agents = (await one.http.get("/agent")).json()
        assert [a["name"] for a in agents] == ["code", "ask"]
        found = (await one.http.get("/provider")).json()
        assert found["connected"] == ["fake", "other"] and found["default"]["fake"] == "big"
        for each in agents:
            schema("Agent").validate(each)
        for each in found["all"]:
            schema("Provider").validate(each)
        commands = (await one.http.get("/command")).json()
        schema("Command").validate(commands[0])
        assert commands[0]["name"] == "review"
        end(farm)
        await settled(one)
        # a mode and a model that the session has are switched to; one that nobody has is refused
        model = {"providerID": "fake", "modelID": "small"}
        await one.queue(sid, "y", agent="ask", model=model)
        await settled(one)
        assert [(e.mode, e.model) for e in farm.port.effects if isinstance(e, fx.ConfigureAgent)] == [("ask", "small")]
        answer = await one.prompt(sid, "z", agent="nobody")
        assert answer.status_code == 400 and '["agent"]' in answer.json()["data"]["message"]
        answer = await one.prompt(sid, "z", model={"providerID": "fake", "modelID": "huge"})
        assert answer.status_code == 400 and "small" in answer.json()["data"]["message"]


async def test_the_first_prompt_binds_the_agent(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        sid = await one.new()
        answer = await one.prompt(sid, "x", model={"providerID": "nobody", "modelID": "m"})
        assert answer.status_code == 404 and "fake, other" in answer.json()["data"]["message"]
        other = {"providerID": "other", "modelID": "default"}
        assert (await one.prompt(sid, "x", model=other)).json()["info"]["providerID"] == "other"
        answer = await one.prompt(sid, "y", model={"providerID": "fake", "modelID": "default"})
        assert answer.status_code == 409 and '"other"' in answer.json()["data"]["message"]
        assert (await one.http.get(f"/session/{sid}")).json()["model"]["providerID"] == "other"


async def test_a_slash_command_is_a_prompt(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        body = {"command": "review", "arguments": "a.py", "model": "fake/default"}
        answer = await one.http.post(f"/session/{sid}/command", json=body)
        assert answer.status_code == 200
        assert farm.prompts == [["/review a.py"]]


async def test_what_clients_ask_at_their_start(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        for path in (
            "/global/health /path /project /project/current /config /global/config /config/providers /provider /agent "
            "/command /lsp /mcp /formatter /vcs /skill /provider/auth /session /session/status /permission /question "
            "/experimental/resource /experimental/workspace /experimental/workspace/status /experimental/console "
            "/experimental/capabilities /doc"
        ).split():
            answer = await one.http.get(path)
            assert answer.status_code == 200 and answer.headers["content-type"] == "application/json", path
        where = (await one.http.get("/path")).json()
        schema("Path").validate(where)
        assert where["directory"] == where["worktree"] == str(one.workspace)
        project = (await one.http.get("/project/current")).json()
        schema("Project").validate(project)
        directories = (await one.http.get(f"/project/{project['id']}/directories")).json()
        assert directories == [{"directory": str(one.workspace)}]
        assert (await one.http.get("/global/health")).json()["healthy"] is True
        assert "/session/{sessionID}/message" in (await one.http.get("/doc")).json()["paths"]
