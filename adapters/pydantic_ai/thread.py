"""The thread that native agents run in: an event loop apart from the gateway's, and threads for blocking tools.

What an agent's code does to its loop (blocks it, raises SystemExit through it) must not reach the gateway. All threads
are daemons: one that never ends does not keep the process.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

import structlog

T = TypeVar("T")
_log = structlog.get_logger("agent")

STOP = 2.0  # seconds that what runs in the loop has to end


class BlockingCalls(Executor):
    """A thread a call. A call that was given up (its run was cancelled) runs on and is heard by nobody."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=work, name="agent tool", daemon=True).start()
        return future


class AgentThread:
    """``call`` and ``submit`` may be used from any thread; what they are given runs in this one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.blocking = BlockingCalls()
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="native agents", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._stopping:
            try:
                self.loop.run_forever()
            except BaseException as error:  # SystemExit in a task of an agent: the task's own caller gets it too
                _log.error("an agent raised through its event loop", error=repr(error))
        try:
            self.loop.run_until_complete(self._end())
        except BaseException as error:
            _log.error("an agent raised at the end", error=repr(error))
        self.loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP)
        await self.loop.shutdown_asyncgens()

    def call(self, fn: Callable[..., object], *args: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(fn, *args)
        except RuntimeError:  # stopped
            _log.debug("the thread of the native agents has ended")

    def submit(self, coro: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coro, self.loop)

    def stop(self) -> None:
        """End it; returns when it has ended, or when it is blocked for longer than twice STOP."""
        self._stopping = True
        self.call(self.loop.stop)
        self._thread.join(2 * STOP)
