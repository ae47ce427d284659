"""Plain chunks that came together, as one: the hot path of both versions of ACP. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from adapters.acp.wire import AgentChunk, PlainLine
from gateway.core.model import Role


class TextRun(msgspec.Struct, gc=False):
    """Plain chunks of one message that came together, as one."""

    session_id: str
    role: Role
    text: str
    agent_id: str


def coalesce(messages: Iterable[Any]) -> Iterator[Any]:
    """The messages of one read, with adjacent plain chunks of one message merged into a ``TextRun``."""
    texts: list[str] = []
    session_id, kind, message_id = "", AgentChunk, None
    for message in messages:
        if type(message) is PlainLine:
            params = message.params
            update = params.update
            if texts:
                if update.message_id == message_id and params.session_id == session_id and type(update) is kind:
                    texts.append(update.content.text)
                    continue
                yield _run(session_id, kind, texts, message_id)
            session_id, kind, message_id = params.session_id, cast(type[AgentChunk], type(update)), update.message_id
            texts = [update.content.text]
        else:
            if texts:
                yield _run(session_id, kind, texts, message_id)
                texts = []
            yield message
    if texts:
        yield _run(session_id, kind, texts, message_id)


def _run(session_id: str, kind: type[Any], texts: list[str], message_id: str | None) -> TextRun:
    role: Role = "agent" if kind is AgentChunk else "thought"
    return TextRun(session_id, role, texts[0] if len(texts) == 1 else "".join(texts), message_id or "")
