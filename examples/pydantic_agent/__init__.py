"""A small Pydantic AI agent to run behind the gateway; see README.md.

With ``OPENAI_API_KEY`` or ``ANTHROPIC_API_KEY`` set (and Pydantic AI's package for it installed) a real model answers;
without one a scripted model does, so that everything can be tried with no key and no network.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel


class Session(Protocol):
    """What the gateway gives to ``for_session``."""

    id: str
    cwd: str
    agent: str


@dataclass
class Notes:
    """The deps of one session: the notes that were taken in it."""

    cwd: str
    notes: list[str] = field(default_factory=list)

    @classmethod
    def for_session(cls, session: Session) -> "Notes":
        return cls(session.cwd)


async def scripted(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Reads the last prompt: ``note: …`` takes a note, ``clear`` asks to clear them, ``slow`` takes its time."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    prompts = [part for part in last.parts if isinstance(part, UserPromptPart)]
    results = [part for part in last.parts if isinstance(part, ToolReturnPart)]
    if not prompts and results:
        yield f"Done: {results[-1].model_response_str()}"
        return
    texts = [_text(part) for part in prompts]
    text = texts[-1]
    if found := re.search(r"note: *(.+)", text):
        yield "I write that down. "
        yield {1: DeltaToolCall(name="take_note", json_args=json.dumps({"text": found[1]}))}
    elif "clear" in text:
        yield "I have to ask first. "
        yield {1: DeltaToolCall(name="clear_notes", json_args="{}")}
    elif "slow" in text:
        yield "One"
        for word in (", two", ", three", ", four", ", five"):
            await asyncio.sleep(0.3)
            yield word
        yield {1: DeltaToolCall(name="list_notes", json_args="{}")}
    else:
        asked = sum(isinstance(part, UserPromptPart) for message in messages for part in message.parts)
        for word in f"You said: {' / '.join(texts)} (message {asked})".split(" "):
            yield word + " "


def _text(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    return " ".join(each if isinstance(each, str) else f"[{type(each).__name__}]" for each in part.content)


def model() -> Model | str:
    if os.environ.get("OPENAI_API_KEY"):
        return "openai:gpt-5.2"
    if os.environ.get("ANTHROPIC_API_KEY"):
        return "anthropic:claude-sonnet-4-6"
    return FunctionModel(stream_function=scripted, model_name="scripted")


agent: Agent[Notes, str] = Agent(
    model(),
    name="notes",
    deps_type=Notes,
    instructions="You keep short notes for the user. Use the tools for it, and answer in one or two sentences.",
)


@agent.tool
def take_note(ctx: RunContext[Notes], text: str) -> str:
    """Keep a note."""
    ctx.deps.notes.append(text)
    return f"note {len(ctx.deps.notes)} kept"


@agent.tool
def list_notes(ctx: RunContext[Notes]) -> list[str]:
    """All notes of this session."""
    return ctx.deps.notes


@agent.tool(requires_approval=True)
def clear_notes(ctx: RunContext[Notes]) -> str:
    """Throw all notes away. A person has to allow it."""
    count = len(ctx.deps.notes)
    ctx.deps.notes.clear()
    return f"{count} notes thrown away"
