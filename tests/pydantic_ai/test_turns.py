"""What a run says becomes facts, how it ends the turn's end: text, thoughts, tools, files, limits, errors."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry, UsageLimits
from pydantic_ai.exceptions import ContentFilterError, ModelHTTPError, UserError
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel

from gateway.core import content as blocks
from gateway.core.transcript import BlockPart, StepItem, ToolPart
from tests.pydantic_ai.machine import Machine
from tests.pydantic_ai.world import World, world


class Given(Machine):
    """Any agent in place of the machine's own."""

    def __init__(self, agent: Agent[Any, Any]) -> None:
        super().__init__()
        self.agent = agent


def streams(*parts: Any, **agent: Any) -> Agent[Any, Any]:
    """An agent whose model says these, once."""

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            yield part

    return Agent(FunctionModel(stream_function=model), **agent)


async def turn(w: World, *content: Any) -> Any:
    """One prompt to its end; the last step."""
    admission = await w.c.submit(w.id, content or (blocks.Text("hi"),))
    settled = await w.c.wait(w.id, admission.message_id, timeout=60)
    return settled


async def steps(w: World) -> list[StepItem]:
    return [item for item in (await w.c.view(w.id)).transcript.items if isinstance(item, StepItem)]


async def tools(w: World) -> list[Any]:
    return [part.call for step in await steps(w) for part in step.parts if isinstance(part, ToolPart)]


async def test_thoughts_and_text(tmp_path: Path) -> None:
    agent = streams({0: DeltaThinkingPart(content="h")}, {0: DeltaThinkingPart(content="m")}, "Hel", "lo")
    async with world(tmp_path, Given(agent)) as w:
        settled = await turn(w)
        assert (settled.kind, settled.outcome) == ("ended", "end_turn")
        assert await w.lines() == ["user: hi", "thought: hm", "agent: Hello"]
        tokens = (await w.c.view(w.id)).info.tokens
        assert tokens.output > 0 and tokens.total == tokens.input + tokens.output


async def test_a_tool_call_and_its_result(tmp_path: Path) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield "I add. "
            yield {1: DeltaToolCall(name="add", json_args='{"a": 1,', tool_call_id="c1")}
            yield {1: DeltaToolCall(json_args=' "b": 2}')}
        else:
            yield "Three."

    agent = Agent(FunctionModel(stream_function=model))

    @agent.tool_plain
    def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    async with world(tmp_path, Given(agent)) as w:
        await turn(w)
        assert await w.lines() == ["user: hi", "agent: I add. ", "tool: add completed", "agent: Three."]
        [call] = await tools(w)
        assert (call.call_id, call.title, call.input, call.output) == ("c1", "add", {"a": 1, "b": 2}, {"sum": 3})
        assert call.content == [{"type": "content", "content": {"type": "text", "text": '{"sum":3}'}}]
        assert call.started and call.ended


async def test_tools_that_fail_and_are_tried_again(tmp_path: Path) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) < 4:
            yield {1: DeltaToolCall(name="flaky", json_args="{}", tool_call_id=f"c{len(messages)}")}
        else:
            yield "ok"

    agent = Agent(FunctionModel(stream_function=model), retries=3)
    tries: list[int] = []

    @agent.tool_plain
    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ModelRetry("once more")
        return "fine"

    async with world(tmp_path, Given(agent)) as w:
        await turn(w)
        assert await w.lines() == ["user: hi", "tool: flaky failed", "tool: flaky completed", "agent: ok"]
        assert "once more" in (await tools(w))[0].output


async def test_a_test_model_calls_every_tool(tmp_path: Path) -> None:
    agent = Agent(TestModel())
    agent.tool_plain(lambda: "1", name="one")
    agent.tool_plain(lambda: "2", name="two")
    async with world(tmp_path, Given(agent)) as w:
        assert (await turn(w)).outcome == "end_turn"
        assert (await w.lines())[1:3] == ["tool: one completed", "tool: two completed"]


class Parts(WrapperModel):
    """A model that answers whole parts, as providers with tools of their own do."""

    def __init__(self, parts: list[Any], **response: Any) -> None:
        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return ModelResponse(parts=parts, **response)

        super().__init__(FunctionModel(answer))

    def request_stream(self, *args: Any, **kwargs: Any) -> Any:
        from contextlib import asynccontextmanager

        from pydantic_ai.models import CompletedStreamedResponse

        @asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            response = await self.wrapped.request(*args[:3])
            yield CompletedStreamedResponse(response, model_request_parameters=args[2], replay_events=True)

        return opened()


