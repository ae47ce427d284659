"""What is in the files that a prompt's parts link to, for agents that read no files of their own.

A small text, the lines that were asked for, a picture or a sound is embedded; anything else stays a link. The paths are
confined already. It reads: call it in a thread.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from adapters.opencode import files
from adapters.opencode.errors import Invalid, cut
from adapters.opencode.translate_content import kept_meta, link_of
from adapters.opencode.wire import FileInput
from gateway.core.content import Audio, Block, Content, Image, Resource
from gateway.core.errors import NotFound, TooLarge

TEXT = 256 << 10  # bytes of a text that is embedded
MEDIA = 8 << 20  # and of a picture or a sound


def loader(confined: Callable[[str], str], before: Content) -> Callable[[FileInput, str, str], Block | None]:
    """``before``: what the message was when it was sent before: sent again it is the same, whatever its files are."""
    known = {link_of(block): block for block in before if link_of(block)}

    def load(part: FileInput, path: str, where: str) -> Block | None:
        return known.get(part.url) or _load(part, confined(path), where)

    return load


def _load(part: FileInput, path: str, where: str) -> Block | None:
    real = Path(path)
    if real.is_dir():
        return None
    lines = _lines(part.url, where)
    kind = part.mime.partition("/")[0]
    limit = MEDIA if lines or kind in ("image", "audio") else TEXT
    try:
        data = files.read(real, limit, path)
    except NotFound:
        raise Invalid(f'No such file: {cut(path)}\n  at {where}["url"]', "Payload") from None
    except Invalid as error:
        raise Invalid(f'{error.message}\n  at {where}["url"]', "Payload") from None
    except TooLarge as error:
        if lines:
            raise TooLarge(f'{error.message}\n  at {where}["url"]') from None
        return None
    meta = kept_meta(part)
    if kind in ("image", "audio") and not lines:
        encoded = base64.b64encode(data).decode()
        if kind == "image":
            return Image(encoded, part.mime, real.as_uri(), meta)
        return Audio(encoded, part.mime, meta)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        if lines:
            raise Invalid(f'{cut(path)} is no text: it has no lines\n  at {where}["url"]', "Payload")
        return None
    uri = real.as_uri()
    if lines:
        first, last = lines
        text = "".join(text.splitlines(keepends=True)[first - 1 : last])
        uri += f"#L{first}:{last or ''}".rstrip(":")
    return Resource(uri, text=text, mime_type=part.mime, meta=meta)


def _lines(url: str, where: str) -> tuple[int, int | None] | None:
    """``?start=&end=``: lines from 1 on, both included; without an end, to the last. Raises Invalid."""
    asked = parse_qs(urlsplit(url).query)
    if "start" not in asked and "end" not in asked:
        return None
    try:
        start = int(asked.get("start", ["1"])[0])
        end = int(asked["end"][0]) if "end" in asked else None
    except ValueError:
        raise Invalid(f'Expected whole numbers for start and end\n  at {where}["url"]', "Payload") from None
    if start < 1 or (end is not None and end < start):
        raise Invalid(f'Expected 1 <= start <= end, got {start} and {end}\n  at {where}["url"]', "Payload")
    return start, end
