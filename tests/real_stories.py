"""What must be so with every real agent, told once: each story takes a seat (``real_agents``) and plays it.

Nothing here knows an agent; what differs between them is an argument.
"""

import asyncio

import pytest

from tests.acp.clients.raw import Client, RpcError
from tests.real_agents import Json, Line, Seat, choose


def texts(lines: list[Line], *kinds: str) -> list[str]:
    return [line.text.strip() for line in lines if line.kind in (kinds or ("user", "agent"))]


def tool(lines: list[Line], nth: int = -1) -> Line:
    return [line for line in lines if line.kind == "tool"][nth]


async def begun(seat: Seat, text: str) -> "asyncio.Future[Json]":
    """A prompt of ``words`` that are being said."""
    after = len(seat.sender.got)
    turn = seat.sender.prompt(text)
    await seat.sender.said("w3", after)
    return turn


async def text(seat: Seat) -> None:
    result = await seat.sender.turn("hello there")
    assert result["stopReason"] == "end_turn"
    assert result["usage"]["inputTokens"] >= 100 and result["usage"]["outputTokens"] >= 5
    lines = await seat.agreed()
    assert texts(lines) == ["hello there", "You wrote: hello there"]
    assert lines[0].id == result["_meta"]["trunkline"]["messageId"]
    answer = (await messages(seat))[-1]
    assert answer["info"]["tokens"]["input"] >= 100 and answer["info"]["finish"] == "stop"
    for each in (seat.one, seat.two):
        assert (await each.update("usage_update"))["used"] >= 100


async def messages(seat: Seat) -> list[Json]:
    found: list[Json] = (await seat.served.http.get(f"/session/{seat.session}/message")).json()
    return found


async def free_tool(seat: Seat) -> None:
    """A tool that needs no permission."""
    await seat.sender.turn("run: echo from-the-$((40 + 2))")
    lines = await seat.agreed()
    assert tool(lines).text == "completed"
    assert "from-the-42" in lines[-1].text and lines[-1].kind == "agent"
    part = [part for message in await messages(seat) for part in message["parts"] if part["type"] == "tool"][-1]
    assert "from-the-42" in part["state"]["output"]


async def permissions(seat: Seat) -> None:
    """Allowed by the ACP v2 client, refused through OpenCode: the agent does what it was told, everybody sees it."""
    seat.two.answer = choose("allow_once")
    result = await seat.sender.turn("ask: touch allowed")
    assert result["stopReason"] == "end_turn" and (seat.cwd / "allowed").exists()
    assert tool(await seat.agreed()).text == "completed"
    await seat.one.asked("session/request_permission")

    seat.two.answer = lambda message: None
    async with seat.served.events() as frames:
        refused = seat.sender.prompt("ask: touch refused")
        asked = await frames.until("permission.asked", sessionID=seat.session)
        url = f"/permission/{asked['properties']['id']}/reply"
        assert (await seat.served.http.post(url, json={"reply": "reject"})).json() is True
    await refused
    assert not (seat.cwd / "refused").exists()
    lines = await seat.agreed()
    assert tool(lines).text == "failed"
    assert (await seat.served.http.get("/permission")).json() == []
    assert (await seat.sender.turn("and on"))["stopReason"] == "end_turn"
    assert texts(await seat.agreed())[-1] == "You wrote: and on"


async def steer(seat: Seat) -> None:
    """The running turn takes it, and says so; the model has it once, between what was said before and after."""
    turn = await begun(seat, "words 500 every 20")
    prompt = [{"type": "text", "text": "turn left now"}]
    outcome = await seat.sender.call("_session/steering", sessionId=seat.session, prompt=prompt)
    assert outcome["outcome"] == "injected"
    assert (await turn)["stopReason"] == "end_turn"
    lines = await seat.agreed()
    said = texts(lines)
    assert said[0] == "words 500 every 20" and said[1].startswith("w0 w1 w2 w3") and "w499" not in said[1]
    assert said[2:] == ["turn left now", "You wrote: turn left now"]
    assert seat.model.told("turn left now") == 1
    assert (await seat.sender.turn("next"))["stopReason"] == "end_turn"
    assert seat.model.told("turn left now") == 1


async def steer_next(seat: Seat) -> None:
    """An agent that cannot be steered has it first in the next turn, before what was queued earlier."""
    turn = await begun(seat, "words 40 every 20")
    await seat.served.send(seat.session, "queued before")
    await inject(seat, "turn left then")
    assert (await turn)["stopReason"] == "end_turn"
    await seat.sender.said("You wrote: queued before")
    await seat.idle()
    assert texts(await seat.agreed())[2:] == [
        *("turn left then", "You wrote: turn left then"),
        *("queued before", "You wrote: queued before"),
    ]
    assert seat.model.told("turn left then") == seat.model.told("queued before") == 1


