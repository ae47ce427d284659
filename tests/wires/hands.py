"""Clients that act: one of each wire, all on one session. What is asked is a task; what came of it is in ``ledger``."""

import asyncio
import itertools
from contextlib import AsyncExitStack, suppress
from typing import Any

import httpx

from gateway.core.ids import RequestId, SessionId
from tests.acp.clients.raw import Client as AcpClient
from tests.acp.clients.raw import RpcError
from tests.acp.clients.raw import client as acp_client
from tests.wires.house import House

Json = dict[str, Any]
WIRES = ("acp1", "acp2", "oc1", "oc2", "agui")
CUT = (httpx.HTTPError, ConnectionError, RuntimeError)  # the gateway ended under a request


class Ledger:
    """What the gateway has said to its clients: the promises that a story is judged by. Messages by their text."""

    def __init__(self) -> None:
        self.admitted: dict[str, str] = {}  # text: id, as its own wire calls it ("" where the answer names none)
        self.refused: set[str] = set()
        self.revoked: set[str] = set()  # ids
        self.delivered: set[str] = set()  # ids that a revoke was answered "already delivered" for
        self.replaced: dict[str, str] = {}  # id: the newest text that was answered "replaced"
        self.answers: dict[str, str] = {}  # who waited for a turn: how it was answered


