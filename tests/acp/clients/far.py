"""The server of the official Python SDK, over HTTP and WebSocket, with a small agent of that SDK.

``python far.py PORT STATE``: STATE is a folder for what sessions were told. A prompt's words are some of the demo
agent's: ``say TEXT``, ``ask TITLE``, ``sleep MS``, ``stream N MS``. With TOKEN in the environment it wants
``Authorization: Bearer TOKEN``. It gives the cookie ``far=N`` to who has none, and prints "METHOD COOKIE" a request,
and the sessions that it opens.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from acp import helpers, schema
from acp.http.asgi import create_asgi_app

STATE = Path(sys.argv[2])


class Agent:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._cancelled: dict[str, asyncio.Event] = {}

    async def initialize(self, **_: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(
            protocol_version=1,
            agent_capabilities=schema.AgentCapabilities(load_session=True),
            agent_info=schema.Implementation(name="far", version="1"),
        )

    async def new_session(self, **_: Any) -> schema.NewSessionResponse:
        name = f"far-{os.urandom(4).hex()}"
        (STATE / name).write_text("")
        print("session/new", flush=True)
        return schema.NewSessionResponse(session_id=name)

    async def load_session(self, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        print("session/load", flush=True)
        for line in (STATE / session_id).read_text().splitlines():
            role, text = json.loads(line)
            tell = helpers.update_user_message_text if role == "user" else helpers.update_agent_message_text
            await self._client.session_update(session_id, tell(text))
        return schema.LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        cancelled = self._cancelled[session_id] = asyncio.Event()
        text = "".join(block.text for block in prompt)
        self._keep(session_id, "user", text)
        said = ""
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            match word:
                case "say":
                    said += await self._say(session_id, rest)
                case "ask":
                    await self._ask(session_id, rest)
                case "sleep":
                    with suppress(TimeoutError):
                        await asyncio.wait_for(cancelled.wait(), int(rest) / 1000)
                case "stream":
                    count, pause = map(int, rest.split())
                    for number in range(count):
                        said += await self._say(session_id, f"chunk {number} ")
                        await asyncio.sleep(pause / 1000)
        self._keep(session_id, "agent", said)
        return schema.PromptResponse(stop_reason="cancelled" if cancelled.is_set() else "end_turn")

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled[session_id].set()

    async def _say(self, session_id: str, text: str) -> str:
        await self._client.session_update(session_id, helpers.update_agent_message_text(text))
        return text

    async def _ask(self, session_id: str, title: str) -> None:
        await self._client.session_update(session_id, helpers.start_tool_call("call-1", title, kind="execute"))
        answer = await self._client.request_permission(
            options=[schema.PermissionOption(option_id="once", name="Once", kind="allow_once")],
            session_id=session_id,
            tool_call=schema.ToolCallUpdate(tool_call_id="call-1", title=title),
        )
        allowed = getattr(answer.outcome, "option_id", "") == "once"
        done = helpers.update_tool_call("call-1", status="completed" if allowed else "failed")
        await self._client.session_update(session_id, done)

    @staticmethod
    def _keep(session_id: str, role: str, text: str) -> None:
        with (STATE / session_id).open("a") as file:
            file.write(json.dumps([role, text]) + "\n")


def guarded(app: Any) -> Any:
    """``app`` behind a token, with cookies."""
    given = iter(range(1, 1000))

    async def call(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if scope["type"] == "lifespan":
            return await app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        print(scope.get("method", "WS"), headers.get("cookie", "-"), flush=True)
        token = os.environ.get("TOKEN")
        if token and headers.get("authorization") != f"Bearer {token}":
            body = b'{"error": "who are you?"}'
            kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
            await send({"type": f"{kind}.start", "status": 401, "headers": []})
            return await send({"type": f"{kind}.body", "body": body})

        async def with_cookie(message: Any) -> None:
            if message["type"] in ("http.response.start", "websocket.accept") and "cookie" not in headers:
                cookie = (b"set-cookie", f"far={next(given)}; Path=/; HttpOnly".encode())
                message = {**message, "headers": [*message.get("headers", []), cookie]}
            await send(message)

        await app(scope, receive, with_cookie)

    return call


async def main() -> None:
    STATE.mkdir(parents=True, exist_ok=True)
    config = uvicorn.Config(
        guarded(create_asgi_app(Agent)), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", lifespan="on"
    )
    server = uvicorn.Server(config)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(f"listening on http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", flush=True)


asyncio.run(main())
