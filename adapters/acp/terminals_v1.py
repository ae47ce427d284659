"""Terminals that an ACP v1 agent runs itself and tells in a tool call's ``_meta`` (codex-acp; Zed's convention).

``terminal_info`` names one, ``terminal_output`` replaces its output, ``terminal_output_delta`` adds to it,
``terminal_exit`` is its end. Nothing else has the output: v1 clients get these as they came, every other wire gets
the text as the call's content (v2: a terminal). No I/O, no clock.
"""

import base64
from typing import Any, TypeAlias

import msgspec

from adapters.acp.terminals_v2 import TERMINALS, Terminal, Terminals
from adapters.acp.translate_content import string, table
from adapters.acp.translate_v2_content import text
from gateway.core.inputs import AgentTool
from gateway.core.model import TOOL_DONE

Json: TypeAlias = Any

KEYS = ("terminal_info", "terminal_output", "terminal_output_delta", "terminal_exit")


class MetaTerminals:
    """Of one session of the agent, its children included: a terminal is of one tool call, and has its id."""

    def __init__(self) -> None:
        self._shown = Terminals()  # of calls whose content shows them
        self._bare: dict[str, Terminal] = {}  # the others' output, by call: reads and searches show no terminal

    def take(self, fact: AgentTool) -> AgentTool:
        meta = fact.meta if isinstance(fact.meta, dict) else {}
        told = [update for key in KEYS if key in meta and (update := _update(key, table(meta[key])))]
        for update in told:
            self._shown.take(update)
        if isinstance(fact.content, list) or isinstance(fact.append, list):
            content, append = self._shown.tool(fact.call_id, fact.content, fact.append)
            return msgspec.structs.replace(fact, content=content, append=append)
        # Only a call's own updates tell of its terminal, so no other call is among these.
        ended = fact.status in TOOL_DONE
        for _, content in self._shown.refresh(fact.call_id) if ended else self._shown.refresh():
            return msgspec.structs.replace(fact, content=content)
        if told and not self._shown.shows(fact.call_id):
            fact = self._without(fact, told)
        if ended:
            self._bare.pop(fact.call_id, None)
        return fact

    def _without(self, fact: AgentTool, told: list[dict[str, Json]]) -> AgentTool:
        if fact.call_id not in self._bare and len(self._bare) >= TERMINALS:
            del self._bare[next(iter(self._bare))]
        terminal = self._bare.setdefault(fact.call_id, Terminal())
        for update in told:
            terminal.take(update)
        if not terminal.came or not (terminal.due() or fact.status in TOOL_DONE):
            return fact
        terminal.shown = terminal.came
        return msgspec.structs.replace(fact, content=[text(terminal.words())])


def _update(key: str, value: dict[str, Json]) -> dict[str, Json]:
    """What v2 would say; empty for what is not well-formed."""
    terminal_id = string(value.get("terminal_id"))
    if terminal_id is None:
        return {}
    found: dict[str, Json] = {"terminalId": terminal_id}
    data = {"data": base64.b64encode((string(value.get("data")) or "").encode()).decode()}
    match key:
        case "terminal_info":
            return {**found, "cwd": string(value.get("cwd"))}
        case "terminal_output":
            return {**found, "output": data}
        case "terminal_output_delta":
            return {**found, "sessionUpdate": "terminal_output_chunk", **data}
        case _:
            return {**found, "exitStatus": {"exitCode": value.get("exit_code"), "signal": value.get("signal")}}