async def steer_interrupt(seat: Seat) -> None:
    """An agent that cannot be steered is interrupted for it, where the settings say so; the queue stays as it is."""
    turn = await begun(seat, "words 2000 every 20")
    await seat.served.send(seat.session, "queued before")
    await inject(seat, "turn left now")
    assert (await turn)["stopReason"] == "cancelled"
    await seat.sender.said("You wrote: queued before")
    await seat.idle()
    said = texts(await seat.agreed())
    assert said[1].startswith("w0 w1 w2 w3") and "w1999" not in said[1]
    assert said[2:] == [
        *("turn left now", "You wrote: turn left now"),
        *("queued before", "You wrote: queued before"),
    ]
    assert seat.model.told("turn left now") == seat.model.told("queued before") == 1


async def inject(seat: Seat, text: str) -> None:
    content = [{"type": "text", "text": text}]
    await seat.two.call("session/inject", sessionId=seat.session, mode="steer", content=content)


async def queue(seat: Seat) -> None:
    """Two prompts in a running turn, from two wires: two more turns, in order."""
    first = await begun(seat, "words 60 every 20")
    second = seat.two.prompt("second one")
    await seat.two.until(lambda m: m.get("method") == "_trunkline/pending" and bool(m["params"]["pending"]))
    await seat.served.send(seat.session, "third one")
    assert (await first)["stopReason"] == "end_turn"
    await second
    await seat.idle()
    whole = " ".join(f"w{n}" for n in range(60))
    lines = await seat.agreed()
    assert texts(lines) == [
        *("words 60 every 20", whole),
        *("second one", "You wrote: second one"),
        *("third one", "You wrote: third one"),
    ]
    assert lines[2].id == (await second)["messageId"]
    assert len({line.id for line in lines}) == len(lines)
    assert seat.model.told("second one") == seat.model.told("third one") == 1


async def cancel(seat: Seat) -> None:
    """A prompt that waits behind a cancelled turn is held: it does not run until somebody goes on."""
    first = await begun(seat, "words 2000 every 20")
    await seat.served.send(seat.session, "later please")
    await seat.sender.notify("session/cancel", sessionId=seat.session)
    assert (await first)["stopReason"] == "cancelled"
    await held(seat, "later please")
    assert seat.model.told("later please") == 0
    lines = await go_on(seat, "later please")
    assert texts(lines)[1].startswith("w0 w1 w2 w3") and "w1999" not in texts(lines)[1]


async def held(seat: Seat, text: str) -> None:
    """Until everybody is told that the only pending message is held."""

    def found(message: Json) -> bool:
        if message.get("method") != "_trunkline/pending":
            return False
        waiting = message["params"]["pending"]
        return [(each["content"][0]["text"], bool(each.get("held"))) for each in waiting] == [(text, True)]

    for each in (seat.one, seat.two):
        await each.until(found)


async def go_on(seat: Seat, waiting: str) -> list[Line]:
    """The next prompt runs, then what was held; each is told and done once."""
    onward = f"on with it, then {waiting}"
    assert (await seat.sender.turn(onward))["stopReason"] == "end_turn"
    await seat.two.said(f"You wrote: {waiting}")
    await seat.idle()
    lines = await seat.agreed()
    said = texts(lines)
    assert said[-4:] == [onward, f"You wrote: {onward}", waiting, f"You wrote: {waiting}"]
    assert said.count(waiting) == said.count(onward) == 1
    assert seat.model.told(onward) == 1 and seat.model.told(waiting) == 2  # in the other's text too
    return lines


async def killed(seat: Seat) -> None:
    """The agent dies in a turn: a typed error, the queue is held, the next prompt finds the conversation again."""
    await seat.sender.turn("remember the heron")
    first = await begun(seat, "words 2000 every 20")
    await seat.served.send(seat.session, "after the end")
    seat.kill_agent()
    with pytest.raises(RpcError) as failed:
        await first
    assert failed.value.data and failed.value.data["reason"] == "agent_exit"
    await held(seat, "after the end")
    lines = await go_on(seat, "after the end")
    assert texts(lines)[3].startswith("w0 w1 w2 w3")
    assert seat.model.told("remember the heron") == 1


