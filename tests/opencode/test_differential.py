"""The same stories told to the real ``opencode serve`` and to Trunkline with ``opencode acp`` behind it, compared.

Both have the same scripted model. Every accepted difference is in the table, with its reason: one that is not there
fails, and so does one that does not occur any more.
"""

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest

from tests.opencode.differ import (
    Json,
    Player,
    Story,
    event_differences,
    field_differences,
    message_differences,
    normal,
    play,
)
from tests.opencode.story_model import StoryModel
from tests.opencode.terminal import OPENCODE, real_server
from tests.served import serve

pytestmark = pytest.mark.usefixtures("npm_clients")

# --- the stories -----------------------------------------------------------------------------------------------------


async def text(player: Player) -> list[httpx.Response]:
    return [await player.start("hello there")]


async def reasoning(player: Player) -> list[httpx.Response]:
    return [await player.start("think: it is a greeting\nhello there")]


async def tool(player: Player) -> list[httpx.Response]:
    turn = player.start("run: echo from-the-tool")
    await player.reply("once")
    return [await turn]


async def two_tools(player: Player) -> list[httpx.Response]:
    turn = player.start("run: echo the-first\nrun: echo the-second")
    await player.reply("once", 0)
    await player.reply("once", 1)
    return [await turn]


async def rejected(player: Player) -> list[httpx.Response]:
    turn = player.start("run: echo never")
    await player.reply("reject")
    return [await turn]


async def aborted(player: Player) -> list[httpx.Response]:
    turn = player.start("words 5000 every 20")
    await player.seen("message.part.delta")
    assert (await player.http.post(f"/session/{player.session_id}/abort")).json() is True
    return [await turn]


async def busy(player: Player) -> list[httpx.Response]:
    first = player.start("words 200 every 20")
    await player.seen("message.part.delta")
    second = player.start("the second")
    return [await first, await second]


async def own_ids(player: Player) -> list[httpx.Response]:
    part = {"id": "prt_229fcdea7001bxrhtx54xUztXU", "type": "text", "text": "hello there"}
    return [await player.start("", messageID="msg_229fcdea2001DU52JSrnXj6Tf0", parts=[part])]


async def refused(player: Player) -> list[httpx.Response]:
    return [await player.start("fail: 400 the model refuses")]


STORIES: dict[str, Story] = {
    story.__name__: story for story in (text, reasoning, tool, two_tools, rejected, aborted, busy, own_ids, refused)
}

# --- what may differ -------------------------------------------------------------------------------------------------

# ``-``: only the real server has or says it; ``+``: only ours; else the real one's value, then ours.

EVERYWHERE = {
    'assistant.modelID: "scripted" != "scripted/scripted"': "a model is the agent's own model option",
    'user.model.modelID: "scripted" != "scripted/scripted"': "a model is the agent's own model option",
    'assistant.providerID: "scripted" != "oc"': "a provider is a configured agent",
    'user.model.providerID: "scripted" != "oc"': "a provider is a configured agent",
    'assistant.path.root: "/" != "FOLDER"': "each folder is its own project; there, one without git is in the root",
    "- user.summary": "an empty list of diffs: the gateway takes no snapshots of files",
}

_TOOL = {
    "- message.part.updated assistant tool bash pending": "ACP tells a call when its input is known",
    "+ permission.asked.metadata.options": "what the ACP agent offers, and under which title",
    "+ permission.asked.metadata.title": "what the ACP agent offers, and under which title",
    "+ assistant tool.state.input.cwd": "the agent's raw input, as it tells it on ACP",
    "+ assistant tool.state.input.workdir": "the same under the name that clients show",
}
_TOOL_RAN = {
    **_TOOL,
    "+ assistant tool.state.metadata.locations": "ACP's locations of a call",
    "- assistant tool.state.metadata.truncated": "not told on ACP",
    "assistant.tokens.input: 100 != 0": "ACP tells the usage of a turn at its end: its last step has it",
    "assistant.tokens.output: 5 != 0": "ACP tells the usage of a turn at its end: its last step has it",
    "assistant.tokens.total: 105 != 0": "ACP tells the usage of a turn at its end: its last step has it",
    "assistant step-finish.tokens.input: 100 != 0": "ACP tells the usage of a turn at its end: its last step has it",
    "assistant step-finish.tokens.output: 5 != 0": "ACP tells the usage of a turn at its end: its last step has it",
    "assistant step-finish.tokens.total: 105 != 0": "ACP tells the usage of a turn at its end: its last step has it",
}
_ONE_IDLE = {
    "- session.idle": "the real server says idle twice, before the message is complete and after; here once, after",
    "- session.status idle": "the real server says idle twice; here once, when the message is complete",
}

_NO_KIND = "ACP's error has a code and a message; nothing of the provider's answer"