class Hands:
    def __init__(self, house: House, session_id: str) -> None:
        self.house = house
        self.session_id = session_id
        self.ledger = Ledger()
        self.running: set[asyncio.Task[None]] = set()
        self.acp: dict[int, AcpClient] = {}
        self._stack = AsyncExitStack()
        self._count = itertools.count(1)

    # --- being there -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        for version in (1, 2):
            one = await self._stack.enter_async_context(acp_client(self.house.url, version))
            one.session, one.answer = self.session_id, lambda message: None
            where: Json = {"sessionId": self.session_id, "cwd": str(self.house.workspace)}
            await one.call("session/resume", **where, **({"mcpServers": []} if version == 1 else {}))
            self.acp[version] = one

    async def close(self) -> None:
        await self._stack.aclose()

    def begin(self, work: Any) -> asyncio.Task[None]:
        task = self.house.tasks.start(work, name="hands")
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    # --- prompts -----------------------------------------------------------------------------------------------------

    async def submit(self, wire: str, how: str, delivery: str, text: str) -> None:
        """``how``: ``wait`` for the turn where the wire can, else answered when it is admitted."""
        try:
            await getattr(self, f"_submit_{wire}")(how, delivery, text)
        except CUT:
            pass  # it may have been admitted, or not: nobody was told
        except RpcError as error:
            if error.code == -32010:  # a steer while nothing runs
                self.ledger.refused.add(text)
            elif error.code == -32800 or how == "wait":  # it waited, and was told
                self.ledger.answers[text] = str(error.code)
            else:
                raise

    async def _submit_acp1(self, how: str, delivery: str, text: str) -> None:
        await self._submit_acp(1, how, delivery, text)

    async def _submit_acp2(self, how: str, delivery: str, text: str) -> None:
        await self._submit_acp(2, how, delivery, text)

    async def _submit_acp(self, version: int, how: str, delivery: str, text: str) -> None:
        one, content = self.acp[version], [{"type": "text", "text": text}]
        if how == "wait":
            answer = await one.call("session/prompt", sessionId=self.session_id, prompt=content)
            meta = (answer.get("_meta") or {}).get("trunkline") or {}
            self.ledger.answers[text] = str(answer.get("stopReason") or "inserted")
            if answer.get("stopReason") != "cancelled":
                self.ledger.admitted[text] = str(answer.get("messageId") or meta.get("messageId") or "")
            return
        answer = await one.call("session/inject", sessionId=self.session_id, mode=delivery, content=content)
        self.ledger.admitted[text] = answer["messageId"]

    async def _submit_oc1(self, how: str, delivery: str, text: str) -> None:
        body = {"parts": [{"type": "text", "text": text}], "delivery": delivery}
        if how == "wait":
            answer = await self.house.http.post(f"/session/{self.session_id}/message", json=body, timeout=60)
            assert answer.status_code in (200, 409, 502, 503), answer.text
            self.ledger.answers[text] = str(answer.status_code)
            return
        answer = await self.house.http.post(f"/session/{self.session_id}/prompt_async", json=body)
        assert answer.status_code == 204, answer.text
        self.ledger.admitted[text] = ""

    async def _submit_oc2(self, how: str, delivery: str, text: str) -> None:
        body = {"prompt": {"text": text}, "delivery": delivery}
        answer = await self.house.http.post(f"/api/session/{self.session_id}/prompt", json=body)
        assert answer.status_code == 200, answer.text
        self.ledger.admitted[text] = answer.json()["data"]["id"]

    async def _submit_agui(self, how: str, delivery: str, text: str) -> None:
        name = f"client-{next(self._count)}-{text.split()[-1]}"
        message = {"id": name, "content": text}
        if how == "wait":
            body: Json = {"threadId": self.session_id, "runId": f"run-{name}", "protocolVersion": "1.0", "state": {}}
            body |= {"messages": [{**message, "role": "user"}], "tools": [], "context": []}
            body["forwardedProps"] = {"trunkline": {"delivery": delivery, "onDisconnect": "continue"}}
            async with self.house.http.stream("POST", "/agui/agent", json=body, timeout=60) as answer:
                assert answer.status_code == 200, await answer.aread()
                async for _ in answer.aiter_lines():
                    pass
            self.ledger.answers[text] = "closed"
            return
        body = {"messages": [message], "delivery": delivery}
        answer = await self.house.http.post(f"/agui/agent/threads/{self.session_id}/messages", json=body)
        assert answer.status_code in (200, 202), answer.text
        self.ledger.admitted[text] = name

    # --- what waits --------------------------------------------------------------------------------------------------

    async def pending(self) -> list[Any]:
        return (await self.house.controller.view(SessionId(self.session_id))).pending

    async def change(self, wire: str, what: str, message: Any, text: str = "") -> None:
        """revoke, replace, steer or queue one that waits. The wire's own words for it."""
        with suppress(*CUT):
            done = await getattr(self, f"_change_{wire[:3]}")(wire, what, message, text)
            if done == "done" and what == "revoke":
                self.ledger.revoked.add(message.id)
            elif done == "done" and what == "replace":
                self.ledger.replaced[message.id] = text
            elif done == "late":
                self.ledger.delivered.add(message.id)

    async def _change_acp(self, wire: str, what: str, message: Any, text: str) -> str:
        if what in ("steer", "queue"):
            return await self._change_agu(wire, what, message, text)  # ACP has no word for it
        one = self.acp[int(wire[3])]
        more = {"content": [{"type": "text", "text": text}]} if what == "replace" else {}
        try:
            await one.call(f"session/{what}_inject", sessionId=self.session_id, messageId=message.id, **more)
        except RpcError as error:
            assert error.code == -32010, error
            return "late" if error.data["reason"] == "already_delivered" else "gone"
        return "done"

    async def _change_oc1(self, wire: str, what: str, message: Any, text: str) -> str:
        if what != "revoke":
            return await self._change_oc2(wire, what, message, text)
        path = f"/session/{self.session_id}/message/{message.ascending_id}"
        answer = await self.house.http.delete(path)
        assert answer.status_code in (200, 409), answer.text
        return "done" if answer.status_code == 200 else ""

    async def _change_oc2(self, wire: str, what: str, message: Any, text: str) -> str:
        path = f"/api/session/{self.session_id}/pending/{message.ascending_id}"
        return await self._over_http(path, what, {"prompt": {"text": text}})

    async def _change_agu(self, wire: str, what: str, message: Any, text: str) -> str:
        path = f"/agui/agent/threads/{self.session_id}/pending/{message.id}"
        return await self._over_http(path, what, {"content": text})

    async def _over_http(self, path: str, what: str, body: Json) -> str:
        http = self.house.http
        if what == "revoke":
            answer = await http.delete(path)
        elif what == "replace":
            answer = await http.patch(path, json=body)
        else:
            answer = await http.post(f"{path}/{what}")
        if answer.status_code == 409:
            return "late" if "deliver" in answer.text else "gone"
        assert answer.status_code == 200, (what, path, answer.status_code, answer.text)
        told = answer.json()
        kind = told.get("result") or told.get("kind") or (told.get("data") or {}).get("result")
        return {"already_delivered": "late", "revoked": "done" if what == "revoke" else "gone"}.get(str(kind), "done")

    # --- requests and aborts -----------------------------------------------------------------------------------------

    async def answer(self, wire: str, request: Any, yes: bool) -> None:
        """Answer a permission; who is late is told so, and nothing is wrong with that."""
        with suppress(*CUT):
            if wire in ("acp1", "acp2"):
                await self._answer_acp(int(wire[3]), request, yes)
            elif wire == "agui":
                option = next(o.id for o in request.options if o.kind == ("allow_once" if yes else "reject_once"))
                entry = {"interruptId": request.id, "status": "resolved", "payload": {"optionId": option}}
                body: Json = {"threadId": self.session_id, "runId": f"r-{request.id}", "protocolVersion": "1.0"}
                body |= {"messages": [], "tools": [], "context": [], "state": {}, "resume": [entry]}
                body["forwardedProps"] = {"trunkline": {"onDisconnect": "continue"}}
                async with self.house.http.stream("POST", "/agui/agent", json=body, timeout=60) as answer:
                    assert answer.status_code == 200, await answer.aread()
                    async for _ in answer.aiter_lines():
                        pass
            else:
                reply = {"reply": "once" if yes else "reject"}
                answered = await self.house.http.post(f"/permission/{request.id}/reply", json=reply)
                assert answered.status_code in (200, 404), answered.text

    async def _answer_acp(self, version: int, request: Any, yes: bool) -> None:
        """The request of this permission as this client got it: known by its tool call."""
        one = self.acp[version]
        call = request.call_id

        def found(message: Json) -> bool:
            return message.get("method") == "session/request_permission" and call in str(message["params"])

        asked = next((m for m in reversed(one.got) if found(m)), None)
        if asked is None:
            return  # not told yet: another may answer
        option = next(o.id for o in request.options if o.kind == ("allow_once" if yes else "reject_once"))
        outcome = {"outcome": {"outcome": "selected", "optionId": option}}
        await one.write({"jsonrpc": "2.0", "id": asked["id"], "result": outcome})

    async def abort(self, wire: str) -> None:
        with suppress(*CUT):
            if wire in ("acp1", "acp2"):
                await self.acp[int(wire[3])].notify("session/cancel", sessionId=self.session_id)
                return
            path = {
                "oc1": f"/session/{self.session_id}/abort",
                "oc2": f"/api/session/{self.session_id}/interrupt",
                "agui": f"/agui/agent/threads/{self.session_id}/stop",
            }[wire]
            answer = await self.house.http.post(path)
            assert answer.status_code in (200, 204), (path, answer.text)

    async def allow_all(self) -> None:
        """Answer what is open, as a person at one of the screens would."""
        for session_id, request in self.house.controller.requests():
            if session_id == self.session_id:
                reply = {"reply": "once"}
                await self.house.http.post(f"/permission/{RequestId(request.id)}/reply", json=reply)