async def test_a_tool_of_the_provider(tmp_path: Path) -> None:
    agent = Agent(
        Parts(
            [
                ThinkingPart("look"),
                NativeToolCallPart("web_search", {"query": "x"}, "n1"),
                NativeToolReturnPart("web_search", {"found": 3}, "n1"),
                TextPart("Found."),
            ]
        )
    )
    async with world(tmp_path, Given(agent)) as w:
        await turn(w)
        assert await w.lines() == ["user: hi", "thought: look", "tool: web_search completed", "agent: Found."]
        [call] = await tools(w)
        assert (call.input, call.output) == ({"query": "x"}, {"found": 3})


PNG = b"\x89PNG\r\n\x1a\n rest"


async def test_files_of_the_model(tmp_path: Path) -> None:
    files = [
        BinaryContent(PNG, media_type="image/png"),
        BinaryContent(b"RIFF", media_type="audio/wav"),
        BinaryContent(b"%PDF", media_type="application/pdf"),
    ]
    agent = Agent(Parts([*[FilePart(f) for f in files], TextPart("there")]))
    async with world(tmp_path, Given(agent)) as w:
        await turn(w)
        [step] = await steps(w)
        shown = [part.block for part in step.parts if isinstance(part, BlockPart)]
        assert [type(b).__name__ for b in shown] == ["Image", "Audio", "Resource"]
        assert isinstance(shown[0], blocks.Image) and base64.b64decode(shown[0].data) == PNG
        assert isinstance(shown[2], blocks.Resource) and shown[2].mime_type == "application/pdf"


async def test_content_of_people_reaches_the_model(tmp_path: Path) -> None:
    got: list[Any] = []

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        got.extend(messages)
        yield "ok"

    data = base64.b64encode(PNG).decode()
    content = (
        blocks.Text("look"),
        blocks.Image(data, "image/png"),
        blocks.Audio(base64.b64encode(b"RIFF").decode(), "audio/wav"),
        blocks.Resource("file:///a.txt", text="inside"),
        blocks.Resource("file:///b.json", blob=base64.b64encode(b"{}").decode(), mime_type="application/json"),
        blocks.Resource("file:///c.pdf", blob=base64.b64encode(b"%PDF").decode(), mime_type="application/pdf"),
        blocks.ResourceLink("https://example.org/d", "d", description="a page"),
        blocks.Image("not base64!", "image/png"),
        blocks.Image("", "image/png", uri="https://example.org/e.png"),
    )
    async with world(tmp_path, Given(Agent(FunctionModel(stream_function=model)))) as w:
        await turn(w, *content)
    [part] = got[0].parts
    assert isinstance(part, UserPromptPart) and not isinstance(part.content, str)
    told = [(p.media_type, p.data) if isinstance(p, BinaryContent) else p for p in part.content]
    assert told == [
        "look",
        ("image/png", PNG),
        ("audio/wav", b"RIFF"),
        "file:///a.txt:\ninside",
        "file:///b.json:\n{}",
        ("application/pdf", b"%PDF"),
        "[d](https://example.org/d) (a page)",
        "[an image, image/png: its data is not base64]",
        "[an image: https://example.org/e.png]",
    ]


async def test_files_in_a_tools_result(tmp_path: Path) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {1: DeltaToolCall(name="draw", json_args="{}", tool_call_id="c1")}
        else:
            yield "ok"

    agent = Agent(FunctionModel(stream_function=model))

    @agent.tool_plain
    def draw() -> BinaryContent:
        return BinaryContent(PNG, media_type="image/png")

    async with world(tmp_path, Given(agent)) as w:
        await turn(w)
        [call] = await tools(w)
        assert {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"} in [
            each["content"] for each in call.content
        ]


async def test_a_structured_output_is_told_as_text(tmp_path: Path) -> None:
    class City(BaseModel):
        name: str
        people: int

    agent = Agent(TestModel(custom_output_args={"name": "Ulm", "people": 126000}), output_type=City)
    async with world(tmp_path, Given(agent)) as w:
        assert (await turn(w)).outcome == "end_turn"
        lines = await w.lines()
        assert lines[1] == "tool: final_result completed"
        assert '"name": "Ulm"' in lines[2]


