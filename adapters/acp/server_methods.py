"""The methods of ACP that a client may call: each decodes, asks the controller, and answers. Both versions."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from adapters.acp import rpc
from adapters.acp import translate_server_calls as calls
from adapters.acp import translate_server_v1 as v1
from adapters.acp import translate_server_v2 as v2
from adapters.acp.server_feed import Feed
from adapters.acp.translate_server import mode_ids, option_id, option_values
from adapters.acp.translate_server_calls import Refused, invalid
from gateway.agents import AgentConfig, Logins
from gateway.core import events as ev
from gateway.core.errors import GatewayError, NotFound, NotRunning, NotSupported
from gateway.core.ids import MessageId, SessionId
from gateway.core.model import SessionInfo
from gateway.paths import confine
from gateway.views import SessionView

if TYPE_CHECKING:
    from adapters.acp.server import Call, Connection

Json = dict[str, Any]
Handler = Callable[[Json, "Call"], Awaitable[Json | None]]
CLOSING = 15.0  # seconds that session/close waits for the agent to end a cancelled turn


class Methods:
    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.server = connection.server
        self.controller = connection.server.controller
        one, both = connection.protocol == 1, True
        # name: (handler, in the order of the messages, on this version, it brings a session to the connection)
        table: dict[str, tuple[Handler, bool, bool, bool]] = {
            "session/prompt": (self.prompt, True, both, False),
            "session/inject": (self.inject, True, both, False),
            "session/new": (self.new, False, both, True),
            "session/fork": (self.fork, False, both, True),
            "session/load": (self.load, False, one, True),
            "session/resume": (self.resume, False, both, True),
            "session/list": (self.list, False, both, False),
            "session/close": (self.close, False, both, False),
            "session/delete": (self.delete, False, both, False),
            "session/set_mode": (self.set_mode, False, one, False),
            "session/set_config_option": (self.set_config_option, False, both, False),
            "session/revoke_inject": (self.revoke_inject, False, both, False),
            "session/replace_inject": (self.replace_inject, False, both, False),
            "tool_call/cancel": (self.cancel_tool_call, False, not one, False),
            "terminal/cancel": (self.cancel_terminal, False, not one, False),
            "_session/steering": (self.steering, False, both, False),
            "authenticate": (self.login, False, one, False),
            "logout": (self.logout, False, one, False),
            "auth/login": (self.login, False, not one, False),
            "auth/logout": (self.logout, False, not one, False),
        }
        self._table = {name: row for name, row in table.items() if row[2]}

    def find(self, method: str) -> tuple[Handler, bool, bool]:
        """The handler, whether it runs in order, whether it brings a session. Refused for an unknown method."""
        row = self._table.get(method)
        if row is None:
            raise Refused(rpc.METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})
        return row[0], row[1], row[3]

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def new(self, params: Json, call: "Call") -> Json | None:
        """The agent is started now: its modes and options are in the answer, and whether it wants a login."""
        cwd = self._cwd(params)
        servers = self._servers(params)
        agent = self._agent(params)
        by = self.connection.by()
        info = await self.controller.create(cwd=cwd, agent=agent, mcp_servers=servers, by=by)
        try:
            view = await self.controller.wake(info.id, by=by)
        except (GatewayError, asyncio.CancelledError):
            await asyncio.shield(self.controller.delete(info.id, by=by))
            raise
        await self._begin(view, call)
        return None

    async def fork(self, params: Json, call: "Call") -> Json | None:
        """A copy of a session, here and at its agent. Nothing is replayed: the client has the history, or loads it."""
        info = await self._session(params)
        cwd, servers, by = self._cwd(params), self._servers(params), self.connection.by()
        forked = await self.controller.fork(info.id, cwd=cwd, mcp_servers=servers, by=by)
        await self._begin(await self.controller.view(forked.id), call)
        return None

    async def _begin(self, view: SessionView, call: "Call") -> None:
        """Open the feed of a session that is new, and answer with its state."""
        info = view.info
        feed = self.connection.feed(info.id)

        async def respond() -> None:
            result = {"sessionId": info.id, **self._state(view)}
            await self.connection.respond(call.id, result, "", True)
            if view.transcript.commands is not None and self.connection.protocol == 1:
                await feed.tell(info.id, v1.commands(view.transcript.commands))

        await self._open(feed, whole=False, snapshot=False, respond=respond)

    async def load(self, params: Json, call: "Call") -> Json | None:
        return await self._join(params, call, whole=True)

    async def resume(self, params: Json, call: "Call") -> Json | None:
        cursor = params.get("replayFrom")
        if self.connection.protocol == 1 or cursor is None:
            return await self._join(params, call, whole=False)
        if not isinstance(cursor, dict) or cursor.get("type") != "start":
            raise invalid("replayFrom: only {'type': 'start'} is known", field="replayFrom")
        return await self._join(params, call, whole=True)

    async def _join(self, params: Json, call: "Call", whole: bool) -> Json | None:
        info = await self._session(params)
        feed = self.connection.feed(info.root_id)

        async def respond() -> None:
            view = await self.controller.view(info.id)
            # The id is for HTTP clients that open a session's stream only when an answer names it.
            result = {"sessionId": info.id, **self._state(view)}
            await self.connection.respond(call.id, result, info.id, True)

        await self._open(feed, whole=whole, snapshot=True, respond=respond)
        return None

    async def list(self, params: Json, call: "Call") -> Json:
        cursor, cwd = params.get("cursor"), params.get("cwd")
        for name, value in (("cursor", cursor), ("cwd", cwd)):
            if value is not None and not isinstance(value, str):
                raise invalid(f"{name} must be a string", field=name)
        archived = {"include": None, "only": True}.get(str(params.get("archived")), False)
        found = await self.controller.sessions(roots=True, cwd=cwd, archived=archived)
        if self.connection.agent:
            found = [info for info in found if info.agent == self.connection.agent]
        return calls.page(found, cursor)

    async def close(self, params: Json, call: "Call") -> Json:
        """Work is cancelled first, unless another client follows the session: one leaving disturbs nobody."""
        info = await self._session(params)
        feed = self.connection.feeds.get(info.root_id)
        if feed is None:
            return {}
        others = [c for c in self.server.holders(info.root_id) if c is not self.connection]
        if len(feed.tickets) or not others:
            await self.controller.abort(info.root_id, by=self.connection.by())
            with suppress(TimeoutError):  # then the agent is killed; who waits is answered by that
                await self.controller.wait(info.root_id, timeout=CLOSING)
        await feed.caught_up()
        await feed.tickets.abandon()
        await self.connection.leave(info.root_id)
        if not others:
            await self.controller.unload(info.root_id)  # its agent ends, if nothing goes on
        return {}

    async def delete(self, params: Json, call: "Call") -> Json:
        session_id = SessionId(calls.text(params, "sessionId"))
        try:
            info = await self._session(params)
            await self.controller.delete(info.id, by=self.connection.by())
        except (NotFound, Refused) as error:
            if isinstance(error, Refused) and error.code != rpc.NOT_FOUND:
                raise
            return {}
        feed = self.connection.feeds.get(session_id)
        if feed is not None:
            await feed.caught_up()
            await self.connection.leave(session_id)
        return {}

    async def login(self, params: Json, call: "Call") -> Json:
        """To the agent. ``_meta`` goes with it, and may hold a key: it is not logged."""
        method_id = calls.text(params, "methodId")
        logins, config = self._logins(params)
        meta = params.get("_meta")
        meta = {k: v for k, v in meta.items() if k != "trunkline"} if isinstance(meta, dict) else None
        await logins.login(config, method_id, meta or None)
        return {}

    async def logout(self, params: Json, call: "Call") -> Json:
        logins, config = self._logins(params)
        await logins.logout(config)
        return {}

    def _logins(self, params: Json) -> tuple[Logins, AgentConfig]:
        agent = self._agent(params)
        config = self.controller.agents.get(agent)
        if config is None:
            names = ", ".join(self.controller.agents)
            raise invalid(f"no agent {agent!r} (there are: {names})", field="_meta.trunkline.agent")
        if self.controller.logins is None:
            raise NotSupported("this gateway has no agents that one could log in to")
        return self.controller.logins, config

    # --- prompts -----------------------------------------------------------------------------------------------------

    async def prompt(self, params: Json, call: "Call") -> None:
        """Answered by the feed: at the end of the turn (v1), when it was inserted (v2)."""
        content = calls.content(params, "prompt")
        feed = await self._attach(params)
        ticket = feed.tickets.add(call.id, "prompt")
        try:
            admission = await self.controller.submit(
                feed.root_id, content, delivery="queue", on_abort="revoke", by=self.connection.by(ticket.tag)
            )
        except BaseException:
            feed.tickets.drop(ticket)
            raise
        feed.tickets.admitted(ticket, admission.message_id)

    async def cancel(self, params: Json) -> None:
        info = await self._session(params)
        await self.controller.abort(info.id, by=self.connection.by())

    async def cancel_tool_call(self, params: Json, call: "Call") -> Json:
        """Answered when it was passed on; what came of it is in the updates."""
        info = await self._session(params)
        await self.controller.cancel_work(
            info.id, "tool_call", calls.text(params, "toolCallId"), by=self.connection.by()
        )
        return {}

    async def cancel_terminal(self, params: Json, call: "Call") -> Json:
        info = await self._session(params)
        name = calls.text(params, "terminalId")
        view = await self.controller.view(info.id)
        if not v2.can_cancel_terminal(view.transcript, name):
            raise Refused(rpc.METHOD_NOT_FOUND, f"the agent does not offer to cancel {name}", {"terminalId": name})
        await self.controller.cancel_work(info.id, "terminal", name, by=self.connection.by())
        return {}

    async def inject(self, params: Json, call: "Call") -> Json:
        """Answered when it is stored. Source: ACP RFD #1261, codes of schema PR #2043."""
        mode = calls.inject_mode(params)
        content = calls.content(params, "content")
        feed = await self._attach(params)
        admission = await self.controller.submit(
            feed.root_id,
            content,
            delivery="steer" if mode == "steer" else "queue",
            if_idle="refuse" if mode == "steer" else "start",
            on_abort="keep",
            by=self.connection.by(),
        )
        return {"messageId": admission.message_id}

    async def revoke_inject(self, params: Json, call: "Call") -> Json:
        info = await self._session(params)
        message_id = MessageId(calls.text(params, "messageId"))
        found = await self.controller.revoke(info.id, message_id, by=self.connection.by())
        return calls.verdict(found, "revoked")

    async def replace_inject(self, params: Json, call: "Call") -> Json:
        info = await self._session(params)
        message_id = MessageId(calls.text(params, "messageId"))
        content = calls.content(params, "content")
        found = await self.controller.replace(info.id, message_id, content, by=self.connection.by())
        return calls.verdict(found, "replaced")

    async def steering(self, params: Json, call: "Call") -> Json | None:
        """``_session/steering`` of claude-agent-acp and codex-acp; the outcome is told when it is known."""
        content = calls.content(params, "prompt")
        meta = params.get("_meta")
        steering = meta.get("steering") if isinstance(meta, dict) else None
        idle = steering.get("idleBehavior") if isinstance(steering, dict) else None
        if idle not in (None, "promptRequired"):
            raise invalid(f"unknown idleBehavior {idle!r}", field="_meta.steering.idleBehavior")
        feed = await self._attach(params)
        ticket = feed.tickets.add(call.id, "steer")
        try:
            admission = await self.controller.submit(
                feed.root_id,
                content,
                delivery="steer",
                if_idle="refuse" if idle else "start",
                on_abort="revoke",
                by=self.connection.by(ticket.tag),
            )
        except NotRunning:
            feed.tickets.drop(ticket)
            return {"outcome": "promptRequired", "reason": "noRunningTurn"}
        except BaseException:
            feed.tickets.drop(ticket)
            raise
        feed.tickets.admitted(ticket, admission.message_id)
        return None

    # --- modes and options -------------------------------------------------------------------------------------------

    async def set_mode(self, params: Json, call: "Call") -> Json:
        mode = calls.text(params, "modeId")
        feed = await self._attach(params)
        view = await self.controller.wake(feed.root_id, by=self.connection.by())
        await self._set_mode(feed, view, mode)
        return {}

    async def _set_mode(self, feed: Feed, view: SessionView, mode: str) -> None:
        known = mode_ids(view.transcript.modes)
        if mode not in known:
            raise invalid(f"mode {mode!r} is not offered (there are: {', '.join(known) or 'none'})", field="modeId")
        if view.transcript.mode == mode:
            return
        told = feed.listen(lambda r: r.session_id == feed.root_id and isinstance(r.event, ev.ModesUpdated))
        await self.controller.update(feed.root_id, mode=mode, by=self.connection.by())
        await self._heard(told, view)
        if (await self.controller.view(feed.root_id)).transcript.mode != mode:
            raise Refused(rpc.INTERNAL, f"the agent did not take the mode {mode!r}")

    async def set_config_option(self, params: Json, call: "Call") -> Json:
        config_id, value = calls.text(params, "configId"), params.get("value")
        feed = await self._attach(params)
        view = await self.controller.wake(feed.root_id, by=self.connection.by())
        options = v1.config(view.transcript.config)
        option = next((o for o in options if option_id(o) == config_id), None)
        if option is None and config_id == v2.MODE and mode_ids(view.transcript.modes):
            await self._set_mode(feed, view, str(value))
            return await self._options(feed)
        if option is None:
            raise invalid(f"no option {config_id!r}", field="configId")
        values = option_values(option)
        if not isinstance(value, bool if values is None else str) or (values is not None and value not in values):
            offered = "true, false" if values is None else ", ".join(values)
            raise invalid(f"{value!r} is no value of {config_id!r} (there are: {offered})", field="value")
        if option.get("currentValue") != value:
            told = feed.listen(lambda r: r.session_id == feed.root_id and isinstance(r.event, ev.ConfigUpdated))
            await self.controller.update(feed.root_id, config=(config_id, value), by=self.connection.by())
            await self._heard(told, view)
            options = v1.config((await self.controller.view(feed.root_id)).transcript.config)
            if not any(option_id(o) == config_id and o.get("currentValue") == value for o in options):
                raise Refused(rpc.INTERNAL, f"the agent did not take {value!r} for {config_id!r}")
        return await self._options(feed)

    async def _options(self, feed: Feed) -> Json:
        transcript = (await self.controller.view(feed.root_id)).transcript
        options = v1.config(transcript.config) if self.connection.protocol == 1 else v2.config(transcript)
        return {"configOptions": options}

    async def _heard(self, told: "asyncio.Future[ev.Record]", view: SessionView) -> None:
        config = self.controller.agents.get(view.info.agent)
        try:
            async with asyncio.timeout((config.request_timeout if config else 30.0) + 5):
                await told
        except TimeoutError:
            raise Refused(rpc.INTERNAL, "the agent did not answer in time") from None

    # --- reading params ----------------------------------------------------------------------------------------------

    def _cwd(self, params: Json) -> str:
        return str(confine(calls.text(params, "cwd"), self.server.roots))

    def _servers(self, params: Json) -> Any:
        if self.connection.protocol == 1 and not isinstance(params.get("mcpServers"), list):
            raise invalid("mcpServers must be a list, empty if there are none", field="mcpServers")
        return calls.mcp_servers(params)

    def _agent(self, params: Json) -> str:
        """The endpoint's agent, else what ``_meta.trunkline.agent`` names, else the default."""
        meta = params.get("_meta")
        own = meta.get("trunkline") if isinstance(meta, dict) else None
        named = own.get("agent") if isinstance(own, dict) else None
        asked = named if isinstance(named, str) else ""
        if self.connection.agent and asked not in ("", self.connection.agent):
            raise invalid(f"this endpoint is for the agent {self.connection.agent!r}", field="_meta.trunkline.agent")
        return self.connection.agent or asked or self.controller.default_agent

    async def _session(self, params: Json) -> SessionInfo:
        """The session that params name. -32002 for an unknown one, and for one of another endpoint's agent."""
        session_id = SessionId(calls.text(params, "sessionId"))
        info = (await self.controller.view(session_id)).info
        if self.connection.agent and info.agent not in ("", self.connection.agent):
            raise NotFound(f"Session not found: {session_id}", session_id=session_id)
        return info

    async def _attach(self, params: Json) -> Feed:
        """The feed of the named session, opened now if the client did not load it."""
        info = await self._session(params)
        if info.parent_id is not None:
            raise invalid(f"{info.id} is a session of a subagent: send to its parent", field="sessionId")
        feed = self.connection.feeds.get(info.root_id)
        if feed is None:
            feed = self.connection.feed(info.root_id)
            await self._open(feed, whole=False, snapshot=False)
        await feed.standing.wait()
        return feed

    async def _open(
        self, feed: Feed, *, whole: bool, snapshot: bool, respond: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Open a feed; one that cannot be (too many subscribers, a session deleted meanwhile) is not left half open."""
        try:
            await feed.open(whole=whole, snapshot=snapshot, respond=respond)
        except GatewayError:
            await self.connection.leave(feed.root_id)
            raise

    def _state(self, view: SessionView) -> Json:
        made = v1.session_state if self.connection.protocol == 1 else v2.session_state
        return made(view.transcript)
