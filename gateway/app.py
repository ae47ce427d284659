"""The composition root: the only gateway file that imports adapters. It puts the parts together and decides nothing."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response

from adapters.acp.agent import factory as acp_agents
from adapters.acp.routes import error_response as acp_error
from adapters.acp.routes import router as acp_router
from adapters.agui import routes as agui
from adapters.opencode import routes as opencode
from adapters.opencode.errors import error_response as opencode_error
from adapters.pydantic_ai.agent import factory as native_agents
from gateway.agents import AgentConfig, AgentPort, Sink
from gateway.client_calls import ClientCalls
from gateway.commands import Commands
from gateway.controller import SessionController
from gateway.core.model import SessionInfo
from gateway.head_requests import HeadAsGet
from gateway.http_errors import Errors, Renderer, install, render_default
from gateway.log import SessionLog
from gateway.metrics import MeasuredStore, Metrics
from gateway.reaper import reap
from gateway.residents import Options
from gateway.security import HEALTH, Guard
from gateway.settings import Settings
from gateway.spawn import environment

log = structlog.get_logger("app")

STORE_NAME = "trunkline.db"
RUN_DIR = "run"  # of the data folder: a record for each running agent process


@dataclass(frozen=True, slots=True)
class Adapter:
    """What one protocol brings: its routes, and its form of an error for the paths under ``prefix``."""

    prefix: str
    router: APIRouter
    error_response: Renderer


def create_app(settings: Settings) -> FastAPI:
    """The gateway as an ASGI application. Its lifespan opens the store, brings back what was unfinished, and ends the
    agents. ``app.state``: ``settings``, ``metrics``, ``errors``, and ``shutdown``, an asyncio.Event that is set when
    the server is to stop, so that open streams end (``adapters/sse.py`` watches it).
    """
    errors = Errors()
    app = FastAPI(
        title="Trunkline",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        middleware=[Middleware(Guard, settings=settings, errors=errors), Middleware(HeadAsGet)],
    )
    app.state.settings = settings
    app.state.errors = errors
    app.state.metrics = metrics = Metrics()
    app.state.shutdown = asyncio.Event()
    install(app, errors)

    @app.get(HEALTH)
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/metrics")
    async def measured() -> Response:
        return metrics.response()

    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    async with AsyncExitStack() as stack:
        metrics: Metrics = app.state.metrics
        store = MeasuredStore.open(f"sqlite:///{settings.data / STORE_NAME}")
        store.metrics = metrics
        stack.push_async_callback(store.close)
        events = SessionLog(store.epoch, max_subscribers=settings.max_subscribers)
        stack.callback(events.close)
        run_dir = settings.data / RUN_DIR
        ended = reap(run_dir)
        if ended:
            log.warning("ended what an earlier gateway left running", processes=ended)
        clients = ClientCalls()
        processes, natives = acp_agents(run_dir, settings.workspace, clients), native_agents(settings.data)
        stack.push_async_callback(processes.close)
        stack.push_async_callback(natives.close)

        def ports(config: AgentConfig, info: SessionInfo, sink: Sink) -> AgentPort:
            return (natives if config.python else processes)(config, info, sink)

        agents = settings.agents
        options = Options(settings.on_restart, settings.idle_unload, settings.max_sessions, settings.max_pending)
        controller = SessionController(
            store,
            events,
            agents,
            ports,
            default_agent=settings.first_agent(),
            options=options,
            clients=clients,
            logins=processes.logins,
            commands=Commands(environment(os.environ, (), {}), run_dir) if settings.shell else None,
        )
        stack.push_async_callback(controller.close)
        app.state.controller = controller
        metrics.sessions_loaded.set_function(lambda: len(controller.live))
        metrics.sessions_busy.set_function(lambda: len(controller.busy()))
        metrics.subscribers.set_function(lambda: events.subscribers)
        for adapter in _adapters(controller, settings):
            app.state.errors.register(adapter.prefix, adapter.error_response)
            app.router.routes.extend(adapter.router.routes)  # as they are: to include a router builds each anew
        await controller.start()
        controller.tasks.start(_end_waits(app.state.shutdown, controller), name="end waits")
        log.debug("ready", store=str(store.path), agents=list(agents))
        try:
            yield
        finally:
            app.state.shutdown.set()  # a server that did not say so itself (a test, another ASGI server)


async def _end_waits(shutdown: asyncio.Event, controller: SessionController) -> None:
    """Requests that wait for a turn are answered at a shutdown, instead of being cut off after the grace."""
    await shutdown.wait()
    controller.end_waits()


def _adapters(controller: SessionController, settings: Settings) -> list[Adapter]:
    return [
        Adapter("", opencode.router(controller, settings), opencode_error),
        Adapter("/acp", acp_router(controller, settings), acp_error),
        Adapter("/agui", agui.router(controller, settings), render_default),
    ]
