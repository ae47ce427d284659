"""Background tasks that nobody awaits, without losing them: the one place where ``create_task`` is called.

A bare ``asyncio.create_task`` may be collected while it runs, and its exception vanishes. A ``Supervisor`` keeps a
reference to each task, logs what it raises, and ends all of them at ``close``.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

T = TypeVar("T")
_log = structlog.get_logger("tasks")


class Supervisor:
    """Owns tasks. One a component: closing the component closes its tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Supervisor {sorted(task.get_name() for task in self._tasks)}>"

    def start(self, coro: Coroutine[Any, Any, T], *, name: str = "") -> asyncio.Task[T]:
        """Run ``coro`` in the running loop. What it raises is logged, here or by whoever awaits the task.

        Raises RuntimeError after ``close`` (and then the coroutine is closed, not leaked).
        """
        if self._closed:
            coro.close()
            raise RuntimeError("supervisor is closed")
        task = asyncio.get_running_loop().create_task(coro, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task failed", task=task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel what runs and wait until it has ended. Safe to call twice, and from one of its own tasks."""
        self._closed = True
        me = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not me]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
