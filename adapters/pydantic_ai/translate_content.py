"""Content both ways: the core's blocks as what a run takes, and what a model or a tool made as the core's blocks.

Pure, and raises nothing: what a run cannot take is told to the model in words.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from adapters.pydantic_ai import wire
from gateway.core import content as blocks
from gateway.core.content import Block, Content

Json: TypeAlias = Any

TEXT_TYPES = ("application/json", "application/xml", "application/javascript", "application/yaml", "application/toml")


def user_content(content: Content) -> list[wire.UserContent]:
    """The pieces of one user prompt. Links stay text: the gateway fetches nothing for a client."""
    return [_piece(block) for block in content]


def prompt_of(pieces: Sequence[wire.UserContent]) -> str | list[wire.UserContent]:
    """A lone text as a string, as Pydantic AI itself writes it."""
    return pieces[0] if len(pieces) == 1 and isinstance(pieces[0], str) else list(pieces)


def _piece(block: Block) -> wire.UserContent:
    match block:
        case blocks.Text():
            return block.text
        case blocks.Image():
            if not block.data and block.uri:
                return f"[an image: {block.uri}]"
            return _binary(block.data, block.mime_type, "an image")
        case blocks.Audio():
            return _binary(block.data, block.mime_type, "a sound")
        case blocks.Resource():
            if block.text is not None:
                return f"{block.uri}:\n{block.text}"
            mime = block.mime_type or "application/octet-stream"
            if mime.startswith("text/") or mime in TEXT_TYPES:
                text = _text(block.blob or "")
                if text is not None:
                    return f"{block.uri}:\n{text}"
            return _binary(block.blob or "", mime, block.uri)
        case blocks.ResourceLink():
            about = f" ({block.description})" if block.description else ""
            return f"[{block.title or block.name}]({block.uri}){about}"
        case blocks.Other():
            return json.dumps(block.raw, ensure_ascii=False)


def _binary(data: str, mime: str, what: str) -> wire.UserContent:
    try:
        return wire.BinaryContent(data=base64.b64decode(data, validate=True), media_type=mime)
    except (binascii.Error, ValueError):
        return f"[{what}, {mime}: its data is not base64]"


def _text(data: str) -> str | None:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def block_of(file: wire.BinaryContent) -> Block:
    """A file that a model or a tool made."""
    if file.media_type.startswith("image/"):
        return blocks.Image(file.base64, file.media_type)
    if file.media_type.startswith("audio/"):
        return blocks.Audio(file.base64, file.media_type)
    return blocks.Resource(f"attachment:{file.identifier}", blob=file.base64, mime_type=file.media_type)


def jsonable(value: Any) -> Json:
    """Anything a tool or an agent may give, as JSON."""
    return wire.to_jsonable_python(value, bytes_mode="base64", serialize_unknown=True, inf_nan_mode="strings")


def arguments(args: Any) -> dict[str, Json]:
    """A tool call's arguments (JSON text, or an object) as an object; what is none is its ``input``."""
    value: Json = args
    if isinstance(args, str):
        try:
            value = json.loads(args) if args else {}
        except ValueError:
            value = args
    elif args is not None:
        value = jsonable(args)
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"input": value}


def tool_content(part: wire.ToolReturnPart | wire.NativeToolReturnPart) -> list[Json]:
    """A tool's result in the shape of ACP v1: its text, then its files."""
    out: list[Json] = []
    text = "" if part.content is None else part.model_response_str()
    if text:
        out.append(_content({"type": "text", "text": text}))
    for file in part.files:
        if isinstance(file, wire.BinaryContent):
            out.append(_content(_file(file)))
    return out


def _content(block: Json) -> Json:
    return {"type": "content", "content": block}


def _file(file: wire.BinaryContent) -> Json:
    match block_of(file):
        case blocks.Image(data=data, mime_type=mime):
            return {"type": "image", "data": data, "mimeType": mime}
        case blocks.Audio(data=data, mime_type=mime):
            return {"type": "audio", "data": data, "mimeType": mime}
        case blocks.Resource(uri=uri, blob=blob, mime_type=resource_mime):
            return {"type": "resource", "resource": {"uri": uri, "blob": blob, "mimeType": resource_mime}}
        case other:
            raise AssertionError(f"no shape for {other!r}")