async def restarted(seat: Seat) -> None:
    """The gateway is killed, then ended in order: after each all is there once, under its ids, and the agent knows."""
    await seat.sender.turn("remember the owl")
    await seat.sender.turn("ask: touch in-the-history")
    before = await seat.agreed()
    for kill in (True, False):
        await seat.leave()
        if kill:
            await seat.served.kill()
        else:
            assert await seat.served.stop() == 0
        await seat.served.start()
        await seat.attach()
        assert await seat.agreed() == before
        question = f"still there, {kill}?"
        assert (await seat.sender.turn(question))["stopReason"] == "end_turn"
        lines = await seat.agreed()
        assert lines[: len(before)] == before
        assert texts(lines[len(before) :]) == [question, f"You wrote: {question}"]
        assert seat.model.told("remember the owl") == seat.model.told(question) == 1
        before = lines


async def options(seat: Seat, mode: str, model: str) -> None:
    """Modes and models are shown on every wire, and what one client chooses is what the agent does and all are told."""
    offered = {option["id"]: option for option in seat.opened["configOptions"]}
    models = {each["value"]: each["name"] for each in offered["model"]["options"]}
    assert model in models and model != offered["model"]["currentValue"]
    assert mode in [each["value"] for each in offered["mode"]["options"]]
    if modes := seat.opened.get("modes"):
        assert mode in [each["id"] for each in modes["availableModes"]]
    provider = seat.provider
    await seat.sender.turn("hello")
    asked = seat.model.requests[-1].model
    [known] = [p for p in (await seat.served.http.get("/config/providers")).json()["providers"] if p["id"] == provider]
    assert {key: each["name"] for key, each in known["models"].items()} == models
    agents = [each["name"] for each in (await seat.served.http.get("/agent")).json()]
    assert mode in agents

    at = len(seat.one.got), len(seat.two.got)
    answer = await seat.served.post(seat.session, "hello again", model={"providerID": provider, "modelID": model})
    assert answer.status_code == 200 and answer.json()["info"]["modelID"] == model
    assert seat.model.requests[-1].model != asked
    for each, after in zip((seat.one, seat.two), at, strict=True):
        await told(each, after, "model", model)

    await seat.choose("mode", mode)
    await told(seat.one, 0, "mode", mode)
    await told(seat.two, 0, "mode", mode)
    answer = await seat.served.post(seat.session, "and again")
    assert answer.json()["info"]["agent"] == mode and answer.json()["info"]["modelID"] == model
    await seat.agreed()


async def told(one: Client, after: int, option: str, value: str) -> None:
    await one.until(lambda _: current(one.updates(after=after), option) == value)


def current(updates: list[Json], option: str) -> str:
    """The value of an option as the last update told it."""
    value = ""
    for update in updates:
        if update["sessionUpdate"] == "config_option_update":
            for each in update["configOptions"]:
                if option in (each.get("id"), each.get("configId")):
                    value = each["currentValue"]
    return value


async def finished(one: Client) -> str:
    """The child that ended in order."""

    def found(message: Json) -> bool:
        state = ((message.get("params") or {}).get("update") or {}).get("state")
        return isinstance(state, dict) and state["state"] == "idle" and state["stopReason"] == "end_turn"

    update: Json = (await one.until(found))["params"]["update"]
    assert update["sessionUpdate"] == "subagent_update"
    return str(update["sessionId"])


async def subagent(seat: Seat) -> None:
    """A child session with messages of its own and a permission, told on every wire; the messages between name each
    other. On OpenCode it is a child of the session.
    """
    seat.two.answer = choose("allow_once")
    result = await seat.sender.turn("delegate: ask: touch by-the-child")
    assert result["stopReason"] == "end_turn"
    [child] = {await finished(each) for each in (seat.one, seat.two)}
    await seat.two.said("Noted.")  # the agent itself is told of it, and says so: on v2 in a turn of its own
    assert (seat.cwd / "by-the-child").exists()
    await seat.idle()
    found = (await seat.served.http.get(f"/session/{seat.session}/children")).json()
    assert [(each["id"], each["parentID"]) for each in found] == [(child, seat.session)]

    parents, own = await seat.agreed(), await seat.agreed(child)
    assert [line.kind for line in own] == ["session", "agent", "tool", "agent"]
    assert own[0].text == "ask: touch by-the-child" and tool(own).text == "completed"
    assert own[-1].text.startswith("The tool said:")
    assert texts(parents, "session")[0] == own[0].text
    for each in (seat.one, seat.two):
        sent = next(u for u in each.updates("session_message", session=seat.session) if "recipientMessageId" in u)
        [received] = each.updates("session_message", session=child)
        assert sent["recipientMessageId"] == received["messageId"] == own[0].id
        assert received["senderMessageId"] == sent["messageId"] == parents[2].id
        assert (sent["senderSessionId"], sent["recipientSessionId"]) == (seat.session, child)
