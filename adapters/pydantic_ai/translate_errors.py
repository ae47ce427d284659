"""What a run raised, as the end of a turn: an outcome, and an error if it is one. Pure."""

import re

from adapters.pydantic_ai import wire
from gateway.core.model import Error, Outcome

# "Set the `OPENAI_API_KEY` environment variable …" of a provider without a key
NO_KEY = re.compile(r"[Ss]et the `?[A-Z][A-Z0-9_]*(KEY|TOKEN|CREDENTIALS)[A-Z0-9_]*`? environment variable|api_key")


def ended(error: BaseException, cancelled: bool) -> tuple[Outcome, Error | None]:
    """The outcome of a run that raised. ``cancelled``: it was asked to stop."""
    match error:
        case wire.RunTimedOut():
            return "error", Error("agent_timeout", "the run took longer than its timeout")
        case wire.RunCancelled():
            return "cancelled", None
        case wire.UsageLimitExceeded():
            tokens = "_tokens_limit" in str(error) or "cost_limit" in str(error)
            return ("max_tokens" if tokens else "max_turn_requests"), None
        case wire.OutputTokenLimitExceeded():
            return "max_tokens", None
        case wire.ContentFilterError():
            return "refusal", None
    if cancelled:
        return "cancelled", None
    return "error", failure(error)


def finished(reason: str | None) -> Outcome:
    """The outcome of a run that ended by itself; ``reason``: the last response's finish reason."""
    match reason:
        case "length":
            return "max_tokens"
        case "content_filter":
            return "refusal"
    return "end_turn"


def failure(error: BaseException) -> Error:
    """Any exception of an agent, as people see it."""
    words = str(error) or type(error).__name__
    data: dict[str, object] = {"type": type(error).__name__}
    if isinstance(error, wire.ModelHTTPError):
        data["status"] = error.status_code
        if error.status_code in (401, 403):
            return Error("auth_required", words, data)
    if isinstance(error, wire.ModelAuthenticationError):
        return Error("auth_required", words, data)
    if isinstance(error, wire.UserError) and NO_KEY.search(words):
        return Error("auth_required", words, data)
    if type(error).__module__.partition(".")[0] != "pydantic_ai":
        words = f"{type(error).__name__}: {words}" if str(error) else words
    return Error("agent_error", words, data)
