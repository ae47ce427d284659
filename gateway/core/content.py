"""Content blocks: the shape that ACP and MCP share, as frozen structs, with unknown fields kept beside them.

Nothing here knows a wire: an adapter turns its own blocks into these and back.
"""

from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

Json: TypeAlias = Any


class Text(msgspec.Struct, frozen=True, tag="text", omit_defaults=True):
    text: str
    meta: Json = None  # annotations and _meta of the wire, kept unread


class Image(msgspec.Struct, frozen=True, tag="image", omit_defaults=True):
    data: str  # base64
    mime_type: str
    uri: str | None = None
    meta: Json = None


class Audio(msgspec.Struct, frozen=True, tag="audio", omit_defaults=True):
    data: str  # base64
    mime_type: str
    meta: Json = None


class Resource(msgspec.Struct, frozen=True, tag="resource", omit_defaults=True):
    """An embedded resource: ``text`` or ``blob`` (base64)."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None
    meta: Json = None


class ResourceLink(msgspec.Struct, frozen=True, tag="resource_link", omit_defaults=True):
    uri: str
    name: str
    mime_type: str | None = None
    title: str | None = None
    description: str | None = None
    size: int | None = None
    meta: Json = None


class Other(msgspec.Struct, frozen=True, tag="other", omit_defaults=True):
    """A block of a kind that this version does not know, as it came."""

    raw: Json


Block: TypeAlias = Text | Image | Audio | Resource | ResourceLink | Other
Content: TypeAlias = tuple[Block, ...]


def text_of(content: Content) -> str:
    """The text blocks of ``content``, joined by newlines."""
    return "\n".join(block.text for block in content if isinstance(block, Text))


_encoder = msgspec.json.Encoder(order="deterministic")


def digest(content: Content, delivery: str) -> str:
    """What two admissions of one message id are compared by: the content and the delivery that were asked for."""
    return blake2b(_encoder.encode((delivery, content)), digest_size=16).hexdigest()
