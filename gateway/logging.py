"""Logs go to stderr, as lines for people or as JSON. Tokens never get into them.

Named like the standard library's module, which it configures: inside the package absolute imports keep them apart.
"""

import logging
import re
import sys
from collections.abc import Iterable, MutableMapping
from typing import Any

import structlog

SECRET_KEY = re.compile(r"token|secret|password|passwd|authorization|cookie|api_?key|credential", re.IGNORECASE)
HIDDEN = "***"

# Chatty, and at debug level they write what streams carry.
QUIET = ("sse_starlette", "asyncio", "httpcore", "httpx", "alembic", "sqlalchemy", "uvicorn.access")


def configure(level: str, form: str, secrets: Iterable[str] = ()) -> None:
    """``level``: debug to error. ``form``: console or json. ``secrets``: texts that are hidden wherever they occur."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_keys,
    ]
    last: list[Any]
    if form == "json":
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # Plain tracebacks: the pretty ones show local variables, and so secrets.
        plain = structlog.dev.plain_traceback
        last = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Hiding(formatter, secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    # uvicorn tells its own start and end at info; ours are enough.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))


def hide_keys(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values whose key says that they are secret, however deep."""
    for key, value in event.items():
        event[key] = _hidden(key, value)
    return event


def _hidden(key: str, value: Any) -> Any:
    if key != "event" and SECRET_KEY.search(key):
        return HIDDEN
    if isinstance(value, dict):
        return {str(inner): _hidden(str(inner), item) for inner, item in value.items()}
    return value


class _Hiding(logging.Formatter):
    """The last net: whatever wrote the line, a token's text is not in it."""

    def __init__(self, inner: logging.Formatter, secrets: Iterable[str]) -> None:
        super().__init__()
        self._inner = inner
        self._secrets = sorted((text for text in secrets if text), key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        text = self._inner.format(record)
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text
