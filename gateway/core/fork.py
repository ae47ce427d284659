"""A session that begins as a copy of another: its history as facts, which the new session takes as a replay."""

import re

from gateway.core.inputs import AgentBlock, AgentFact, AgentText, AgentTool, AgentUser
from gateway.core.model import TOOL_DONE
from gateway.core.transcript import TextPart, ToolPart, Transcript, UserItem

_FORKED = re.compile(r"^(.*) \(fork #(\d+)\)$", re.DOTALL)


def history(transcript: Transcript) -> tuple[AgentFact, ...]:
    """What was said in a session, as an agent would tell it again. The agent's own message ids stay."""
    facts: list[AgentFact] = []
    for item in transcript.items:
        if isinstance(item, UserItem):
            facts.append(AgentUser(content=item.message.content))
            continue
        for part in item.parts:
            if isinstance(part, TextPart):
                facts.append(AgentText(role=part.role, text=part.text, agent_id=part.agent_id))
            elif isinstance(part, ToolPart):
                call = part.call
                told = AgentTool(
                    call_id=call.call_id,
                    new=True,
                    status=call.status if call.status in TOOL_DONE else "cancelled",  # nobody works on it here
                    title=call.title,
                    kind=call.kind,
                    name=call.name,
                    input=call.input,
                    output=call.output,
                    content=call.content,
                    locations=call.locations,
                    meta=call.meta,
                )
                facts.append(told)
            else:
                facts.append(AgentBlock(role=part.role, block=part.block))
    return tuple(facts)


def title(of: str) -> str:
    """``X (fork #1)``, and of a fork the next number. Source: OpenCode's sessions."""
    found = _FORKED.match(of)
    name, number = (found[1], int(found[2]) + 1) if found else (of, 1)
    return f"{name} (fork #{number})".strip()
