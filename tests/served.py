"""A gateway as people run it: ``trunkline serve`` in a process of its own, on a free port of loopback."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

ROOT = Path(__file__).resolve().parent.parent
START = 60  # seconds; a loaded machine is slow, not wrong


class Served:
    """``url`` to ask, ``http`` to ask with, ``workspace`` for sessions. ``kill`` is -9, ``stop`` is a polite end."""

    def __init__(self, folder: Path, arguments: list[str], environment: dict[str, str]) -> None:
        self.workspace = folder / "work"
        self.data = folder / "data"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self._arguments = arguments
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "TRUNKLINE_DEMO_STATE": str(folder / "demo"),
            **environment,
        }
        self.log: list[str] = []
        self.url = ""
        self.http = httpx.AsyncClient()
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        command = [sys.executable, "-W", "error", "-m", "gateway", "serve", "--port", "0", "--data", str(self.data)]
        command += ["--workspace", str(self.workspace), *self._arguments]
        self.process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.workspace,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=1 << 24,
        )
        async with asyncio.timeout(START):
            while not (found := re.search(r"listening on (http://\S+)", await self._line())):
                pass
        self.url = found[1]
        self.http = httpx.AsyncClient(base_url=self.url, timeout=60)
        self._reader = asyncio.get_running_loop().create_task(self._drain())

    async def _line(self) -> str:
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode(errors="replace")
        if not line:
            await self.process.wait()
            raise AssertionError("the gateway ended:\n" + "".join(self.log))
        self.log.append(line)
        return line

    async def _drain(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.log.append(line.decode(errors="replace"))

    async def _ended(self) -> int:
        async with asyncio.timeout(30):
            code = await self.process.wait()
        if self._reader is not None:
            await self._reader
        await self.http.aclose()
        return code

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self._ended()

    async def stop(self) -> int:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self._ended()

    # --- OpenCode, in the shortest words ------------------------------------------------------------------------------

    async def session(self, **body: Any) -> str:
        answer = await self.http.post("/session", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def post(self, session_id: str, text: str, **body: Any) -> httpx.Response:
        """A prompt; answered at the end of its turn."""
        body = {"parts": [{"type": "text", "text": text}], **body}
        return await self.http.post(f"/session/{session_id}/message", json=body)

    async def send(self, session_id: str, text: str, **body: Any) -> None:
        """A prompt; answered when it is admitted."""
        body = {"parts": [{"type": "text", "text": text}], **body}
        answer = await self.http.post(f"/session/{session_id}/prompt_async", json=body)
        assert answer.status_code == 204, answer.text

    async def told(self, session_id: str) -> list[str]:
        """The list of messages as lines: ``user: …``, ``assistant: …``; an assistant message is its text parts."""
        lines = []
        for message in (await self.http.get(f"/session/{session_id}/message")).json():
            text = "".join(part["text"] for part in message["parts"] if part["type"] == "text")
            lines.append(f"{message['info']['role']}: {text}")
        return lines

    @asynccontextmanager
    async def events(self, path: str = "/global/event", **headers: str) -> AsyncIterator["Frames"]:
        async with self.http.stream("GET", path, headers=headers, timeout=60) as answer:
            assert answer.status_code == 200
            yield Frames(answer)


class Frames:
    """Frames of an event stream as they come: (cursor, payload)."""

    def __init__(self, answer: httpx.Response) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> dict[str, Any]:
        cursor = ""
        async for line in self._lines:
            if line.startswith("id:"):
                cursor = line[3:].strip()
            elif line.startswith("data:"):
                event: dict[str, Any] = msgspec.json.decode(line[5:])
                payload: dict[str, Any] = event.get("payload", event)
                self.seen.append((cursor, payload))
                return payload
        raise AssertionError("the stream ended")

    async def until(self, type_: str, **properties: Any) -> dict[str, Any]:
        """The next event of this type and with these properties."""
        async with asyncio.timeout(60):
            while True:
                event = await self.next()
                told = event.get("properties") or {}
                if event.get("type") == type_ and all(told.get(k) == v for k, v in properties.items()):
                    return event


@asynccontextmanager
async def serve(folder: Path, *arguments: str, **environment: str) -> AsyncIterator[Served]:
    """A running gateway; it ends, with code 0, when the block does."""
    served = Served(folder, list(arguments), environment)
    await served.start()
    try:
        yield served
    finally:
        code = await served.stop() if served.process.returncode is None else 0
    assert code == 0, "".join(served.log)
