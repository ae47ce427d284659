"""Says more than a session takes at once."""

from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel


async def _model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for number in range(5000):
        yield f"{number} "


agent = Agent(FunctionModel(stream_function=_model))
