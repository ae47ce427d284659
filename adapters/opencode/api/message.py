"""What was said: messages in pages, the context, and the history of committed events."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from adapters.opencode.api.common import V2, data, no_message, number, order, pack, unpack
from adapters.opencode.errors import InvalidCursor, json
from gateway.core.transcript import Item, UserItem

PAGE, LONGEST_PAGE = 50, 200
EVENTS, MOST_EVENTS = 50, 100


class Place(msgspec.Struct, frozen=True):
    id: Annotated[str, Meta(max_length=256)]
    order: Literal["asc", "desc"]
    direction: Literal["next", "previous"]


def routes(v2: V2) -> None:
    router = v2.api.router

    @router.get("/api/session/{sessionID}/message", response_model=None)
    async def listed(request: Request, sessionID: str) -> Response:
        """Messages that the agent has, and its own: newest first, or as ``order`` says. A ``cursor`` says it itself."""
        view = await v2.view(sessionID)
        limit = number(request, "limit", PAGE, low=1, high=LONGEST_PAGE)
        items: list[Item] = list(view.transcript.items)
        given = request.query_params.get("cursor")
        if given and "order" in request.query_params:
            raise InvalidCursor("Cursor cannot be combined with order")
        where = unpack(given, Place) if given else None
        asked = where.order if where is not None else order(request)
        if asked == "desc":
            items.reverse()
        if where is not None:
            at = next((index for index, item in enumerate(items) if id_of(item) == where.id), None)
            if at is None:
                raise InvalidCursor("Invalid cursor")
            items = items[at + 1 :][:limit] if where.direction == "next" else items[max(0, at - limit) : at]
        found = items[:limit]
        cursor: dict[str, str | None] = {"previous": None, "next": None}
        if found:
            for way, item in (("previous", found[0]), ("next", found[-1])):
                cursor[way] = pack({"id": id_of(item), "order": asked, "direction": way})
        return json({"data": [v2.messages.item(item) for item in found], "cursor": cursor})

    @router.get("/api/session/{sessionID}/message/{messageID}", response_model=None)
    async def get(sessionID: str, messageID: str) -> Response:
        message_id = v2.message_id(messageID)
        view = await v2.view(sessionID)
        step = view.transcript.step(message_id)
        user = view.transcript.user(message_id)
        if step is not None:
            return data(v2.messages.assistant(step))
        if user is not None:
            return data(v2.messages.user(user))
        raise no_message(view.info.id, message_id)

    @router.get("/api/session/{sessionID}/context", response_model=None)
    async def context(sessionID: str) -> Response:
        """Everything that was said, oldest first. What of it the agent still looks at is its own business."""
        return data([v2.messages.item(item) for item in (await v2.view(sessionID)).transcript.items])

    @router.get("/api/session/{sessionID}/history", response_model=None)
    async def history(request: Request, sessionID: str) -> Response:
        """Committed events after a number, in their order."""
        session_id = v2.session_id(sessionID)
        limit = number(request, "limit", EVENTS, low=1, high=MOST_EVENTS)
        found, more = await v2.streams.history(session_id, number(request, "after", 0), limit)
        return json({"data": found, "hasMore": more})


def id_of(item: Item) -> str:
    return item.message.ascending_id if isinstance(item, UserItem) else item.step.id
