"""What an agent asks of a person → interrupts; ``resume`` entries → answers. Pure."""

from typing import Any

from adapters.agui.translate_names import tool_id
from adapters.agui.wire import Invalid, Json, ResumeEntry
from gateway.core.ids import SessionId
from gateway.core.model import Accepted, Answered, Cancelled, Declined, Option, Request, Selected
from gateway.core.transcript import Transcript

ALLOW = ("allow_once", "allow_always")


def interrupt(request: Request, transcript: Transcript, session_id: SessionId | None, modern: bool) -> dict[str, Json]:
    """``session_id``: of a subagent, whose request it is."""
    made: dict[str, Json] = {"id": request.id, "message": request.title or request.description or "Permission needed"}
    acp: dict[str, Json] = {"kind": request.kind}
    if request.description:
        acp["description"] = request.description
    if request.kind == "permission":
        made["reason"] = "tool_call" if request.call_id else "permission"
        made["responseSchema"] = _permission_schema(request.options)
        acp["options"] = [{"optionId": o.id, "name": o.name, "kind": o.kind} for o in request.options]
    else:
        made["reason"] = "input_required"
        if request.url:
            acp["url"] = request.url
        made["responseSchema"] = request.schema if isinstance(request.schema, dict) else {"type": "object"}
    call = transcript.tool(request.call_id) if request.call_id else None
    if call is not None:
        made["toolCallId"] = tool_id(call, session_id)
    if session_id is not None and modern:
        made["subagentRunId"] = session_id
    made["metadata"] = {"acp": acp}
    return made


def _permission_schema(options: tuple[Option, ...]) -> dict[str, Json]:
    properties: dict[str, Json] = {"approved": {"type": "boolean"}}
    if options:
        properties["optionId"] = {"type": "string", "enum": [o.id for o in options]}
    return {"type": "object", "properties": properties, "required": ["approved"]}


def answer_of(entry: ResumeEntry, request: Request, steered_away: bool, at: str) -> Answered:
    """The answer that a resume entry gives to an open request. Raises Invalid for a payload that is none.

    ``steered_away``: a new message came with it; the turn is cancelled then, and the request with it.
    """
    if entry.status == "cancelled":
        return Cancelled("client") if steered_away or request.kind != "permission" else Declined()
    if request.kind != "permission":
        return _filled(entry.payload, request, f"{at}.payload")
    option_id, approved, reason = _said(entry.payload, f"{at}.payload")
    if option_id is not None:
        if option_id not in [o.id for o in request.options]:
            raise Invalid([(f"{at}.payload.optionId", f"{option_id!r} is none of {[o.id for o in request.options]}")])
        return Selected(option_id, reason)
    if not approved:
        return Declined(reason)
    allowed = {o.kind: o.id for o in reversed(request.options) if o.kind in ALLOW}
    found = allowed.get("allow_once") or allowed.get("allow_always")
    if found is None:
        names = [o.id for o in request.options]
        raise Invalid([(f"{at}.payload", f"this request has no option that allows: give an optionId of {names}")])
    return Selected(found, reason)


def _said(payload: Json, at: str) -> tuple[str | None, bool | None, str]:
    if isinstance(payload, bool):
        return None, payload, ""
    if isinstance(payload, dict):
        option_id, approved, reason = payload.get("optionId"), payload.get("approved"), payload.get("reason")
        if option_id is not None and not isinstance(option_id, str):
            raise Invalid([(f"{at}.optionId", "must be a string")])
        if approved is not None and not isinstance(approved, bool):
            raise Invalid([(f"{at}.approved", "must be true or false")])
        if option_id is not None or approved is not None:
            return option_id, approved, reason if isinstance(reason, str) else ""
    raise Invalid([(at, "give {approved: true | false} or {optionId}")])


def _filled(payload: Json, request: Request, at: str) -> Answered:
    if isinstance(payload, dict) and payload.get("approved") is False and "approved" not in _fields(request):
        return Declined(payload["reason"] if isinstance(payload.get("reason"), str) else "")
    if request.url:
        return Accepted()
    if not isinstance(payload, dict):
        raise Invalid([(at, "must be an object with the fields that the request's schema names")])
    missing = [name for name in _required(request) if name not in payload]
    if missing:
        raise Invalid([(at, f"lacks {', '.join(missing)}, which the request's schema requires")])
    return Accepted(payload)


def _fields(request: Request) -> dict[str, Any]:
    found = request.schema.get("properties") if isinstance(request.schema, dict) else None
    return found if isinstance(found, dict) else {}


def _required(request: Request) -> list[str]:
    found = request.schema.get("required") if isinstance(request.schema, dict) else None
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def same(entry: ResumeEntry, outcome: Answered, option_kind: str) -> bool:
    """Whether an entry says what was answered already: then it is the same resume once more."""
    if isinstance(outcome, Accepted):
        return outcome.content is None or bool(entry.payload == outcome.content)
    allowed = isinstance(outcome, Selected) and not option_kind.startswith("reject")
    payload = entry.payload
    if isinstance(payload, dict) and payload.get("optionId") is not None:
        return isinstance(outcome, Selected) and outcome.option_id == payload["optionId"]
    approved = payload.get("approved") if isinstance(payload, dict) else payload
    return isinstance(approved, bool) and approved == allowed


def told(outcome: Answered, option_kind: str) -> str:
    """What was answered, in words for whoever comes too late."""
    match outcome:
        case Selected():
            return f"option {outcome.option_id!r}" + (f" ({option_kind})" if option_kind else "")
        case Accepted():
            return "filled in"
        case Declined():
            return "declined"
        case Cancelled():
            return f"cancelled ({outcome.why or 'by a client'})"
