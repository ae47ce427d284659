"""The OpenCode HTTP API, version 1, in front of the SessionController. What is served: ``docs/opencode.md``."""

from adapters.opencode.errors import error_response
from adapters.opencode.routes import router

__all__ = ["error_response", "router"]
