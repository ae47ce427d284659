"""A model and a tool that do nothing until the test says so, and remember what they were shown."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel


def prompts(messages: list[ModelMessage]) -> list[str]:
    """All that users said, in the order in which a model reads it."""
    found: list[str] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    found += [part.content] if isinstance(part.content, str) else [str(each) for each in part.content]
    return found


class Machine:
    """``at``: where it waits (``model``, ``tool``), or empty. ``seen``: the prompts of each request, all of them."""

    def __init__(self, **agent: Any) -> None:
        self.seen: list[list[str]] = []
        self.requests: list[list[ModelMessage]] = []
        self.at = ""
        self.moved = asyncio.Event()
        self._order: asyncio.Future[str] | None = None
        self.agent: Agent[Any, Any] = Agent(FunctionModel(stream_function=self._model), **agent)
        self.agent.tool_plain(self._work, name="work")
        self.agent.tool_plain(self._risky, name="risky", requires_approval=True)

    async def wait(self) -> str:
        """Where it waits next."""
        while not self.at:
            self.moved.clear()
            await asyncio.wait_for(self.moved.wait(), 60)
        return self.at

    async def step(self, order: str) -> None:
        """Tell it what to do, once it waits."""
        await self.wait()
        assert self._order is not None
        self.at = ""
        if not self._order.done():  # else it was cancelled just now
            self._order.set_result(order)

    async def _next(self, at: str) -> str:
        self._order = asyncio.get_running_loop().create_future()
        self.at = at
        self.moved.set()
        try:
            return await self._order
        finally:
            self.at = ""

    async def _model(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        self.requests.append(list(messages))
        self.seen.append(prompts(messages))
        while True:
            order = await self._next("model")
            match order.split(" ", 1):
                case ["say", text]:
                    yield text
                case ["call", name]:
                    yield {9: DeltaToolCall(name=name, json_args="{}", tool_call_id=f"call{len(self.seen)}")}
                    return
                case ["end"]:
                    yield "."
                    return
                case ["fail"]:
                    raise RuntimeError("the model broke")
                case _:
                    raise AssertionError(order)

    async def _work(self) -> str:
        order = await self._next("tool")
        if order == "fail":
            raise RuntimeError("the tool broke")
        return order

    async def _risky(self) -> str:
        return "risky was done"
