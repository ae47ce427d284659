"""Deferred tool calls of a run, answered by people while the run waits."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied

from adapters.pydantic_ai.translate_content import arguments, jsonable
from gateway.core import inputs
from gateway.core.content import Json
from gateway.core.model import Accepted, Answered, Declined, Option, Selected

OPTIONS = (
    Option("allow", "Allow", "allow_once"),
    Option("allow_always", "Always allow", "allow_always"),
    Option("deny", "Deny", "reject_once"),
)
ANSWER: Json = {
    "type": "object",
    "properties": {"answer": {"type": "string", "title": "Answer"}},
    "required": ["answer"],
}

Ask = Callable[[inputs.AgentAsk], Awaitable[Answered]]


@dataclass
class AskPeople(AbstractCapability[Any]):
    """``ask`` shows one request and waits for its answer; ``always``: tools that a person allowed for good here."""

    ask: Ask
    always: set[str]

    def get_ordering(self) -> CapabilityOrdering:
        """Last: what the agent answers by itself, nobody is asked."""
        return CapabilityOrdering(position="innermost")

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """One request after the other, in the order of the calls."""
        approvals: dict[str, ToolApproved | ToolDenied] = {}
        for call in requests.approvals:
            approvals[call.tool_call_id] = await self._approve(call, requests.metadata.get(call.tool_call_id))
        calls: dict[str, Any] = {}
        for call in requests.calls:
            if requests.kind(call.tool_call_id) == "question":
                calls[call.tool_call_id] = await self._question(call)
            else:
                calls[call.tool_call_id] = ToolFailed("Nobody here can run this tool outside of the agent.")
        return requests.build_results(approvals=approvals, calls=calls)

    async def _approve(self, call: Any, metadata: Json) -> ToolApproved | ToolDenied:
        if call.tool_name in self.always:
            return ToolApproved()
        answer = await self.ask(
            inputs.AgentAsk(
                agent_ref="",
                title=call.tool_name,
                description=_words(metadata),
                tool=inputs.AgentTool(
                    call_id=call.tool_call_id,
                    name=call.tool_name,
                    title=call.tool_name,
                    input=arguments(call.args),
                    status="pending",
                ),
                options=OPTIONS,
            )
        )
        match answer:
            case Selected(option_id="allow"):
                return ToolApproved()
            case Selected(option_id="allow_always"):
                self.always.add(call.tool_name)
                return ToolApproved()
            case Selected(message=message) | Declined(message=message) if message:
                return ToolDenied(f"The tool call was denied: {message}")
        return ToolDenied()

    async def _question(self, call: Any) -> Any:
        asked = arguments(call.args)
        text = next((asked[key] for key in ("question", "prompt", "message") if isinstance(asked.get(key), str)), "")
        answer = await self.ask(
            inputs.AgentAsk(
                agent_ref="",
                kind="elicitation",
                title=text or call.tool_name,
                description="" if text else _words(asked),
                tool=inputs.AgentTool(call_id=call.tool_call_id, input=asked),
                schema=ANSWER,
            )
        )
        if isinstance(answer, Accepted):
            content = answer.content
            return content.get("answer", content) if isinstance(content, dict) else content
        return ToolFailed("The person did not answer.")


def _words(value: Json) -> str:
    """A small object as lines."""
    if not isinstance(value, dict):
        return ""
    return "\n".join(f"{key}: {each if isinstance(each, str) else jsonable(each)}" for key, each in value.items())
