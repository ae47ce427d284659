"""What all channels to agents elsewhere have in common: who is asked, the opening with its repetitions, the one end.

Attempts to connect are repeated while the server may be just starting: refused, unreachable, 429, 502, 503, 504. What
it answers otherwise is final. No JSON here, and no decision about sessions.
"""

import asyncio
import os
import random
import re
import secrets
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from http.cookiejar import CookieJar
from typing import Any, TypeVar

import msgspec
import structlog

from adapters.acp.channel import Ended
from gateway.agents import AgentConfig
from gateway.remotes import RemoteUrl, resolve
from gateway.tasks import Supervisor

MAX_MESSAGE = 32 * 1024 * 1024
TOO_LONG = "a message over 32 MiB ends the connection"
MAX_UNWRITTEN = 64 * 1024 * 1024
ROOM = 16 * 1024 * 1024  # unwritten bytes over which large answers wait
FIRST_WAIT, LONGEST_WAIT = 0.1, 2.0  # seconds between attempts, give or take a half
SPARE = 1.0  # seconds before the time for initialize is over, whose error says less; at most half of that time
CLOSE = 3.0  # seconds for a polite end
SAID = 300  # characters of a refusal that are shown
SECRET = 4  # characters of a header's value that make it one: less would be found in any word
HIDDEN = "***"

_log = structlog.get_logger("agent.remote")
T = TypeVar("T")


class NotYet(Exception):
    """An attempt that may be repeated; the text says why it failed."""


class Refused(Exception):
    """No use to repeat it. The text goes on after "NAME at host: "."""

    def __init__(self, why: str, code: str = "agent_error") -> None:
        super().__init__(why)
        self.code = code


class Target(msgspec.Struct, frozen=True):
    """Whom to ask, and with what. ``headers`` hold secrets: they are never shown."""

    name: str
    url: RemoteUrl
    headers: Mapping[str, str]
    start_timeout: float
    cookies: CookieJar

    def __repr__(self) -> str:
        return f"<Target {self.name} at {self.url.where}>"

    def hide(self, text: str) -> str:
        """The server's words without what the headers hold: some servers repeat what was sent."""
        values = [value.strip() for value in self.headers.values()]
        values += [value.partition(" ")[2].strip() for value in values]  # without "Bearer"
        for value in sorted(values, key=len, reverse=True):
            if len(value) >= SECRET:
                text = text.replace(value, HIDDEN)
        return text

    def hide_errors(self, lines: bytes) -> bytes:
        """Lines of JSON-RPC; in the answers that are errors the words are hidden."""
        if not self.headers or b'"error"' not in lines:  # in a text its quotes would be escaped
            return lines
        return b"\n".join(self._hide_error(line) for line in lines.split(b"\n"))

    def _hide_error(self, line: bytes) -> bytes:
        try:
            message = msgspec.json.decode(line) if b'"error"' in line else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return line
        if not isinstance(message, dict) or "error" not in message or "method" in message:
            return line
        error = self._hide_all(message["error"])
        return line if error == message["error"] else msgspec.json.encode({**message, "error": error})

    def _hide_all(self, value: Any) -> Any:
        match value:
            case str():
                return self.hide(value)
            case list():
                return [self._hide_all(each) for each in value]
            case dict():
                return {self.hide(key): self._hide_all(each) for key, each in value.items()}
            case _:
                return value


def target(config: AgentConfig, name: str, environ: Mapping[str, str], cookies: CookieJar) -> Target:
    """Raises ValueError for a header whose variable is not set."""
    headers = resolve(config.plain_headers(), environ)
    return Target(name, RemoteUrl.parse(config.url), headers, config.start_timeout, cookies)


class Waits:
    """Seconds to wait before each next attempt: growing, and never two clients at once."""

    def __init__(self) -> None:
        self._next = FIRST_WAIT

    def next(self) -> float:
        wait, self._next = self._next, min(self._next * 2, LONGEST_WAIT)
        return wait * random.uniform(0.5, 1.5)


