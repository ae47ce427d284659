"""Content blocks, which all versions of ACP share, to the core's and back; and how JSON is read without surprises.

Pure, and raises nothing: what is not well-formed becomes ``Other``.
"""

from typing import Any, TypeAlias

from gateway.core import content as blocks
from gateway.core.content import Block, Content

Json: TypeAlias = Any


def block(value: Json) -> Block:
    """A content block of the wire. What is no known, well-formed block becomes ``Other``."""
    if not isinstance(value, dict):
        return blocks.Other(value)
    meta = {key: value[key] for key in ("annotations", "_meta") if value.get(key) is not None} or None
    match value:
        case {"type": "text", "text": str(text)}:
            return blocks.Text(text, meta)
        case {"type": "image", "data": str(data), "mimeType": str(mime)}:
            return blocks.Image(data, mime, string(value.get("uri")), meta)
        case {"type": "audio", "data": str(data), "mimeType": str(mime)}:
            return blocks.Audio(data, mime, meta)
        case {"type": "resource", "resource": {"uri": str(uri)} as inner}:
            inside, blob = string(inner.get("text")), string(inner.get("blob"))
            if inside is not None or blob is not None:
                return blocks.Resource(uri, inside, blob, string(inner.get("mimeType")), meta)
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            size = value.get("size")
            return blocks.ResourceLink(
                uri,
                name,
                string(value.get("mimeType")),
                string(value.get("title")),
                string(value.get("description")),
                size if isinstance(size, int) else None,
                meta,
            )
    return blocks.Other(value)


def encode_block(value: Block) -> dict[str, Json]:
    """A content block for the wire: ContentBlock of ACP v1."""
    match value:
        case blocks.Text():
            out: dict[str, Json] = {"type": "text", "text": value.text}
        case blocks.Image():
            out = {"type": "image", "data": value.data, "mimeType": value.mime_type, "uri": value.uri}
        case blocks.Audio():
            out = {"type": "audio", "data": value.data, "mimeType": value.mime_type}
        case blocks.Resource():
            inner = {"uri": value.uri, "mimeType": value.mime_type, "text": value.text, "blob": value.blob}
            out = {"type": "resource", "resource": present(inner)}
        case blocks.ResourceLink():
            out = {
                "type": "resource_link",
                "uri": value.uri,
                "name": value.name,
                "mimeType": value.mime_type,
                "title": value.title,
                "description": value.description,
                "size": value.size,
            }
        case blocks.Other():
            return value.raw if isinstance(value.raw, dict) else {"type": "text", "text": str(value.raw)}
    return present({**out, **(value.meta if isinstance(value.meta, dict) else {})})


def encode_prompt(content: Content, image: bool, audio: bool, embedded: bool) -> list[dict[str, Json]]:
    """Blocks for a prompt. What the agent's promptCapabilities lack is told in words, or as a link."""
    out: list[Block] = []
    for each in content:
        match each:
            case blocks.Image() if not image:
                if each.uri and not each.uri.startswith("data:"):
                    out.append(blocks.ResourceLink(each.uri, _name(each.uri), each.mime_type))
                else:
                    out.append(blocks.Text(f"[an image, {each.mime_type}: this agent takes no images]"))
            case blocks.Audio() if not audio:
                out.append(blocks.Text(f"[a sound, {each.mime_type}: this agent takes no audio]"))
            case blocks.Resource() if not embedded:
                if each.text is not None:
                    out.append(blocks.Text(f"{each.uri}:\n{each.text}"))
                else:
                    out.append(blocks.ResourceLink(each.uri, _name(each.uri), each.mime_type))
            case _:
                out.append(each)
    return [encode_block(each) for each in out]


def _name(uri: str) -> str:
    return uri.rstrip("/").rsplit("/", 1)[-1] or uri


# --- reading JSON --------------------------------------------------------------------------------------------------


def string(value: Json) -> str | None:
    """The value if it is a string."""
    return value if isinstance(value, str) else None


def table(value: Json) -> dict[str, Json]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: Json) -> list[dict[str, Json]]:
    """The objects of a list; none for anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def marked(value: Json) -> bool:
    """Whether a capability marker is there: not absent, null or false."""
    return value is not None and value is not False


def present(value: dict[str, Json]) -> dict[str, Json]:
    """Without the fields that are null."""
    return {key: field for key, field in value.items() if field is not None}
