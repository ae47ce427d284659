"""What a connection may send before it is a request: a head of bounded size, in a bounded time.

The parser below has no limits: it keeps a head of any length, joins a long URL piece by piece, and waits for ever. So
bytes are counted before it sees them, until a head is complete; those of bodies and answers pass as they are.
"""

import asyncio
from typing import Any

import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MAX_HEAD = 64 * 1024
"""Bytes of a request line and its headers. For one that begins in the middle of a read (the one before it was
pipelined), the bytes of that read are not counted."""

HEAD_SECONDS = 15.0
LINGER, DISCARDED = 2.0, 4 * 1024 * 1024
"""A client that still writes gets the answer and no reset, if it stops within these seconds and bytes."""

_log = structlog.get_logger("http")


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, with a limit (414, 431) and a deadline (408) for each head."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.url = b""
        self._in_head = True  # or between two requests
        self._begun = False  # something other than empty lines came
        self._seen = 0
        self._heads = 0
        self._refused = self._upgraded = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._in_head:
            super().data_received(data)
        elif self._refused:
            self._seen += len(data)
            if self._seen > DISCARDED:
                self.transport.abort()
            return
        else:
            self._head_received(data)
        if self._in_head and self._deadline is None and (self._seen or self._begun) and not self._upgraded:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def _head_received(self, data: bytes) -> None:
        while self._in_head and data:
            if self._seen >= MAX_HEAD:
                what, status = ("request's head", 431) if len(self.url) < MAX_HEAD // 2 else ("URL", 414)
                self._refuse(status, f"the {what} is larger than {MAX_HEAD} bytes")
                return
            part, data = data[: MAX_HEAD - self._seen], data[MAX_HEAD - self._seen :]
            self._seen += len(part)
            heads = self._heads
            super().data_received(part)
            if self._upgraded or self.transport.is_closing():
                return
            if self._heads != heads:
                self._seen = 0
        if data:
            super().data_received(data)

    # Called by the parser, within data_received.

    def on_message_begin(self) -> None:
        self._begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._heads += 1
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._begun, self._seen = True, False, 0
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._upgraded = True
        super().handle_websocket_upgrade()

    # The deadline.

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._deadline is not None:  # for a head that came while this response was written
            self._stop_waiting()
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _too_late(self) -> None:
        self._deadline = None
        if self._responding():
            # Some clients write an empty line after a body; the answer to that body may take long.
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_late)
        elif self._begun:
            self._refuse(408, f"the request's head did not come within {HEAD_SECONDS:g} s")
        else:
            # A browser opens connections before it needs them: it would take an answer for that of its next request.
            self.transport.close()

    # Answers from here.

    def _refuse(self, status: int, why: str) -> None:
        self._stop_waiting()
        self._unset_keepalive_if_required()
        self._in_head, self._refused, self._seen = True, True, 0
        _log.debug("refused a request", status=status, why=why)
        if self.transport.is_closing():
            return
        if self._responding():  # to a request before: nothing may be written into that answer
            self.transport.close()
            return
        code = {408: "timeout", 414: "uri_too_long"}.get(status, "head_too_large")
        body = b'{"error":{"code":"%b","message":"%b","data":null}}' % (code.encode(), why.encode())
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.close)
