"""Content blocks ↔ OpenCode parts of a user's message, and blocks of the agent → parts. Pure.

What a block cannot say on this wire (a file's name, where a mention stood in the text) is kept in its ``meta`` under
``opencode`` and comes back from there.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

import msgspec
from msgspec import UNSET

from adapters.opencode.wire import (
    AgentInput,
    FileInput,
    FilePart,
    Part,
    PartInput,
    ReasoningPart,
    Span,
    SubtaskInput,
    TextInput,
    TextPart,
)
from gateway.core.content import Audio, Block, Content, Image, Other, Resource, ResourceLink, Text
from gateway.core.errors import ClientError, Forbidden, NotSupported

META = "opencode"
SCHEMES = ("file", "http", "https")  # and data


# --- from the wire -------------------------------------------------------------------------------------------------


def content_of(
    parts: Sequence[PartInput],
    allowed: Callable[[str], object],
    load: Callable[[FileInput, str, str], Block | None] | None = None,
) -> tuple[Content, tuple[str, ...]]:
    """The blocks of a prompt's parts, and the part ids that the client gave (empty where it gave none).

    Raises ClientError naming the part's place; ``allowed`` is asked for each path of a ``file:`` URL and raises
    Forbidden. ``load`` gives what is in such a file (the part, its path, its place), None where a link says enough.
    A mention of an OpenCode agent makes no block: the text says it too.
    """
    blocks: list[Block] = []
    ids: list[str] = []
    last = ""
    for index, part in enumerate(parts):
        where = f'["parts"][{index}]'
        match part:
            case TextInput():
                blocks.append(Text(part.text, _meta(synthetic=part.synthetic or None)))
            case FileInput():
                blocks.append(_block(part, where, allowed, load))
            case AgentInput():
                continue
            case SubtaskInput():
                raise NotSupported(f"Subtasks are not offered: the agent starts its own\n  at {where}")
            case _:
                assert_never(part)
        given = part.id or ""
        if given and given <= last:
            raise ClientError(f'Part ids must be different and rise\n  at {where}["id"]')
        last = given or last
        ids.append(given)
    return tuple(blocks), tuple(ids)


def kept_meta(part: FileInput) -> dict[str, Any] | None:
    """What a block that was read from a part's file keeps of it: clients are shown the link, not what it led to."""
    return _meta(filename=part.filename, source=part.source, url=part.url)


def link_of(block: Block) -> str:
    """The ``file:`` URL whose content a block is; empty for any other."""
    return str(_kept(block).get("url") or "")


def _meta(**fields: Any) -> dict[str, Any] | None:
    kept = {key: value for key, value in fields.items() if value is not None}
    return {META: kept} if kept else None


def _block(
    part: FileInput,
    where: str,
    allowed: Callable[[str], object],
    load: Callable[[FileInput, str, str], Block | None] | None,
) -> Block:
    meta = _meta(filename=part.filename, source=part.source)
    scheme = part.url.partition(":")[0].lower()
    if scheme != "data":
        _check(part.url, scheme, where, allowed)
        if scheme == "file" and load is not None:
            loaded = load(part, unquote(urlsplit(part.url).path), where)
            if loaded is not None:
                return loaded
        return ResourceLink(part.url, part.filename or part.url.rsplit("/", 1)[-1], part.mime, meta=meta)
    data = _data(part.url, where)
    kind = part.mime.partition("/")[0]
    if kind == "image":
        return Image(_b64(data), part.mime, meta=meta)
    if kind == "audio":
        return Audio(_b64(data), part.mime, meta=meta)
    uri = f"attachment:///{quote(part.filename or 'file')}"
    if kind == "text" or part.mime == "application/json":
        try:
            return Resource(uri, text=data.decode(), mime_type=part.mime, meta=meta)
        except UnicodeDecodeError:
            pass
    return Resource(uri, blob=_b64(data), mime_type=part.mime, meta=meta)


