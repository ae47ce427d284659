"""HEAD wherever GET is, for every protocol: the answer to a GET without its body.

As a layer around the application, not as routes of their own: those cost as much as the others at every start.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        started = asyncio.Event()
        heard = complete = False

        async def client() -> Message:
            """Its request, and once the head is out it has left: a stream ends there."""
            nonlocal heard
            if not heard:
                heard = True
                return await receive()
            await started.wait()
            return {"type": "http.disconnect"}

        async def told(message: Message) -> None:
            nonlocal complete
            if message["type"] == "http.response.start":
                await send(message)
                started.set()
            elif message["type"] == "http.response.body" and not complete:
                complete = not message.get("more_body", False)
                if complete:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self.app({**scope, "method": "GET"}, client, told)
        if started.is_set() and not complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
