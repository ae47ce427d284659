"""Permissions and questions: what an agent asks → OpenCode's requests, and a person's reply → the outcome. Pure.

A form maps to questions, one a field; a URL to one question. What a reply's labels cannot say is refused with a
ClientError that names the place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from adapters.opencode import translate_tools
from adapters.opencode.wire import Choice, Permission, Question, QuestionInfo, ToolRef
from gateway.core.errors import ClientError
from gateway.core.model import Accepted, Answered, Cancelled, Declined, Request, Selected

HEADER = 30  # characters of a question's header
YES, NO = "Yes", "No"
OPENED = "Done"
LARGEST = 2**53

_ALLOW = {"once": ("allow_once", "allow_always"), "always": ("allow_always", "allow_once")}


# --- permissions ---------------------------------------------------------------------------------------------------


def permission(request: Request, session_id: str) -> Permission:
    call = _tool_call(request)
    title = str(call.get("title") or request.title or "")
    kind = str(call.get("kind") or "")
    content, locations = call.get("content"), call.get("locations")
    name, given = translate_tools.named(kind, "", title, call.get("rawInput"), content, locations)
    metadata: dict[str, Any] = {"title": request.title, "options": [o.name for o in request.options]}
    if request.description:
        metadata["description"] = request.description
    subject = next((str(given[k]) for k in ("command", "filePath", "pattern", "url") if given.get(k)), title or name)
    if name == "bash":
        metadata["command"] = subject
    if name in ("edit", "write"):
        name = "edit"
        metadata |= {"filepath": subject, "diff": translate_tools.unified(content)}
    always = [subject] if any(o.kind == "allow_always" for o in request.options) else []
    return Permission(request.id, session_id, name, [subject], metadata, always, _tool(request))


def _tool_call(request: Request) -> Mapping[str, Any]:
    raw = request.raw
    call = raw.get("toolCall") if isinstance(raw, dict) else None
    return call if isinstance(call, dict) else {}


def _tool(request: Request) -> Any:
    return ToolRef(request.step_id, request.call_id) if request.step_id and request.call_id else UNSET


def outcome(request: Request, reply: str, message: str) -> Answered:
    """``once``, ``always`` or ``reject`` as one of the agent's own options. ``always`` falls back to once, and once
    to always where the agent offers nothing less.
    """
    if reply == "reject":
        return Declined(message)
    kinds = {option.kind: option.id for option in reversed(request.options)}
    for kind in _ALLOW[reply]:
        if kind in kinds:
            return Selected(kinds[kind], message)
    foreign = [option for option in request.options if not option.kind.startswith("reject")]
    if foreign:
        return Selected(foreign[0].id, message)
    raise ClientError(f'This request has no option that allows it\n  at ["reply"], got {reply!r}')


def reply_of(answered: Answered, option_kind: str) -> str:
    """What other clients are told of an answer."""
    if isinstance(answered, Selected) and not option_kind.startswith("reject"):
        return "always" if option_kind == "allow_always" else "once"
    return "reject"


# --- questions -----------------------------------------------------------------------------------------------------


def question(request: Request, session_id: str) -> Question:
    if request.url:
        what = QuestionInfo(
            f"{request.title}\n{request.url}".strip(), "Open a page", [Choice(OPENED, "I have finished there")]
        )
        return Question(request.id, session_id, [what], _tool(request))
    infos = [_info(request, name, field) for name, field in fields(request)]
    if not infos:
        infos = [QuestionInfo(request.title or "Go on?", "Confirm", [Choice(YES, "Go on")])]
    return Question(request.id, session_id, infos, _tool(request))


def fields(request: Request) -> list[tuple[str, Mapping[str, Any]]]:
    """The fields of a form, in their order."""
    properties = request.schema.get("properties") if isinstance(request.schema, dict) else None
    if not isinstance(properties, dict):
        return []
    return [(name, field if isinstance(field, dict) else {}) for name, field in properties.items()]


def _info(request: Request, name: str, field: Mapping[str, Any]) -> QuestionInfo:
    label = str(field.get("title") or name)
    text = str(field.get("description") or "") or (request.title if len(fields(request)) == 1 else "") or label
    many = field.get("type") == "array"
    options = [Choice(shown, description) for shown, _, description in choices(field)]
    return QuestionInfo(text, label[:HEADER], options, many or UNSET, UNSET if not options else False)


def choices(field: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """The choices of a field: label, value, description."""
    if field.get("type") == "boolean":
        return [(YES, True, ""), (NO, False, "")]
    items = field.get("items")
    source = items if field.get("type") == "array" and isinstance(items, dict) else field
    found: list[tuple[str, Any, str]] = []
    for entry in _list(source.get("oneOf")) or _list(source.get("anyOf")):
        if isinstance(entry, dict) and "const" in entry:
            value, description = entry["const"], str(entry.get("description") or "")
            found.append((str(entry.get("title") or value), value, description))
    names = source.get("enumNames")
    for index, value in enumerate(_list(source.get("enum"))):
        named = names[index] if isinstance(names, list) and index < len(names) else value
        found.append((str(named), value, ""))
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def answers(request: Request, given: Sequence[Sequence[str]]) -> Accepted:
    """The form's content of a reply's labels, one list a question. An empty list leaves an optional field out."""
    asked = fields(request)
    if request.url or not asked:
        return Accepted({} if asked or request.schema is not None else None)
    if len(given) != len(asked):
        raise ClientError(f'Expected {len(asked)} answers, got {len(given)}\n  at ["answers"]')
    schema = request.schema if isinstance(request.schema, dict) else {}
    required = _list(schema.get("required"))
    content: dict[str, Any] = {}
    for index, (name, field) in enumerate(asked):
        where = f'["answers"][{index}]'
        labels = list(given[index])
        if not labels:
            if name in required:
                raise ClientError(f"{name!r} must be answered\n  at {where}")
            continue
        values = [_value(field, label, where) for label in labels]
        if field.get("type") == "array":
            content[name] = values
        elif len(values) > 1:
            raise ClientError(f"Expected one answer, got {len(values)}\n  at {where}")
        else:
            content[name] = values[0]
    return Accepted(content)


def _value(field: Mapping[str, Any], label: str, where: str) -> Any:
    known = choices(field)
    for shown, value, _ in known:
        if label in (shown, value):
            return value
    if known:
        names = " | ".join(repr(shown) for shown, _, _ in known)
        raise ClientError(f"Expected {names}, got {label!r}\n  at {where}")
    kind = field.get("type")
    if kind not in ("integer", "number"):
        return label
    try:
        number = int(label) if kind == "integer" else float(label)
        if abs(number) <= LARGEST:  # not a number is not below it either
            return number
    except ValueError:
        pass
    raise ClientError(f"Expected {kind}, got {label[:80]!r}\n  at {where}")


def labels(answered: Accepted) -> list[list[str]]:
    """What other clients are told of an answered form: its values as texts, one list a field."""
    if not isinstance(answered.content, dict):
        return []
    return [[_label(v) for v in (value if isinstance(value, list) else [value])] for value in answered.content.values()]


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return YES if value else NO
    return str(value)


def accepted(answered: Answered) -> bool:
    match answered:
        case Accepted():
            return True
        case Selected() | Declined() | Cancelled():
            return False