ACCEPTED: dict[str, dict[str, str]] = {
    "text": {},
    "reasoning": {
        "+ assistant reasoning.metadata": "the message's id with the agent, where the step has another",
        "+ assistant text.metadata": "the message's id with the agent, where the step has another",
    },
    "tool": _TOOL_RAN,
    "two_tools": _TOOL_RAN,
    "rejected": {
        **_TOOL,
        "+ assistant tool.state.metadata": "the output that the agent tells with the error",
        "+ message.updated assistant, finish stop, completed": "ACP's stop reason: the turn ended with this step",
        "- message.updated assistant, finish tool-calls, completed": "ACP's stop reason: the turn ended with this step",
        'assistant.finish: "tool-calls" != "stop"': "ACP's stop reason: the turn ended with this step",
        'assistant step-finish.reason: "tool-calls" != "stop"': "ACP's stop reason: the turn ended with this step",
    },
    "aborted": {
        **_ONE_IDLE,
        "- message.part.updated assistant text ended": "after the error there, before it here",
        "+ message.part.updated assistant text ended": "after the error there, before it here",
        "- message.updated assistant, error MessageAbortedError, completed": "after the error there, before it here",
        "+ message.updated assistant, error MessageAbortedError, completed": "after the error there, before it here",
        "+ assistant.tokens.total": "zero here, absent there",
    },
    "busy": {
        'answer[1]: "msg#4" != "msg#2"': "each waiting POST is answered with its own turn's last message",
    },
    "own_ids": {},
    "refused": {
        **_ONE_IDLE,
        "- session.error APIError": _NO_KIND,
        "+ session.error UnknownError": _NO_KIND,
        "- message.updated assistant, error APIError, completed": _NO_KIND,
        "+ message.updated assistant, error UnknownError, completed": _NO_KIND,
        'assistant.error.name: "APIError" != "UnknownError"': _NO_KIND,
        'assistant.error.data.message: "the model refuses" != "Internal error: the model refuses"': _NO_KIND,
        "+ assistant.error.data.ref": _NO_KIND,
        "- assistant.error.data.isRetryable": _NO_KIND,
        "- assistant.error.data.metadata": _NO_KIND,
        "- assistant.error.data.responseBody": _NO_KIND,
        "- assistant.error.data.responseHeaders": _NO_KIND,
        "- assistant.error.data.statusCode": _NO_KIND,
        "+ message.part.updated assistant step-start": "a step that is open has begun",
        "assistant parts:  != step-start": "a step that is open has begun",
        "+ assistant.tokens.total": "zero here, absent there",
    },
}

# --- playing ---------------------------------------------------------------------------------------------------------


async def play_all(folder: Path) -> dict[str, dict[str, dict[str, Json]]]:
    """Every story on both servers: name → ``real`` and ``ours``."""
    told: dict[str, dict[str, dict[str, Json]]] = {name: {} for name in STORIES}

    async def all_of(side: str, http: httpx.AsyncClient, folder: str) -> None:
        for name, story in STORIES.items():
            told[name][side] = await play(http, story, folder)

    with StoryModel() as model:
        settings = {
            "model": "scripted/scripted",
            "permission": {"bash": "ask"},
            "provider": {
                "scripted": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "Scripted",
                    "options": {"baseURL": model.url, "apiKey": "none"},
                    "models": {
                        "scripted": {
                            "name": "Scripted",
                            "reasoning": True,
                            "limit": {"context": 100000, "output": 8000},
                        }
                    },
                }
            },
        }
        with real_server(folder / "real", settings) as url:
            async with httpx.AsyncClient(base_url=url, timeout=60) as http:
                await all_of("real", http, str(folder / "real" / "work"))
        ours = folder / "ours"
        (ours / ".config" / "opencode").mkdir(parents=True)
        (ours / ".config" / "opencode" / "opencode.json").write_text(json.dumps(settings))
        config = ours / "trunkline.toml"
        config.write_text(
            f"[agents.oc]\ncommand = [{json.dumps(str(OPENCODE))}, 'acp']\nprocess = 'shared'\n"
            "[agents.oc.env]\nOPENCODE_DISABLE_MODELS_FETCH = '1'\nOPENCODE_DISABLE_AUTOUPDATE = '1'\n"
        )
        async with serve(ours, "--config", str(config)) as served:
            await all_of("ours", served.http, str(served.workspace))
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, Json]]]:
    folder = tmp_path_factory.mktemp("stories")
    (folder / "real").mkdir()
    return asyncio.run(play_all(folder))


def differences(story: dict[str, dict[str, Json]]) -> set[str]:
    """All differences of one story: ``-`` only the real server has or says it, ``+`` only ours."""
    real, ours = (normal(story[side], story[side]["folder"]) for side in ("real", "ours"))
    found = event_differences(story["real"]["events"], story["ours"]["events"])
    found += message_differences(uncut(real["messages"]), uncut(ours["messages"]))
    for one, other in zip(real["answers"], ours["answers"], strict=True):
        found += field_differences(one, other, "answer")
    return set(found)


def uncut(messages: list[Json]) -> list[Json]:
    """Where a text of words was cut off is chance: it counts as cut off."""
    for part in (part for message in messages for part in message["parts"]):
        if re.fullmatch(r"w0( w\d+)*", part.get("text", "")) and not part["text"].endswith("w199"):
            part["text"] = "w0 …"
    return messages


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_the_same_on_both_servers(name: str, told: dict[str, dict[str, dict[str, Json]]]) -> None:
    found = differences(told[name])
    accepted = set(ACCEPTED[name]) | set(EVERYWHERE)
    assert sorted(found - accepted) == [], "differences that nobody accepted"
    assert sorted(accepted - found) == [], "accepted differences that are none any more: take them out of the table"


def test_ids_of_the_client_are_kept(told: dict[str, dict[str, dict[str, Json]]]) -> None:
    for side in ("real", "ours"):
        user = told["own_ids"][side]["messages"][0]
        assert [user["info"]["id"], user["parts"][0]["id"]] == [
            "msg_229fcdea2001DU52JSrnXj6Tf0",
            "prt_229fcdea7001bxrhtx54xUztXU",
        ]
