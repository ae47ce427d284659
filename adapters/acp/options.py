"""The mode, the model and the options of one session at its agent: what they are, and how they are set.

One wish after the other: the last one is what stays. What the agent refuses is told as it still is.
"""

import asyncio
from typing import Any, Protocol

import msgspec
import structlog

from adapters.acp import translate_v1 as v1
from adapters.acp import translate_v1_calls as calls
from adapters.acp import wire
from adapters.acp.dialect import Dialect
from adapters.acp.owner import CallFailed, Gone
from gateway.core import effects, inputs
from gateway.core.inputs import AgentFact

_log = structlog.get_logger("agent")


class Host(Protocol):
    """The session that has the options."""

    async def request(self, method: str, params: wire.Json, answered: Any) -> None:
        """Raises CallFailed, Gone."""
        ...

    def add(self, *facts: AgentFact) -> None: ...
    def flush(self) -> None: ...


class Options:
    def __init__(self, host: Host, agent: str) -> None:
        self._host, self._agent = host, agent
        self._dialect: Dialect | None = None
        self._state = calls.SessionState([], [], "")

    def opened(self, dialect: Dialect, result: msgspec.Raw) -> list[AgentFact]:
        """What the answer that opened the session says of them."""
        self._dialect, self._state = dialect, calls.session_state(result)
        return self._state.facts()

    def note(self, fact: AgentFact) -> list[AgentFact]:
        """The agent told of a change. Where an option is the mode, its change is the mode's."""
        if fact.agent_session:
            return []
        if isinstance(fact, inputs.AgentConfig):
            before = self._state.mode
            self._state.options = fact.options
            self._state.mode = fact.mode or before
            if self._state.mode_by_option and self._state.mode != before:
                return [inputs.AgentMode(mode=self._state.mode)]
        elif isinstance(fact, inputs.AgentMode):
            self._state.mode = fact.mode
        return []

    async def configure(self, before: "asyncio.Task[None] | None", wish: effects.ConfigureAgent) -> None:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        if wish.mode is not None:
            if self._state.mode_by_option:
                await self._set(self._state.mode_by_option, wish.mode)
            else:
                await self._request("session/set_mode", {"modeId": wish.mode}, inputs.AgentMode(mode=wish.mode))
        if wish.model is not None:
            await self._set_model(wish.model)
        if wish.config is not None:
            option, value = wish.config
            if self._state.model_by_method and option == "model":
                await self._set_model(value)
            else:
                await self._set(option, value)

    async def _set_model(self, model: str) -> None:
        option = v1.option_of(self._state.options, "model")
        if option is None:
            _log.warning("agent offers no models", agent=self._agent)
        elif self._state.model_by_method:
            options = [{**o, "currentValue": model} if o is option else o for o in self._state.options]
            await self._request("session/set_model", {"modelId": model}, v1.config(options))
        else:
            await self._set(v1.option_id(option), model)

    async def _set(self, option: str, value: Any) -> None:
        if self._dialect is not None:
            await self._request("session/set_config_option", self._dialect.option(option, value), None)

    async def _request(self, method: str, params: wire.Json, fact: AgentFact | None) -> None:
        """``fact`` is what is true if it succeeds; without one, the answer is the list of options."""

        def answered(result: msgspec.Raw) -> None:
            options = wire.as_object(result).get("configOptions")
            if fact is not None:
                self._host.add(fact)
            elif isinstance(options, list):
                self._host.add(v1.config(options))

        try:
            await self._host.request(method, params, answered)
        except Gone:
            return
        except CallFailed as failed:
            _log.warning("agent refused a setting", agent=self._agent, method=method, error=str(failed))
            self._host.add(*self._state.facts())  # what still is true
            self._host.flush()