class RemoteChannel:
    """A ``Channel``. The constructor begins to connect and raises nothing: what fails is told to ``on_exit``."""

    def __init__(self, target: Target, on_data: Callable[[bytes], None], on_exit: Ended) -> None:
        self.pid = secrets.randbits(48)
        self.target = target
        self._on_data, self._on_exit = on_data, on_exit
        self._loop = asyncio.get_running_loop()
        self._tasks = Supervisor()
        self._reading = asyncio.Event()
        self._reading.set()
        self._told = False
        self._unwritten = 0
        self._room = asyncio.Event()
        self._room.set()
        self._closing: asyncio.Task[None] | None = None
        self._start(self._run(), "remote")

    def __repr__(self) -> str:
        state = "lost" if self._told else "running" if self._reading.is_set() else "paused"
        return f"<{type(self).__name__} {self.target.name} at {self.target.url.where} {state}>"

    @property
    def alive(self) -> bool:
        return not self._told

    def last_stderr(self) -> str:
        return ""

    def pause(self) -> None:
        self._reading.clear()

    def resume(self) -> None:
        self._reading.set()

    def write(self, data: bytes) -> bool:
        if self._told:
            return False
        self._unwritten += len(data)
        if self._unwritten > MAX_UNWRITTEN:
            self.kill("it does not read what is sent")
            return False
        if self._unwritten > ROOM:
            self._room.clear()
        self._send(data)
        return True

    async def room(self) -> None:
        while not self._room.is_set():  # also after it was woken: another one may have been faster
            await self._room.wait()

    def kill(self, why: str) -> None:
        # Soon, not now: who kills is in the middle of something, and the end is told to all.
        self._loop.call_soon(self._end, f"the connection was closed ({why})")

    async def stop(self) -> None:
        end = self._loop.time() + CLOSE
        while self._unwritten and not self._told and self._loop.time() < end:
            await asyncio.sleep(0.01)  # what was said last is to arrive
        self._end("the connection was closed (it was stopped)")
        if self._closing:
            await asyncio.wait([self._closing])

    # --- for the kinds ---------------------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        """Take a line; call ``_sent`` when it is gone."""
        raise NotImplementedError

    async def _run(self) -> None:
        """Connect and read, to the end. Raises Refused with what ended it."""
        raise NotImplementedError

    async def _close(self) -> None:
        """Say good-bye to the server and free everything; no task of this channel runs any more."""
        raise NotImplementedError

    async def _attempts(self, attempt: Callable[[float], Awaitable[T]]) -> T:
        """``attempt(seconds)`` until it does not raise NotYet. Raises Refused, also when the time is over."""
        began, waits, tries = self._loop.time(), Waits(), 0
        end = began + self.target.start_timeout - min(SPARE, self.target.start_timeout / 2)
        while True:
            tries += 1
            try:
                return await attempt(max(end - self._loop.time(), 0.05))
            except NotYet as failed:
                wait = waits.next()
                if self._loop.time() + wait > end:
                    took = self._loop.time() - began
                    times = f"{tries} attempts in {took:.1f} s" if tries > 1 else f"1 attempt, {took:.1f} s"
                    raise Refused(f"cannot be reached: {failed} ({times})", "agent_exit") from None
                _log.debug("agent not reached", agent=self.target.name, why=str(failed), again=round(wait, 2))
                await asyncio.sleep(wait)

    def _sent(self, data: bytes) -> None:
        self._unwritten -= len(data)
        if self._unwritten <= ROOM:
            self._room.set()

    def _start(self, work: Coroutine[Any, Any, object], what: str) -> "asyncio.Task[None]":
        return self._tasks.start(self._guarded(work), name=f"{what} {self.target.name}")

    def _arrived(self, lines: bytes) -> None:
        """Whole lines, in their order."""
        if not self._told and lines:
            self._on_data(self.target.hide_errors(lines))

    def _end(self, why: str, code: str = "agent_exit") -> None:
        """The one end: told at once, cleaned up after that."""
        if self._told:
            return
        self._told = True
        self._reading.set()
        self._room.set()
        self._on_exit(f"at {self.target.url.where}: {self.target.hide(why)}", code)
        self._closing = self._tasks.start(self._good_bye(), name=f"leave {self.target.name}")

    async def _guarded(self, work: Coroutine[Any, Any, object]) -> None:
        """Whatever ends a part of the channel, ends the channel."""
        try:
            await work
        except Refused as refused:
            self._end(str(refused), refused.code)
        except Exception:
            _log.exception("remote agent failed", agent=self.target.name)
            self._end("the connection was lost (an error of the gateway: its log says which)")

    async def _good_bye(self) -> None:
        await self._tasks.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE):
                await self._close()


def lost(why: str) -> Refused:
    return Refused(f"the connection was lost ({why})", "agent_exit")


def refusal(target: Target, status: int, what: str, body: bytes, location: str = "") -> Exception:
    """An answer other than a success, to ``what`` (as "POST initialize"), as the exception to raise."""
    # A secret is hidden before the text is cut, which could leave a part of it.
    said = _shorten(target.hide(_said(body))) or (f"it points to {target.hide(location)}" if location else "")
    text = f"HTTP {status}" + (f": {said}" if said else "")
    if status in (429, 502, 503, 504):
        return NotYet(text)
    if status in (401, 403):
        return Refused(f"it refuses the credentials in {what}: {text}", "auth_required")
    return Refused(f"it refuses {what}: {text}")


def network_error(error: BaseException) -> str:
    """A failure of the network in words, for NotYet. Raises Refused for a certificate that is not trusted."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            raise Refused(f"no secure connection: {getattr(cause, 'verify_message', '') or cause.reason or cause}")
        if isinstance(cause, OSError) and cause.errno:
            # asyncio puts the address into strerror; a name that is not found has a number of its own.
            text = os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
            return text[:1].lower() + text[1:]
        cause = cause.__cause__ or cause.__context__
    return re.sub(r"\s+", " ", str(error))[:SAID] or type(error).__name__


def _said(body: bytes) -> str:
    """The reason in an answer's body: of a JSON-RPC error, of other JSON, or text."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body.decode("utf-8", "replace")
        value = "" if text.lstrip().startswith("<") else text  # a page for people
    if isinstance(value, dict):
        error = value.get("error", value.get("detail", value.get("message", "")))
        value = error.get("message", "") if isinstance(error, dict) else error
    return value if isinstance(value, str) else ""


def _shorten(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()[:SAID]