def _check(url: str, scheme: str, where: str, allowed: Callable[[str], object]) -> None:
    """Whether an agent may be given this link."""
    if ":" not in url or scheme not in SCHEMES:
        raise ClientError(f'Expected a URL, as data:, file:, http: or https:\n  at {where}["url"]')
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ClientError(f'Not a URL: {error}\n  at {where}["url"]') from None
    if any(char < " " or char == "\x7f" for char in url):
        raise ClientError(f'A URL has no control characters\n  at {where}["url"]')
    if scheme != "file":
        return
    if parts.netloc not in ("", "localhost"):
        raise ClientError(f'A file: URL is of this machine: file:///path\n  at {where}["url"]')
    try:
        allowed(unquote(parts.path))
    except Forbidden as error:
        raise Forbidden(f'{error.message}\n  at {where}["url"]', **error.data) from None


def _data(url: str, where: str) -> bytes:
    head, comma, body = url.partition(",")
    if not comma:
        raise ClientError(f'A data: URL needs a comma before its data\n  at {where}["url"]')
    if head.endswith(";base64"):
        try:
            return base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError):
            raise ClientError(f'The data: URL is not valid base64\n  at {where}["url"]') from None
    return unquote_to_bytes(body)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- to the wire ---------------------------------------------------------------------------------------------------


def user_part(block: Block, part_id: str, session_id: str, message_id: str, metadata: dict[str, Any] | None) -> Part:
    """A block of a user's message. ``message_id`` is the id on this wire; ``metadata`` names the real one."""
    extra = metadata or UNSET
    if isinstance(block, Text):
        synthetic = _kept(block).get("synthetic") or UNSET
        return TextPart(part_id, session_id, message_id, block.text, synthetic, metadata=extra)
    return _file(block, part_id, session_id, message_id, metadata)


def agent_part(
    block: Block, part_id: str, session_id: str, step_id: str, created: int, thought: bool, metadata: dict[str, Any]
) -> Part:
    """A block of the agent that came whole."""
    if isinstance(block, Text):
        span = Span(created, created)
        if thought:
            return ReasoningPart(part_id, session_id, step_id, block.text, span, metadata or UNSET)
        return TextPart(part_id, session_id, step_id, block.text, time=span, metadata=metadata or UNSET)
    return _file(block, part_id, session_id, step_id, metadata)


def _kept(block: Block) -> Mapping[str, Any]:
    meta = None if isinstance(block, Other) else block.meta
    kept = meta.get(META) if isinstance(meta, dict) else None
    return kept if isinstance(kept, dict) else {}


def _file(block: Block, part_id: str, session_id: str, message_id: str, metadata: dict[str, Any] | None) -> Part:
    extra = metadata or UNSET
    if isinstance(block, Text):
        return TextPart(part_id, session_id, message_id, block.text, metadata=extra)
    if isinstance(block, Other):
        raw = msgspec.json.encode(block.raw).decode()
        return TextPart(part_id, session_id, message_id, raw, True, metadata=extra)
    mime, url, name = _mime_url_name(block)
    kept = _kept(block)
    url = kept.get("url") or url  # of what was read from a file
    filename = kept.get("filename") or name or UNSET
    return FilePart(part_id, session_id, message_id, mime, url, filename, kept.get("source", UNSET), extra)


def _mime_url_name(block: Image | Audio | Resource | ResourceLink) -> tuple[str, str, str]:
    match block:
        case Image() | Audio():
            return block.mime_type, f"data:{block.mime_type};base64,{block.data}", ""
        case Resource():
            name = block.uri.rstrip("/").rsplit("/", 1)[-1]
            mime = block.mime_type or ("text/plain" if block.text is not None else "application/octet-stream")
            if block.blob is not None:
                return mime, f"data:{mime};base64,{block.blob}", name
            return mime, f"data:{mime};base64,{_b64((block.text or '').encode())}", name
        case ResourceLink():
            return block.mime_type or "application/octet-stream", block.uri, block.name
        case _:
            assert_never(block)
