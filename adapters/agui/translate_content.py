"""AG-UI message parts → content blocks of the core, and back. Pure.

The agent's promptCapabilities are known only at its own side, which degrades in words what the agent cannot take
(``adapters/acp/translate_content.py``); what no agent of ours has a block for at all is refused here.
"""

import base64
import binascii
from typing import Any
from urllib.parse import unquote_to_bytes

from adapters.agui.wire import Invalid, UserMessage, judge_message
from gateway.core.content import Audio, Block, Content, Image, Other, Resource, ResourceLink, Text

Json = Any
TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml")


def user_content(value: Json, at: str, message_id: str = "-") -> Content:
    """The content of a user message as it came (a string, or parts). Raises Invalid with the place under ``at``."""
    if isinstance(value, list):
        value = [modern(part) for part in value]
    judged = judge_message({"id": message_id, "role": "user", "content": value}, at)
    return content_of(judged, at)


def modern(part: Json) -> Json:
    """``{type: binary}`` of clients before 1.0 as what it is now."""
    if not isinstance(part, dict) or part.get("type") != "binary":
        return part
    mime = part.get("mimeType")
    kind = str(mime).partition("/")[0]
    source: dict[str, Json]
    if part.get("data") is not None:
        source = {"type": "data", "value": part["data"], "mimeType": mime}
    elif part.get("url") is not None:
        source = {"type": "url", "value": part["url"], "mimeType": mime}
    else:
        source = {"type": "file", "value": part.get("id"), "mimeType": mime}
    named = {"metadata": {"filename": part["filename"]}} if isinstance(part.get("filename"), str) else {}
    return {"type": kind if kind in ("image", "audio", "video") else "document", "source": source, **named}


def content_of(message: UserMessage, at: str) -> Content:
    """The blocks of a message that was judged. Raises Invalid for what cannot be a block, and for an empty message."""
    if isinstance(message.content, str):
        if not message.content:
            raise Invalid([(f"{at}.content", "is empty")])
        return (Text(message.content),)
    if not message.content:
        raise Invalid([(f"{at}.content", "is empty: give at least one part")])
    return tuple(_block(part, f"{at}.content.{index}") for index, part in enumerate(message.content))


def _block(part: Json, at: str) -> Block:
    if part.type == "text":
        return Text(part.text)
    if part.type == "video":
        raise Invalid([(at, "video cannot be sent to these agents (ACP has no such block): send a document or a link")])
    source = part.source
    if source.type == "file":
        raise Invalid([(f"{at}.source", "a provider's file handle means nothing to this agent: send data or a URL")])
    name = _name(part)
    if source.type == "url" and not source.value.startswith("data:"):
        if not source.value:
            raise Invalid([(f"{at}.source.value", "is empty")])
        return ResourceLink(source.value, name or _last(source.value), source.mime_type)
    mime, data = (source.mime_type, source.value) if source.type == "data" else _data_url(source.value, at)
    raw = _bytes(data, f"{at}.source.value")
    if part.type == "image":
        return Image(data, mime)
    if part.type == "audio":
        return Audio(data, mime)
    uri = f"attachment:{name or 'document'}"
    if mime.startswith(TEXT_TYPES):
        try:
            return Resource(uri, text=raw.decode(), mime_type=mime)
        except UnicodeDecodeError:
            pass
    return Resource(uri, blob=data, mime_type=mime)


def _bytes(data: str, at: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid([(at, f"is not base64: {error}")]) from None


def _data_url(url: str, at: str) -> tuple[str, str]:
    head, comma, body = url[5:].partition(",")
    if not comma:
        raise Invalid([(f"{at}.source.value", "is not a data: URL")])
    if head.endswith(";base64"):
        return head.removesuffix(";base64") or "text/plain", body
    return head or "text/plain", base64.b64encode(unquote_to_bytes(body)).decode()


def _name(part: Json) -> str:
    found = part.metadata.get("filename") if isinstance(part.metadata, dict) else None
    return found if isinstance(found, str) else ""


def _last(uri: str) -> str:
    return uri.rstrip("/").rsplit("/", 1)[-1] or uri


# --- back ------------------------------------------------------------------------------------------------------------


def user_value(content: Content) -> Json:
    """The ``content`` of a user message: a string where it is one text, else parts."""
    if all(isinstance(block, Text) for block in content):
        return "\n".join(block.text for block in content if isinstance(block, Text))
    return [_part(block) for block in content]


def _part(block: Block) -> dict[str, Json]:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Image():
            return {"type": "image", "source": {"type": "data", "value": block.data, "mimeType": block.mime_type}}
        case Audio():
            return {"type": "audio", "source": {"type": "data", "value": block.data, "mimeType": block.mime_type}}
        case ResourceLink():
            return {"type": "document", "source": _source("url", block.uri, block.mime_type), **_named(block.name)}
        case Resource():
            mime = block.mime_type or ("text/plain" if block.text is not None else "application/octet-stream")
            data = block.blob or base64.b64encode((block.text or "").encode()).decode()
            return {"type": "document", "source": _source("data", data, mime), **_named(_last(block.uri))}
        case Other():
            return {"type": "text", "text": f"[{_kind(block)}]"}


def _source(kind: str, value: str, mime: str | None) -> dict[str, Json]:
    return {"type": kind, "value": value, **({"mimeType": mime} if mime else {})}


def _named(name: str) -> dict[str, Json]:
    return {"metadata": {"filename": name.removeprefix("attachment:")}}


def words(content: Content) -> str:
    """A message as text alone: blocks that are none by their kind."""
    return "\n".join(block.text if isinstance(block, Text) else f"[{_kind(block)}]" for block in content)


def _kind(block: Block) -> str:
    match block:
        case Image() | Audio():
            return block.mime_type
        case Resource() | ResourceLink():
            return block.uri
        case _:
            raw = getattr(block, "raw", None)
            return str(raw.get("type", "content")) if isinstance(raw, dict) else "content"


def plain(block: Block) -> dict[str, Json]:
    """A block that is not text, as the content of an activity: the shape of ACP."""
    match block:
        case Text():
            made: dict[str, Json] = {"type": "text", "text": block.text}
        case Image():
            made = {"type": "image", "data": block.data, "mimeType": block.mime_type, "uri": block.uri}
        case Audio():
            made = {"type": "audio", "data": block.data, "mimeType": block.mime_type}
        case Resource():
            inner = {"uri": block.uri, "text": block.text, "blob": block.blob, "mimeType": block.mime_type}
            made = {"type": "resource", "resource": {k: v for k, v in inner.items() if v is not None}}
        case ResourceLink():
            made = {"type": "resource_link", "uri": block.uri, "name": block.name, "mimeType": block.mime_type}
            made |= {"title": block.title, "description": block.description, "size": block.size}
        case Other():
            return block.raw if isinstance(block.raw, dict) else {"type": "text", "text": str(block.raw)}
    return {key: value for key, value in made.items() if value is not None}
