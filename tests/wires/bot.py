"""A native agent that does the scripts of the stories: the words of the demo agent, as a Pydantic AI function model.

One command a line of the newest prompts; a tool call ends a model request, and the next one goes on behind it.
"""

import asyncio
import json
from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingCalls,
    DeltaThinkingPart,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
)

TOOLS = ("tool", "ask")


async def scripted(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | DeltaToolCalls | DeltaThinkingCalls]:
    lines = _left(messages)
    said = False
    for line in lines:
        word, _, rest = line.partition(" ")
        if word in TOOLS:
            name = "work" if word == "tool" else "risky"
            yield {9: DeltaToolCall(name=name, json_args=json.dumps({"title": rest}))}
            return
        if word == "stream":
            count, _, pause = rest.partition(" ")
            for number in range(int(count)):
                yield f"chunk {number} "
                await asyncio.sleep(int(pause) / 1000)  # the script's own time
        elif word == "sleep":
            await asyncio.sleep(int(rest) / 1000)
        elif word == "think":
            yield {0: DeltaThinkingPart(content=rest)}
            continue
        else:
            yield rest if word == "say" else line
        said = True
    if not said:
        yield "done"


def _left(messages: list[ModelMessage]) -> list[str]:
    """The lines that are not done yet: of the prompts since the last answer that was no tool call, behind the last
    tool call of each."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
            done = next((i for i, line in enumerate(lines) if line.split(" ")[0] in TOOLS), len(lines) - 1)
            lines = lines[done + 1 :] if calls else []
            continue
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                content = part.content if isinstance(part.content, str) else "\n".join(str(c) for c in part.content)
                lines += content.split("\n")
    return lines


agent = Agent(FunctionModel(stream_function=scripted, model_name="scripted"), name="bot")


@agent.tool_plain
async def work(title: str) -> str:
    """Work that nobody has to allow."""
    _, _, pause = title.rpartition(" ")
    if pause.isdigit():
        await asyncio.sleep(int(pause) / 1000)
    return f"{title}: done"


@agent.tool_plain(requires_approval=True)
async def risky(title: str) -> str:
    """Work that a person has to allow."""
    return f"{title}: done"
