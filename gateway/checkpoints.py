"""The text of open parts on its way to the disk, so that a crash loses no more than its last moments.

Each write appends what came since the one before: a long answer costs its length once. One write is on its way at a
time; what comes meanwhile waits and goes together. Nothing here is needed for order or ids: a part's end has its text.
"""

import asyncio

import structlog

from gateway.core.ids import SessionId
from gateway.store import Store

_log = structlog.get_logger("session")

PAUSE = 0.1  # seconds; what is on the disk is at most about twice as old
AFTER_FAILURE = 1.0  # seconds


class Checkpoints:
    """Of the sessions of one tree."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._saved: dict[str, int] = {}  # open part → characters on the disk
        self._tails: dict[str, tuple[SessionId, list[str]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False
        self._closed = False

    @property
    def idle(self) -> bool:
        return not self._tails and not self._writing

    def add(self, session_id: SessionId, part_id: str, text: str) -> None:
        """More text of an open part."""
        tail = self._tails.get(part_id)
        if tail is not None:
            tail[1].append(text)
            return
        self._saved.setdefault(part_id, 0)
        self._tails[part_id] = (session_id, [text])
        self._schedule(PAUSE)

    def end(self, part_id: str) -> None:
        """The part is over, its whole text is stored."""
        self._saved.pop(part_id, None)
        self._tails.pop(part_id, None)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, delay: float) -> None:
        if self._timer is None and not self._writing and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(delay, self._write)

    def _write(self) -> None:
        self._timer = None
        tails = {part: (session, "".join(texts)) for part, (session, texts) in self._tails.items()}
        self._tails.clear()
        rows = [(session, part, self._saved[part], text) for part, (session, text) in tails.items()]
        if rows:
            self._writing = True
            self._store.checkpoint(rows).add_done_callback(lambda done: self._written(tails, done))

    def _written(self, tails: dict[str, tuple[SessionId, str]], done: asyncio.Future[None]) -> None:
        self._writing = False
        error = None if done.cancelled() else done.exception()
        if error is not None:
            _log.warning("checkpoint failed", error=str(error))
        for part, (session, text) in tails.items():
            if part not in self._saved:
                continue  # it ended meanwhile
            if error is None:
                self._saved[part] += len(text)
            else:
                self._tails[part] = (session, [text, *self._tails.get(part, (session, []))[1]])
        if self._tails:
            self._schedule(AFTER_FAILURE if error is not None else PAUSE)
