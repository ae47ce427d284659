"""Serves the application on one socket until a signal: uvicorn on uvloop, ready when it says so."""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
import uvloop

from gateway.app import create_app
from gateway.heads import BoundedHeads
from gateway.settings import Settings

# Streams end at once at a shutdown; this is for requests that wait for a turn. In seconds.
GRACE = 3
BACKLOG = 2048

# A proxy or Node keeps its connection for later; closing it first would race with the next request. In seconds.
KEEP_ALIVE = 75


class CannotListen(Exception):
    """One line for people."""


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address, not yet listening: whoever connects before we are ready is refused, not stuck.

    Raises CannotListen.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise CannotListen(f"--host {host}: no such host") from None
    sock = socket.socket(family, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        why = (error.strerror or "cannot be used").lower()
        hint = "; --port N takes another, --port 0 a free one" if "in use" in why else ""
        raise CannotListen(f"{url(host, port)}: {why}{hint}") from None
    return sock


def url(host: str, port: int) -> str:
    name = f"[{host.strip('[]')}]" if ":" in host else host
    return f"http://{name}:{port}"


class Server(uvicorn.Server):
    """A server without signal handlers of its own (uvicorn raises the signal again at its end: status not 0)."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], stop: asyncio.Event) -> None:
        super().__init__(config)
        self._ready = ready
        self._stop = stop

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and not self.should_exit:
            self._ready()

    def ask_to_stop(self, number: int) -> None:
        """The first signal ends streams and waits for the rest; a second Ctrl-C does not wait."""
        if self.should_exit and number == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True
        self._stop.set()


def run(settings: Settings) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. Raises CannotListen, and what opening the store raises."""
    sock = listen(settings.host, settings.port)
    with sock, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, sock))


async def _serve(settings: Settings, sock: socket.socket) -> None:
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        http=BoundedHeads,
        # The other implementation is the deprecated one. A message over max_body is answered by the ACP adapter and the
        # connection lives; past twice that it ends. Deflate costs more than it saves on short frames.
        ws="websockets-sansio",
        ws_max_size=2 * settings.max_body,
        ws_per_message_deflate=False,
        # The lifespan is run here and not by uvicorn: its errors are ours to show, and it also ends on a second Ctrl-C.
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    server = Server(config, lambda: _announce(settings, sock), app.state.shutdown)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
            loop.add_signal_handler(number, server.ask_to_stop, number)
    async with app.router.lifespan_context(app):
        # All that is there now stays: looked through at every full collection, it stopped all streams for 0.2 s.
        gc.freeze()
        await server.serve(sockets=[sock])


def _announce(settings: Settings, sock: socket.socket) -> None:
    """The first line is read by programs: keep its form."""
    where = url(settings.host, sock.getsockname()[1])
    reach = where
    if settings.host in ("0.0.0.0", "::"):  # an address to listen on, not one to go to
        reach = url("127.0.0.1" if settings.host == "0.0.0.0" else "::1", sock.getsockname()[1])
    # By the environment: what is on a command line, every process of the machine can read.
    password = 'OPENCODE_SERVER_PASSWORD="$TRUNKLINE_TOKEN" ' if settings.named_tokens() else ""
    lines = [
        f"listening on {where}",
        f"agents: {', '.join(settings.agents)} (default {settings.first_agent()})",
        f"workspace: {', '.join(str(root) for root in settings.workspace)}",
        f"data: {settings.data}",
        f"attach: {password}npx -y opencode-ai attach {reach}",
    ]
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()
