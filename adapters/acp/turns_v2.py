"""One session of an ACP v2 agent: when its turns begin and end, whose its user messages are, what its terminals show.

A prompt is answered when it is inserted; its turn ends with an idle state after that. The agent may begin turns by
itself, and repeat any state. What it says of a message of ours names that message, it is never another one.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import structlog

from adapters.acp import rpc, wire
from adapters.acp import translate_v1 as v1
from adapters.acp.terminals_v2 import Terminals
from adapters.acp.translate_content import rows, string
from adapters.acp.translate_v1_calls import Abilities
from adapters.acp.translate_v2 import SHOWN, StateTold, TerminalTold
from adapters.acp.turns import agent_error, ended, outcome_of
from gateway.core.content import Content
from gateway.core.ids import OfferId
from gateway.core.inputs import (
    AgentAsk,
    AgentBackground,
    AgentChild,
    AgentFact,
    AgentText,
    AgentTool,
    AgentUser,
    PromptEnded,
    SteerVerdict,
    TurnBegan,
)
from gateway.core.model import TOOL_DONE

Json: TypeAlias = Any
NAMED = 256  # ids of user messages that are remembered
WORKS = ("running", "requires_action")
_log = structlog.get_logger("agent")


class TurnsV2:
    """``landed(agent_id, content)``: the facts of a steer that this user message is, None if it is none of ours."""

    def __init__(self, agent: str, landed: Callable[[str, Content], list[AgentFact] | None]) -> None:
        self.can: Abilities | None = None
        self._agent, self._landed = agent, landed
        self._offer: OfferId | None = None  # the prompt whose turn is open
        self._inserted = False  # it is in the conversation
        self._ran = False  # the agent said that it works, since it was written
        self._saved: PromptEnded | None = None  # an end that was told before the insertion
        self._own = False  # a turn that the agent began by itself is open
        self._state = ""  # the last one
        self._background: tuple[Json, ...] = ()
        self._named: deque[str] = deque(maxlen=NAMED)
        self._foreign: AgentUser | None = None  # a message that came in elsewhere, until it is whole
        self._parents: dict[str, str] = {}
        self._states: dict[str, str] = {}  # of children
        self._terminals: dict[str, Terminals] = {}

    def __repr__(self) -> str:
        return f"<TurnsV2 {self._state} offer={self._offer} inserted={self._inserted} own={self._own}>"

    # --- prompts -----------------------------------------------------------------------------------------------------

    def written(self, offer_id: OfferId) -> None:
        self._offer, self._inserted, self._ran, self._saved = offer_id, False, False, None

    def answered(self, offer_id: OfferId, result: msgspec.Raw | None, error: rpc.RpcError | None) -> list[AgentFact]:
        if offer_id != self._offer:
            return []
        if error is not None:  # before it was inserted
            self._offer = None
            if error.code == rpc.CANCELLED:
                return [PromptEnded(outcome="cancelled", offer_id=offer_id)]
            return [PromptEnded(outcome="error", offer_id=offer_id, error=agent_error(error, self.can))]
        value = wire.as_object(result)
        out: list[AgentFact] = []
        if not self._inserted:
            out += self._insert(string(value.get("messageId")) or "")
        if "stopReason" in value:  # it answers as v1 does
            self._offer = None
            return [*out, PromptEnded(outcome=outcome_of(value["stopReason"], self._agent), offer_id=offer_id)]
        if self._saved is not None:  # it told the end first
            self._offer, saved = None, self._saved
            return [*out, saved]
        return out

    def _insert(self, agent_id: str) -> list[AgentFact]:
        self._inserted = True
        if not agent_id:
            return []
        self._named.append(agent_id)
        return [AgentUser(content=(), agent_id=agent_id, offer_id=self._offer)]

    def _told(self, fact: StateTold) -> list[AgentFact]:
        """A state of the session itself."""
        self._state = fact.state
        out = self._works_on(fact.told)
        if fact.state in WORKS:
            self._ran, self._saved = True, None
            if self._offer is None and not self._own:
                self._own = True
                out.append(TurnBegan())
            return out
        if fact.state != "idle":
            return out  # unknown is not idle
        out += self._shown(whole=True)
        outcome, error, tokens = ended(fact.told, self._agent, self.can)
        end = PromptEnded(outcome=outcome, offer_id=self._offer, error=error, tokens=tokens)
        if self._offer is None:
            if self._own:
                self._own = False
                out.append(end)
        elif self._inserted and (self._ran or fact.told.get("stopReason")):
            self._offer, self._own = None, False
            out.append(end)
        elif self._own:
            self._own = self._ran = False  # its own turn, into which our prompt crossed
        elif not self._inserted and self._ran:
            self._saved, self._ran = end, False
        return out

    def _works_on(self, told: dict[str, Json]) -> list[AgentFact]:
        """Beside the turn: tool calls and terminals; subagents tell their states themselves."""
        if "background" not in told:
            return []
        items = tuple(each for each in rows(told["background"]) if each.get("type") != "subagent")
        if items == self._background:
            return []
        self._background = items
        return [AgentBackground(items=items)]

    # --- what it says ------------------------------------------------------------------------------------------------

    def take(self, fact: AgentFact) -> list[AgentFact]:
        if type(fact) is AgentText and self._foreign is None:
            return [fact]  # the hot path
        if isinstance(fact, AgentUser) and not fact.agent_session:
            return self._user(fact)
        return [*self._release(), *self._take(fact)]

    def _take(self, fact: AgentFact) -> list[AgentFact]:
        match fact:
            case StateTold(agent_session=""):
                return self._told(fact)
            case StateTold():
                return self._child(fact)
            case TerminalTold():
                self._terminals.setdefault(fact.agent_session, Terminals()).take(fact.told)
                return []
            case AgentTool():
                return [self._tool(fact)]
            case AgentAsk() if fact.tool is not None:
                return [msgspec.structs.replace(fact, tool=self._tool(fact.tool))]
            case AgentChild():
                self._parents[fact.child] = fact.agent_session
                if isinstance(fact.state, str):
                    self._states[fact.child] = fact.state
        return [fact]

    def replayed(self, fact: AgentFact) -> list[AgentFact]:
        match fact:
            case StateTold(agent_session=""):
                self._state = fact.state
                self._works_on(fact.told)
                return []
            case AgentUser():
                self._named.append(fact.agent_id)
                return [fact]
        return self._take(fact)

    def ready(self) -> list[AgentFact]:
        out = self._shown(whole=True)
        if self._background:
            out.append(AgentBackground(items=self._background))
        if self._state in WORKS:
            self._own = True
            out.append(TurnBegan())
        return out

    def flush(self) -> list[AgentFact]:
        held = self._foreign is not None and self._foreign.content
        return [*(self._release() if held else ()), *self._shown(whole=False)]

    # --- users -------------------------------------------------------------------------------------------------------

    def _user(self, fact: AgentUser) -> list[AgentFact]:
        if self._foreign is not None and self._foreign.agent_id == fact.agent_id:
            self._foreign = msgspec.structs.replace(self._foreign, content=self._foreign.content + fact.content)
            return []
        out = self._release()
        if fact.agent_id in self._named:
            return out
        landed = self._landed(fact.agent_id, fact.content)
        if landed is not None:
            self._named.append(fact.agent_id)
            if self._offer is None and not self._own and any(isinstance(each, SteerVerdict) for each in landed):
                self._own = True  # it waited for the end of the turn: it begins one
                out.append(TurnBegan())
            return [*out, *landed]
        if self._offer is not None and not self._inserted:
            self._saved = None
            return [*out, *self._insert(fact.agent_id)]
        self._foreign = fact
        return out

    def _release(self) -> list[AgentFact]:
        """The message that came in elsewhere, once something else is told."""
        fact, self._foreign = self._foreign, None
        if fact is None:
            return []
        self._named.append(fact.agent_id)
        return [msgspec.structs.replace(fact, source=None)] if fact.content else []

    # --- children, tools ---------------------------------------------------------------------------------------------

    def _child(self, fact: StateTold) -> list[AgentFact]:
        """A child's own state, which its parent usually has told already."""
        child = fact.agent_session
        if child not in self._parents:
            _log.debug("a state of a session that was not announced", agent=self._agent, session=child)
            return []
        if self._states.get(child) == fact.state:
            return []
        self._states[child] = fact.state
        value = {"sessionUpdate": "subagent_update", "sessionId": child, "state": fact.told}
        return [v1.child(value, self._parents[child], None)]

    def _tool(self, fact: AgentTool) -> AgentTool:
        terminals = self._terminals.setdefault(fact.agent_session, Terminals())
        if isinstance(fact.content, list) or isinstance(fact.append, list):
            content, append = terminals.tool(fact.call_id, fact.content, fact.append)
            return msgspec.structs.replace(fact, content=content, append=append)
        if fact.status in TOOL_DONE:
            for _, content in terminals.refresh(fact.call_id):
                return msgspec.structs.replace(fact, content=content)
        return fact

    def _shown(self, whole: bool) -> list[AgentFact]:
        """Tool calls whose terminals have more to show."""
        return [
            AgentTool(call_id=call_id, content=content, agent_session=session, source=SHOWN)
            for session, terminals in self._terminals.items()
            for call_id, content in terminals.refresh(whole=whole)
        ]

    def can_cancel(self, session: str, kind: str, name: str) -> bool:
        if kind == "tool_call":
            return True
        terminals = self._terminals.get(session)
        return terminals is not None and terminals.can_cancel(name)
