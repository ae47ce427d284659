"""One turn of a native agent: one run, from its prompt to its end, with the steers that it was offered."""

import asyncio
import time
import traceback
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from adapters.pydantic_ai import wire
from adapters.pydantic_ai.history import mended
from adapters.pydantic_ai.steering import Steers
from adapters.pydantic_ai.translate import Translator, tokens
from adapters.pydantic_ai.translate_content import jsonable, prompt_of, user_content
from adapters.pydantic_ai.translate_errors import ended, finished
from gateway.core import effects, inputs
from gateway.core.model import Error, Outcome, ToolStatus

if TYPE_CHECKING:
    from adapters.pydantic_ai.session import NativeSession

TRACE = 4000  # characters


def trace(error: BaseException) -> str:
    """Where it was raised, without the values of variables: they may be secrets."""
    return "".join(traceback.format_exception(error))[-TRACE:]


_log = structlog.get_logger("agent")


class Turn:
    """One prompt's run. ``steers`` is None once their fate is decided."""

    def __init__(self, session: "NativeSession", offer: effects.OfferPrompt) -> None:
        self.task: asyncio.Task[None] | None = None
        self.steers: Steers | None = Steers(session.tell)
        self._session, self._offer = session, offer
        self._prompt = prompt_of(user_content(offer.content))
        self._before = list(session.messages)
        self._run: wire.AgentRun[Any, Any] | None = None
        self._events = Translator()
        self._answered = False  # the model said something: it has seen the prompt
        self._cancelled = False
        self._running = False
        self._output_tool = False
        self._saved = 0.0  # when the next save on the way may be, on the clock of the loop

    def __repr__(self) -> str:
        return f"<Turn {self._offer.turn_id} {self.steers} cancelled={self._cancelled}>"

    def cancel(self) -> None:
        """Stop the run where it is. Too late, it changes nothing."""
        if self._cancelled:
            return
        self._cancelled = True
        if self._running and self._run is not None:
            self._run.cancel()
        elif self._running and self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        session = self._session
        await session.save([*self._before, self._request()])  # before it counts as delivered
        session.tell(inputs.PromptWritten(offer_id=self._offer.offer_id))
        outcome: Outcome = "cancelled"
        error: Error | None = None
        if not self._cancelled:
            self._running = True
            try:
                with session.blocking_calls():
                    outcome = await self._iterate()
            except BaseException as raised:
                outcome, error = ended(raised, self._cancelled)
                if error is not None:
                    _log.warning("a native agent raised", session=session.own_id, trace=trace(raised))
            finally:
                self._running = False
        if session.dead:
            return
        session.messages = mended(self.outcome_messages())
        await session.save(session.messages)
        status: ToolStatus = "cancelled" if outcome == "cancelled" else "failed"
        usage = tokens(self._run.usage) if self._run is not None else None
        session.over()
        end = inputs.PromptEnded(outcome=outcome, offer_id=self._offer.offer_id, error=error, tokens=usage)
        session.tell(*self._events.close(status), end)

    async def _iterate(self) -> Outcome:
        session = self._session
        async with session.iterate(self._prompt) as run:
            self._run = run
            if self.steers is not None:
                self.steers.open(run)
            if self._cancelled:
                run.cancel()
            async for node in run:
                if wire.AbstractAgent.is_model_request_node(node) or wire.AbstractAgent.is_call_tools_node(node):
                    stream: Any
                    async with node.stream(run.ctx) as stream:
                        async for event in stream:
                            self._on_event(event)
                            if not session.room.is_set():
                                await session.room.wait()
                    await self._save_on_the_way(run)
        result = run.result
        if result is not None and self._output_tool:
            text = result.output if isinstance(result.output, str) else _json(result.output)
            session.tell(inputs.AgentText(role="agent", text=text))
        last = next((m for m in reversed(run.all_messages()) if isinstance(m, wire.ModelResponse)), None)
        return finished(last.finish_reason if last is not None else None)

    def _on_event(self, event: Any) -> None:
        match event:
            case wire.EnqueuedMessagesEvent(enqueue_id=enqueue_id):
                if self.steers is not None:
                    self.steers.drained(enqueue_id)
            case wire.PartStartEvent() | wire.PartDeltaEvent():
                self._answered = True
                if self.steers is not None:
                    self.steers.answered()
            case wire.FinalResultEvent(tool_name=str()):
                self._output_tool = True
        facts = self._events.facts(event)
        if facts:
            self._session.tell(*facts)

    def outcome_messages(self) -> "list[wire.ModelMessage]":
        """The conversation with this turn in it, all that was delivered; decides what is left of the steers."""
        messages = list(self._run.all_messages()) if self._run is not None else list(self._before)
        if not self._answered and not self._holds_prompt(messages):
            messages.append(self._request())
        steers, self.steers = self.steers, None
        if steers is not None:
            messages += steers.settle(messages)
        return messages

    def _request(self) -> wire.ModelRequest:
        return wire.ModelRequest(parts=[wire.UserPromptPart(self._prompt)])

    def _holds_prompt(self, messages: "list[wire.ModelMessage]") -> bool:
        return any(
            isinstance(part, wire.UserPromptPart) and part.content == self._prompt
            for message in messages[len(self._before) :]
            for part in message.parts
        )

    async def _save_on_the_way(self, run: "wire.AgentRun[Any, Any]") -> None:
        """After a step, so that a crash costs one step; a twentieth of the time at most."""
        clock = time.monotonic
        if clock() < self._saved:
            return
        began = clock()
        await self._session.save(run.all_messages())
        self._saved = clock() + 20 * (clock() - began)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(jsonable(value)), indent=2).decode()
