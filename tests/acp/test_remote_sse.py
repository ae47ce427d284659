"""``adapters/acp/remote_sse``: events come out the same, wherever the bytes are cut and however lines end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.acp.outbox import Outbox
from adapters.acp.remote_sse import Event, Events, TooLong

WHOLE = [
    (b": keep-alive\n\n", None),
    (b"id: 7\ndata: {}\n\n", Event(b"7", b"{}")),
    (b"data:{}\n\n", Event(None, b"{}")),
    (b"data:  {}\n\n", Event(None, b" {}")),
    (b"data: {\ndata: }\n\n", Event(None, b"{ }")),
    (b"event: message\nretry: 3\ndata: 1\nid: a b\n\n", Event(b"a b", b"1")),
    (b"id: 9\n\n", Event(b"9", b"")),
    (b"id\ndata\n\n", None),
    (b"id: a\0b\ndata: 1\n\n", Event(None, b"1")),
    (b"\n", None),
    ('data: "é"\n\n'.encode(), Event(None, '"é"'.encode())),
]


@given(st.lists(st.sampled_from(WHOLE)), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.booleans(), st.data())
def test_any_cut(parts: list[tuple[bytes, Event | None]], end: bytes, bom: bool, data: st.DataObject) -> None:
    raw = b"".join(part.replace(b"\n", end) for part, _ in parts)
    raw = b"\xef\xbb\xbf" + raw if bom and raw else raw
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    events = Events(1000)
    found = [e for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True) for e in events.feed(raw[a:b])]
    found += events.feed(b": the end\n\n") if end == b"\r" else []  # a CR at the end waits for an LF
    assert found == [event for _, event in parts if event is not None]


def test_an_unfinished_event_is_no_event() -> None:
    events = Events(1000)
    assert events.feed(b"id: 1\ndata: {}\n\nid: 2\ndata: {}\n") == [Event(b"1", b"{}")]


def test_the_limit() -> None:
    assert Events(10).feed(b"data: " + b"x" * 10 + b"\n\n") == [Event(None, b"x" * 10)]
    with pytest.raises(TooLong):
        Events(10).feed(b"data: " + b"x" * 11 + b"\n\n")
    with pytest.raises(TooLong):
        Events(10).feed(b"data: " + b"x" * 2000)


def test_our_own_frames() -> None:
    outbox = Outbox()
    for number in range(3):
        outbox.push(f"{number}")
    raw = b"".join(outbox.pieces(0))
    assert Events(1000).feed(raw) == [Event(b"1", b"0"), Event(b"2", b"1"), Event(b"3", b"2")]
