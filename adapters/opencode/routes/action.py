"""What clients can do with a session beside prompting: fork, summarize, init. The agent does it, where it can."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode.errors import cut, json
from adapters.opencode.routes.api import Api
from adapters.opencode.routes.prompting import Prompting
from adapters.opencode.wire import PATTERN_MESSAGE, MessageIdText, ModelInput, Name, Prompt, TextInput
from gateway.core.errors import NotFound, NotSupported
from gateway.views import SessionView

COMPACT = ("compact", "summarize", "compress")
"""What agents call it: Claude, Codex and OpenCode ``compact``, Gemini ``compress``."""


class Fork(msgspec.Struct, frozen=True):
    messageID: Annotated[str, Meta(pattern=PATTERN_MESSAGE)] | None = None


class Summarize(msgspec.Struct, frozen=True):
    providerID: Name
    modelID: Name
    auto: bool = False


class Init(msgspec.Struct, frozen=True):
    providerID: Name
    modelID: Name
    messageID: MessageIdText


_fork = msgspec.json.Decoder(Fork)
_summarize = msgspec.json.Decoder(Summarize)
_init = msgspec.json.Decoder(Init)


def routes(api: Api, prompting: Prompting) -> None:
    router = api.router
    controller = api.controller

    @router.post("/session/{sessionID}/fork", response_model=None)
    async def fork(request: Request, sessionID: str) -> Response:
        """A new session that begins as a copy of this one, where the agent can. The whole of it: ``messageID`` can
        only be its end.
        """
        session_id = api.session_id(sessionID)
        asked = await api.body(request, _fork, Fork())
        view = await api.view(session_id)
        if asked.messageID is not None:
            _whole(view, asked.messageID)
        return json(api.messages.session(await controller.fork(session_id, by=api.by(request))))

    @router.post("/session/{sessionID}/summarize", response_model=None)
    async def summarize(request: Request, sessionID: str) -> Response:
        """The agent's own command for it, sent as a prompt; answered when its turn has ended."""
        session_id = api.session_id(sessionID)
        asked = await api.body(request, _summarize)
        text = _command(await api.view(session_id), COMPACT, "cannot be asked to summarize its session")
        prompt = Prompt([TextInput(text)], model=ModelInput(asked.providerID, asked.modelID))
        await prompting.answer(session_id, await prompting.admit(request, session_id, prompt))
        return json(True)

    @router.post("/session/{sessionID}/init", response_model=None)
    async def init(request: Request, sessionID: str) -> Response:
        """The agent's own command ``init`` (it writes an AGENTS.md, or what it reads instead), sent as a prompt."""
        session_id = api.session_id(sessionID)
        asked = await api.body(request, _init)
        text = _command(await api.view(session_id), ("init",), "cannot be asked to describe the project")
        prompt = Prompt([TextInput(text)], asked.messageID, ModelInput(asked.providerID, asked.modelID))
        await prompting.answer(session_id, await prompting.admit(request, session_id, prompt))
        return json(True)


def _command(view: SessionView, names: tuple[str, ...], why: str) -> str:
    """The slash command of the session's agent with one of these names. Raises NotSupported."""
    told = view.transcript.commands
    known = {str(c.get("name")) for c in told if isinstance(c, Mapping)} if isinstance(told, list) else set()
    for name in names:
        if name in known:
            return f"/{name}"
    has = "it has said no commands yet: prompt it first" if not known else f"it has: {', '.join(sorted(known)[:20])}"
    wanted = " or ".join(f"/{name}" for name in names)
    raise NotSupported(f"This session's agent {why}: it has no command {wanted} ({has})")


def _whole(view: SessionView, message_id: str) -> None:
    """That a fork up to (and without) this message is one of the whole. Raises NotFound, NotSupported."""
    if any(message_id in (p.id, p.ascending_id) for p in view.pending):
        return
    if view.transcript.step(message_id) is None and view.transcript.user(message_id) is None:
        raise NotFound(f'Message not found: {cut(message_id)}\n  at ["messageID"]')
    raise NotSupported(
        'Agents fork a session as it is now, not up to an earlier message: leave it out\n  at ["messageID"]'
    )