async def test_a_refused_output_and_the_next_are_two_paragraphs(tmp_path: Path) -> None:
    said = iter(["first", "second"])

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield next(said)

    agent = Agent(FunctionModel(stream_function=model))

    @agent.output_validator
    def check(text: str) -> str:
        if text == "first":
            raise ModelRetry("no")
        return text

    async with world(tmp_path, Given(agent)) as w:
        await turn(w)
        assert await w.lines() == ["user: hi", "agent: first\n\nsecond"]


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "outcome"),
    [
        (streams(ContentFilterError("filtered")), "refusal"),
        (Agent(Parts([TextPart("no")], finish_reason="content_filter")), "refusal"),
        (Agent(Parts([TextPart("cut")], finish_reason="length")), "max_tokens"),
        (Agent(Parts([TextPart("fine")], finish_reason="stop")), "end_turn"),
    ],
)
async def test_how_a_model_ends(tmp_path: Path, agent: Agent[Any, Any], outcome: str) -> None:
    async with world(tmp_path, Given(agent)) as w:
        assert (await turn(w)).outcome == outcome


class Limited(Agent[Any, Any]):
    """An agent with limits of its own: there is no other place for them."""

    limits: UsageLimits

    def iter(self, *args: Any, **kwargs: Any) -> Any:
        return super().iter(*args, **{**kwargs, "usage_limits": self.limits})


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        (UsageLimits(request_limit=1), "max_turn_requests"),
        (UsageLimits(tool_calls_limit=0), "max_turn_requests"),
        (UsageLimits(output_tokens_limit=1), "max_tokens"),
        (UsageLimits(total_tokens_limit=2), "max_tokens"),
    ],
)
async def test_limits(tmp_path: Path, limits: UsageLimits, outcome: str) -> None:
    agent = Limited(TestModel())
    agent.limits = limits
    agent.tool_plain(lambda: "1", name="one")
    async with world(tmp_path, Given(agent)) as w:
        assert (await turn(w)).outcome == outcome
        agent.limits = UsageLimits()
        # nothing is left open, and the next turn works
        assert all(call.status in ("completed", "failed", "cancelled") for call in await tools(w))
        assert (await turn(w)).outcome == "end_turn"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (RuntimeError("broken"), "agent_error", "RuntimeError: broken"),
        (KeyError("k"), "agent_error", "KeyError: 'k'"),
        (SystemError(), "agent_error", "SystemError"),
        (ModelHTTPError(401, "m", {"message": "bad key"}), "auth_required", "401"),
        (ModelHTTPError(500, "m", {"message": "oops"}), "agent_error", "500"),
        (UserError("Set the `OPENAI_API_KEY` environment variable or pass it"), "auth_required", "OPENAI_API_KEY"),
        (UserError("something else"), "agent_error", "something else"),
        (asyncio.CancelledError(), "agent_error", "CancelledError"),
    ],
)
async def test_errors(tmp_path: Path, error: BaseException, code: str, words: str) -> None:
    async with world(tmp_path, Given(streams(error))) as w:
        settled = await turn(w)
        assert settled.outcome == "error"
        [step] = await steps(w)
        assert step.step.error is not None
        assert step.step.error.code == code
        assert words in step.step.error.message


async def test_the_conversation_goes_on_after_an_error(tmp_path: Path) -> None:
    machine = Machine()
    async with world(tmp_path, machine) as w:
        await w.begin("one")
        await machine.step("say half")
        await machine.step("fail")
        await w.until(w.quiet)
        await w.begin("two")
        assert machine.seen[-1] == ["one", "two"]
        said = [p.content for m in machine.requests[-1] for p in m.parts if isinstance(p, TextPart)]
        assert said == ["half"]
        await w.finish()


async def test_the_prompt_is_remembered_when_the_run_never_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()

    def cannot(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("its server is away")

    async with world(tmp_path, machine) as w:
        with monkeypatch.context() as patched:
            patched.setattr(machine.agent, "iter", cannot)
            assert (await turn(w, blocks.Text("one"))).outcome == "error"
        await w.begin("two")
        assert machine.seen[-1] == ["one", "two"]
        await w.finish()


async def test_half_of_a_surrogate_pair_ends_no_conversation(tmp_path: Path) -> None:
    """A model's text that is cut inside an emoji is told, stored, and gone on with."""
    async with world(tmp_path, Given(streams("cut \ud83d"))) as w:
        for _ in range(2):
            settled = await turn(w)
            assert settled.outcome == "end_turn"
        [first, _] = await steps(w)
        assert [part.text for part in first.parts] == ["cut ?"]
