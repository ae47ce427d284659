"""Agents that the tests name as ``tests.pydantic_ai.agents:NAME``: they misbehave, each in its own way."""

import sys
import threading
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from adapters.pydantic_ai.deps import Session
from tests.pydantic_ai.machine import prompts


async def _model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """A prompt that is a tool's name calls it; anything else is answered with all that was said."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    name = prompts([last])[-1:]
    if name and name[0] in [tool.name for tool in info.function_tools]:
        yield {1: DeltaToolCall(name=name[0], json_args="{}")}
    elif not name:
        yield "result: " + " ".join(str(p.content) for p in last.parts if isinstance(p, ToolReturnPart))
    else:
        yield "said: " + ", ".join(prompts(messages))


agent: Agent[Session, str] = Agent(FunctionModel(stream_function=_model), deps_type=Session)
release = threading.Event()
entered = threading.Event()


@agent.tool
def where(ctx: RunContext[Session]) -> str:
    return f"{ctx.deps.cwd} {ctx.deps.id} {ctx.deps.agent}"


@agent.tool_plain
def sleeps() -> str:
    """Blocks its own thread."""
    entered.set()
    release.wait(60)
    return "slept"


@agent.tool_plain
async def blocks() -> str:
    """Blocks the loop that it runs in."""
    entered.set()
    release.wait(60)
    return "blocked"


@agent.tool_plain
async def leaves() -> str:
    sys.exit(3)


@agent.tool_plain
def leaves_thread() -> str:
    sys.exit(3)


@agent.tool_plain
async def interrupts() -> str:
    raise KeyboardInterrupt


@agent.tool_plain
async def threads() -> str:
    return threading.current_thread().name


class Deps:
    def __init__(self, cwd: str) -> None:
        self.cwd = cwd

    @classmethod
    async def for_session(cls, session: Any) -> "Deps":
        return cls(session.cwd)


with_deps: Agent[Deps, str] = Agent(FunctionModel(stream_function=_model), deps_type=Deps)


@with_deps.tool
def folder(ctx: RunContext[Deps]) -> str:
    return ctx.deps.cwd


class Needy:
    def __init__(self, secret: str) -> None: ...


class Broken:
    @classmethod
    def for_session(cls, session: Any) -> "Broken":
        raise RuntimeError("no database")


needs_deps: Agent[Needy, str] = Agent(FunctionModel(stream_function=_model), deps_type=Needy)
broken_deps: Agent[Broken, str] = Agent(FunctionModel(stream_function=_model), deps_type=Broken)
nested = SimpleNamespace(inside=SimpleNamespace(agent=agent))
not_an_agent = 7
started = time.monotonic()
