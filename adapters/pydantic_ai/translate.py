"""The events of a run as facts. Pure: a ``Translator`` remembers the run's open tool calls and nothing else."""

from typing import Any

from adapters.pydantic_ai import wire
from adapters.pydantic_ai.translate_content import arguments, block_of, jsonable, tool_content
from gateway.core import inputs
from gateway.core.inputs import AgentFact, AgentTool
from gateway.core.model import Tokens, ToolStatus

STATUS: dict[str, ToolStatus] = {
    "success": "completed",
    "failed": "failed",
    "denied": "failed",
    "retried": "failed",
    "interrupted": "cancelled",
}


class Translator:
    """Facts of one run. ``open``: the calls that were told and have no result yet."""

    def __init__(self) -> None:
        self.open: dict[str, None] = {}
        self._spoke = False  # an earlier response of this run ended in text

    def facts(self, event: Any) -> list[AgentFact]:
        match event:
            case wire.PartStartEvent(part=part, previous_part_kind=before):
                return self._started(part, first=before is None)
            case wire.PartDeltaEvent(delta=wire.TextPartDelta(content_delta=text)):
                return self._said("agent", text)
            case wire.PartDeltaEvent(delta=wire.ThinkingPartDelta(content_delta=str(text))):
                return self._said("thought", text)
            case wire.PartEndEvent(part=wire.ToolCallPart() | wire.NativeToolCallPart() as part):
                call = arguments(part.args)
                status: ToolStatus = "in_progress" if isinstance(part, wire.NativeToolCallPart) else "pending"
                return [AgentTool(call_id=part.tool_call_id, input=call, status=status)]
            case wire.ToolCallEvent(part=part):
                self._spoke = False
                return [*self._call(part), AgentTool(call_id=part.tool_call_id, status="in_progress")]
            case wire.ToolResultEvent(part=part):
                return [self._result(part)]
        return []

    def close(self, status: ToolStatus) -> list[AgentFact]:
        """What is still open when the run is over."""
        left, self.open = list(self.open), {}
        return [AgentTool(call_id=call_id, status=status) for call_id in left]

    def _said(self, role: Any, text: str) -> list[AgentFact]:
        if not text:
            return []
        self._spoke = role == "agent"
        return [inputs.AgentText(role=role, text=text)]

    def _started(self, part: Any, first: bool) -> list[AgentFact]:
        match part:
            case wire.TextPart(content=text):
                # Two responses in a row (the first was refused as the run's output) are two paragraphs.
                apart = first and self._spoke
                self._spoke = self._spoke or bool(text)
                return [inputs.AgentText(role="agent", text="\n\n" + text if apart else text)] if text or apart else []
            case wire.SpeechPart():
                return self._said("agent", part.content)
            case wire.ThinkingPart(content=text):
                return self._said("thought", text)
            case wire.FilePart(content=file):
                return [inputs.AgentBlock(role="agent", block=block_of(file))]
            case wire.ToolCallPart() | wire.NativeToolCallPart():
                return self._announced(part)
            case wire.NativeToolReturnPart():
                return [self._result(part)]
        return []

    def _announced(self, part: wire.ToolCallPart | wire.NativeToolCallPart) -> list[AgentFact]:
        self.open[part.tool_call_id] = None
        self._spoke = False
        name = part.tool_name
        return [AgentTool(call_id=part.tool_call_id, new=True, name=name, title=name, status="pending")]

    def _call(self, part: wire.ToolCallPart) -> list[AgentFact]:
        known = part.tool_call_id in self.open
        told = AgentTool(call_id=part.tool_call_id, input=arguments(part.args))
        return [told] if known else [*self._announced(part), told]

    def _result(self, part: wire.ToolReturnPart | wire.NativeToolReturnPart) -> AgentFact:
        self.open.pop(part.tool_call_id, None)
        status = STATUS.get(part.outcome, "completed")
        output = jsonable(part.content)
        return AgentTool(call_id=part.tool_call_id, status=status, output=output, content=tool_content(part))


def tokens(usage: wire.RunUsage) -> Tokens:
    """What a run used. Pydantic AI counts cached tokens as input too; the core counts each once."""
    cached, written = usage.cache_read_tokens, usage.cache_write_tokens
    return Tokens(
        input=max(0, usage.input_tokens - cached - written),
        output=usage.output_tokens,
        reasoning=usage.details.get("reasoning_tokens", 0),
        cache_read=cached,
        cache_write=written,
        total=usage.total_tokens,
        cost=float(usage.cost or 0),
    )
