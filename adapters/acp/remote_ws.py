"""A channel to an ACP agent over WebSocket: a text frame is one JSON-RPC object; binary frames are ignored.

The end of the socket is the end of the channel: ACP has no way to go on with it. Source: the Streamable HTTP RFD.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus

from adapters.acp.channel import Ended
from adapters.acp.remote_base import (
    MAX_MESSAGE,
    NotYet,
    Refused,
    RemoteChannel,
    Target,
    lost,
    network_error,
    refusal,
)

PING = 20.0  # seconds from ping to ping, and for the answer
CLOSE_WAIT = 1.0  # seconds for the server to close the socket after it said that it does


class RemoteWebSocket(RemoteChannel):
    def __init__(self, target: Target, on_data: Callable[[bytes], None], on_exit: Ended) -> None:
        self._socket: ClientConnection | None = None
        self._lines: deque[bytes] = deque()  # to be sent
        self._wake = asyncio.Event()
        self._batch: list[bytes] = []  # received, and told together
        super().__init__(target, on_data, on_exit)

    def _send(self, data: bytes) -> None:
        self._lines.append(data)
        self._wake.set()

    async def _run(self) -> None:
        socket = self._socket = await self._attempts(self._connect)
        self._start(self._write(socket), "write")
        try:
            while True:
                message = await socket.recv()
                if isinstance(message, bytes):
                    continue
                await self._reading.wait()
                if not self._batch:
                    # It comes to run when recv has to wait: after all frames that are here already.
                    self._loop.call_soon(self._flush)
                self._batch.append(message.encode())
        except ConnectionClosed as closed:
            self._flush()
            raise lost(_how(closed)) from None

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        # A newline inside of a JSON text is only white space between its parts.
        self._arrived(b"".join(line.replace(b"\n", b" ") + b"\n" for line in batch))

    async def _write(self, socket: ClientConnection) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._lines:
                    line = self._lines.popleft()
                    await socket.send(line.rstrip(b"\n"), text=True)
                    self._sent(line)
        except ConnectionClosed:
            return  # the reader tells it

    async def _connect(self, seconds: float) -> ClientConnection:
        url = self.target.url
        try:
            socket = await _Connect(
                url.text,
                additional_headers={**self.target.headers, **self._cookie()},
                max_size=MAX_MESSAGE,
                open_timeout=seconds,
                close_timeout=CLOSE_WAIT,
                ping_interval=PING,
                ping_timeout=PING,
                compression=None,
                proxy=None if url.loopback else True,
                user_agent_header="trunkline",
            )
        except InvalidStatus as error:
            answer = error.response
            self._keep_cookies(answer.status_code, list(answer.headers.raw_items()))
            location = answer.headers.get("Location", "")
            body = bytes(answer.body or b"")
            raise refusal(self.target, answer.status_code, "the WebSocket", body, location) from None
        except InvalidMessage as error:
            raise NotYet(f"no HTTP answer: {network_error(error)}") from None
        except InvalidHandshake as error:
            raise Refused(f"it is no WebSocket server: {error}") from None
        except TimeoutError:
            raise NotYet("no answer in time") from None
        except OSError as error:
            raise NotYet(network_error(error)) from None
        if socket.response is not None:
            self._keep_cookies(101, list(socket.response.headers.raw_items()))
        return socket

    async def _close(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    # --- cookies: httpx knows their rules --------------------------------------------------------------------------

    def _cookie(self) -> dict[str, str]:
        request = httpx.Request("GET", self.target.url.http)
        httpx.Cookies(self.target.cookies).set_cookie_header(request)
        return {"Cookie": request.headers["Cookie"]} if "Cookie" in request.headers else {}

    def _keep_cookies(self, status: int, headers: list[tuple[str, str]]) -> None:
        request = httpx.Request("GET", self.target.url.http)
        httpx.Cookies(self.target.cookies).extract_cookies(httpx.Response(status, headers=headers, request=request))


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc  # the headers are meant for this host only


def _how(closed: ConnectionClosed) -> str:
    """How the socket ended: by the server's close frame, by us (a limit, a ping), or cut."""
    if closed.rcvd is not None:
        return f"the server closed it: {closed.rcvd}"
    if closed.sent is not None:
        return f"closed: {closed.sent}"
    return "the socket was cut"
