"""The routes of AG-UI under ``/agui``. They decode, ask the threads or the controller, and encode."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from adapters import sse
from adapters.agui import catalog, wire
from adapters.agui.frames import HEARTBEAT
from adapters.agui.threads import Asked, Threads
from adapters.agui.translate_content import modern, user_content
from adapters.agui.translate_run import run_of
from adapters.agui.translate_state import entry
from adapters.agui.wire import Invalid
from gateway.controller import SessionController
from gateway.core.errors import ClientError, Conflict, NotFound
from gateway.core.ids import MessageId
from gateway.core.model import By
from gateway.core.replies import Verdict
from gateway.settings import Settings

T = TypeVar("T")
HEARTBEAT_SECONDS = 10.0


def router(controller: SessionController, settings: Settings) -> APIRouter:
    """All routes."""
    api = APIRouter(prefix="/agui", tags=["agui"])
    threads = Threads(controller, settings)

    @api.get("", response_model=None)
    async def agents() -> Response:
        """The agents, each with the address to run it at."""
        return answer({"agents": [catalog.listed(config) for config in controller.agents.values()]})

    @api.get("/{agent}/capabilities", response_model=None)
    async def capabilities(agent: str) -> Response:
        """AgentCapabilities of AG-UI."""
        return answer(catalog.capabilities(controller.agents[threads.agent(agent)]))

    # --- runs --------------------------------------------------------------------------------------------------------

    @api.post("/{agent}", response_model=None)
    async def run(request: Request, agent: str) -> Response:
        """Run: the user messages that are new go to the agent; the stream shows the turn that takes them."""
        threads.agent(agent)
        return streamed(await told(threads.run, await asked(request, agent)))

    @api.post("/{agent}/connect", response_model=None)
    async def connect(request: Request, agent: str) -> Response:
        """Show a thread and follow what runs. ``Last-Event-ID`` or ``cursor`` goes on after a frame."""
        threads.agent(agent)
        body = await asked(request, agent)
        cursor = request.headers.get("last-event-id") or request.query_params.get("cursor") or body.options.cursor
        found = await threads.connect(body, cursor)
        if isinstance(found, list):
            return streamed(once(b"".join(b"data: " + wire.encode(event) + b"\n\n" for event in found)))
        return streamed(found)

    @api.post("/{agent}/threads/{thread:path}/stop", response_model=None)
    async def stop(request: Request, agent: str, thread: str) -> Response:
        """Cancel the running turn. Nothing to stop is a success."""
        session_id = await threads.known(agent, thread)
        stopped = (await controller.view(session_id)).turn_id is not None
        await controller.abort(session_id, by=by(request))
        return answer({"stopped": stopped})

    @api.post("/{agent}/threads/{thread:path}/messages", response_model=None)
    async def deliver(request: Request, agent: str, thread: str) -> Response:
        """Deliver messages from beside a run: it is answered at once, and the runs of the thread show them."""
        session_id = await threads.known(agent, thread)
        body = judged(wire.judge_side, await json_of(request))
        contents = [
            judged(user_content, message.content, f"messages.{index}") for index, message in enumerate(body.messages)
        ]
        before = await controller.view(session_id)
        admitted = []
        for message, content in zip(body.messages, contents, strict=True):
            admission = await controller.submit(
                session_id,
                content,
                delivery="steer" if body.delivery == "steer" else "queue",
                message_id=MessageId(message.id) if message.id else None,
                if_busy="refuse" if body.delivery == "reject" else "accept",
                on_abort=body.on_abort,
                local_id=True,
                by=by(request),
            )
            state = {"id": admission.message_id, "state": admission.state, "duplicate": admission.duplicate}
            admitted.append(state)
        active = run_of(before.transcript, before.turn_id) if before.turn_id is not None else None
        return answer({"delivery": body.delivery, "activeRunId": active, "messages": admitted})

    # --- what waits --------------------------------------------------------------------------------------------------

    @api.get("/{agent}/threads/{thread:path}/pending", response_model=None)
    async def pending(agent: str, thread: str) -> Response:
        """What is admitted and not delivered, in the order in which it will go."""
        view = await controller.view(await threads.known(agent, thread))
        return answer({"pending": [entry(message) for message in view.pending]})

    @api.delete("/{agent}/threads/{thread:path}/pending/{message:path}", response_model=None)
    async def revoke(request: Request, agent: str, thread: str, message: str) -> Response:
        session_id = await threads.known(agent, thread)
        return verdict(await controller.revoke(session_id, MessageId(message), by=by(request)))

    @api.delete("/{agent}/threads/{thread:path}/pending", response_model=None)
    async def revoke_all(request: Request, agent: str, thread: str) -> Response:
        session_id = await threads.known(agent, thread)
        view = await controller.view(session_id)
        found = [await controller.revoke(session_id, message.id, by=by(request)) for message in view.pending]
        return answer({"pending": [shown(each) for each in found]})

    @api.patch("/{agent}/threads/{thread:path}/pending/{message:path}", response_model=None)
    async def replace(request: Request, agent: str, thread: str, message: str) -> Response:
        session_id = await threads.known(agent, thread)
        body = judged(wire.judge_patch, await json_of(request))
        content = judged(user_content, body.content, "the body")
        return verdict(await controller.replace(session_id, MessageId(message), content, by=by(request)))

    @api.post("/{agent}/threads/{thread:path}/pending/{message:path}/steer", response_model=None)
    async def promote(request: Request, agent: str, thread: str, message: str) -> Response:
        session_id = await threads.known(agent, thread)
        return verdict(await controller.promote(session_id, MessageId(message), by=by(request)))

    @api.post("/{agent}/threads/{thread:path}/pending/{message:path}/queue", response_model=None)
    async def demote(request: Request, agent: str, thread: str, message: str) -> Response:
        session_id = await threads.known(agent, thread)
        return verdict(await controller.demote(session_id, MessageId(message), by=by(request)))

    return api


# --- reading ---------------------------------------------------------------------------------------------------------


def by(request: Request) -> By:
    return By(request.state.by_name, "agui")


async def json_of(request: Request) -> Any:
    body = await request.body()
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ClientError(f"the body is not valid JSON: {why}") from None


async def asked(request: Request, agent: str) -> Asked:
    """A RunAgentInput. Raises ClientError that says what is wrong, and where."""
    body = await json_of(request)
    raw = body.get("messages") if isinstance(body, dict) else None
    if isinstance(raw, list):
        raw = [_modern(message) for message in raw]
        body = {**body, "messages": raw}
    judged_input = judged(wire.judge, body)
    options = judged(wire.judge_options, judged_input.forwarded_props)
    shutdown = getattr(request.app.state, "shutdown", None)
    closing = shutdown.is_set if shutdown is not None else lambda: False
    return Asked(agent, judged_input, raw or [], options, request.state.by_name, closing)


def _modern(message: Any) -> Any:
    if isinstance(message, dict) and isinstance(message.get("content"), list):
        return {**message, "content": [modern(part) for part in message["content"]]}
    return message


def judged(check: Callable[..., T], *given: Any) -> T:
    try:
        return check(*given)
    except Invalid as error:
        raise refused(error) from None


async def told(ask: Callable[[Asked], Any], body: Asked) -> Any:
    try:
        return await ask(body)
    except Invalid as error:
        raise refused(error) from None


def refused(error: Invalid) -> ClientError:
    problems = [{"where": where, "what": what} for where, what in error.problems]
    return ClientError(str(error), problems=problems)


# --- answering -------------------------------------------------------------------------------------------------------


def answer(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def streamed(frames: Any) -> Response:
    return sse.stream(frames, heartbeat=HEARTBEAT, heartbeat_seconds=HEARTBEAT_SECONDS)


async def once(frames: bytes) -> Any:
    yield frames


def shown(found: Verdict) -> dict[str, Any]:
    return {"id": found.message_id, "result": found.kind, "uncertain": found.uncertain}


def verdict(found: Verdict) -> Response:
    """A fate that is not what was asked for is an error: 404 or 409."""
    if found.kind == "unknown":
        raise NotFound(f"no message {found.message_id!r} in this thread", message_id=found.message_id)
    if found.kind == "already_delivered":
        raise Conflict(f"{found.message_id} was delivered to the agent already", message_id=found.message_id)
    return answer(shown(found))
