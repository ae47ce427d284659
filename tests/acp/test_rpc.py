"""``adapters/acp/rpc``: bytes to messages, whatever the chunks; ids; calls."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.acp import rpc, wire

QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def shown(message: Any) -> Any:
    match message:
        case rpc.Request():
            return "request", bytes(message.id), message.method, bytes(message.params)
        case rpc.Notification():
            return "notification", message.method, bytes(message.params)
        case rpc.Response():
            return "response", message.call, message.result and bytes(message.result), message.error
        case rpc.Overlong():
            return "overlong", message.head
        case rpc.Noise():
            return "noise", message.code, message.line
    return "fast", message.params.update.content.text


def peer(limit: int = rpc.MAX_LINE, calls: int = 3, fast: bool = True) -> rpc.Peer[str]:
    out: rpc.Peer[str] = rpc.Peer(limit, wire.plain if fast else None)
    for i in range(calls):
        out.request("m", {}, f"call {i}")
    return out


def chunk(text: str) -> bytes:
    update = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": text}}
    return json.dumps({"method": "session/update", "params": {"sessionId": "s", "update": update}}).encode()


STREAM = [
    b'{"jsonrpc":"2.0","id":1,"result":{"late":true}}',
    chunk("one"),
    chunk("tw\u00f6"),
    b'{"params":{"a":[1,"\\n"]},"id":"x\\"1","method":"ask"}',
    b"plain words",
    b"\x1b[31mred\x1b[0m",
    b"42",
    b"null",
    b"[1,2]",
    b'{"id":3}',
    b"{}",
    b"\xff\xfe",
    b'{"method":7}',
    b"",
    b"  \r",
    b'{"method":"note"}\r',
    b'{"id":0,"error":{"code":-32000,"message":"log in"}}',
    b'{"id":"0","result":1}',
    b'{"id":99,"result":1}',
    chunk("three"),
    b'{"id":2,"result":null,"error":null}',
    b'{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"x"}}}',
]


def told(chunks: list[bytes], **options: Any) -> list[Any]:
    p = peer(**options)
    return [shown(message) for data in chunks for message in p.feed(data)]


def test_a_stream() -> None:
    p = peer()
    out = [shown(message) for message in p.feed(b"\n".join(STREAM) + b"\n")]
    assert out == [
        ("response", "call 1", b'{"late":true}', None),
        ("fast", "one"),
        ("fast", "tw\u00f6"),
        ("request", b'"x\\"1"', "ask", b'{"a":[1,"\\n"]}'),
        ("noise", rpc.PARSE_ERROR, b"plain words"),
        ("noise", rpc.PARSE_ERROR, b"\x1b[31mred\x1b[0m"),
        ("noise", rpc.INVALID_REQUEST, b"42"),
        ("noise", rpc.INVALID_REQUEST, b"null"),
        ("noise", rpc.INVALID_REQUEST, b"[1,2]"),
        ("noise", rpc.INVALID_REQUEST, b'{"id":3}'),
        ("noise", rpc.INVALID_REQUEST, b"{}"),
        ("noise", rpc.PARSE_ERROR, b"\xff\xfe"),
        ("noise", rpc.INVALID_REQUEST, b'{"method":7}'),
        ("notification", "note", b""),
        ("response", "call 0", None, rpc.RpcError(-32000, "log in")),
        ("fast", "three"),
        ("response", "call 2", b"null", None),
        ("notification", "session/update", b'{"sessionId":"s","update":{"sessionUpdate":"x"}}'),
    ]
    assert (p.noise, p.strays, p.overlong, p.pending()) == (9, 2, 0, [])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


@QUICK
@given(st.lists(st.sampled_from(STREAM), max_size=12), st.lists(st.integers(0, 10_000), max_size=30))
def test_any_split_gives_the_same_messages(lines: list[bytes], places: list[int]) -> None:
    data = b"\n".join(lines) + b"\n"
    assert told(cut(data, places)) == told([data])


@QUICK
@given(st.lists(st.binary(max_size=40), max_size=10), st.lists(st.integers(0, 500), max_size=20))
def test_any_split_with_lines_over_the_limit(lines: list[bytes], places: list[int]) -> None:
    data = b"\n".join(lines) + b"\n"

    def kinds(chunks: list[bytes]) -> list[Any]:
        # How much of a long line is seen when it is given up depends on the chunks.
        return [m if m[0] != "overlong" else m[0] for m in told(chunks, limit=20)]

    expected = kinds([line + b"\n" for line in data[:-1].split(b"\n")])
    assert kinds(cut(data, places)) == kinds([data]) == expected


def test_byte_by_byte() -> None:
    data = b"\n".join(STREAM) + b"\n"
    assert told([data[i : i + 1] for i in range(len(data))]) == told([data])


def test_an_overlong_line_is_told_when_the_limit_is_passed_and_the_rest_goes_on() -> None:
    p = peer(limit=1000, calls=0)
    assert p.feed(b'{"a":"' + b"x" * 900) == []
    (told_,) = p.feed(b"x" * 200)
    assert isinstance(told_, rpc.Overlong) and told_.head.startswith(b'{"a":"xxx') and told_.limit == 1000
    assert p.feed(b"x" * 5000) == []
    assert [shown(m) for m in p.feed(b'x"}\n{"method":"on"}\n')] == [("notification", "on", b"")]
    assert p.overlong == 1


def test_a_line_at_the_limit() -> None:
    line = b'{"method":"' + b"m" * 987 + b'"}'
    assert len(line) == 1000
    assert [m[0] for m in told([line + b"\n"], limit=1000)] == ["notification"]
    assert [m[0] for m in told([line + b" \n"], limit=1000)] == ["overlong"]


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    p = peer(calls=0)
    piece, began = b"x" * 4096, time.perf_counter()
    p.feed(b'{"method":"big","params":"')
    for _ in range(31 * 1024 * 1024 // 4096):
        assert not p.feed(piece)
    (message,) = p.feed(b'"}\n')
    assert len(message.params) == 31 * 1024 * 1024 + 2
    assert time.perf_counter() - began < 5  # with a rescan of the whole at each piece it takes minutes


def test_requests_answers_and_notifications_out() -> None:
    p: rpc.Peer[str] = rpc.Peer()
    number, line = p.request("session/prompt", {"a": 1}, "c")
    assert (number, json.loads(line)) == (
        0,
        {"jsonrpc": "2.0", "id": 0, "method": "session/prompt", "params": {"a": 1}},
    )
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert p.request("x", {}, "d")[0] == 1
    note = json.loads(p.notify("session/cancel", {"sessionId": "s"}))
    assert note == {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}
    request = msgspec.Raw(b'"a\\u0062"')
    assert p.result(request, {}) == b'{"jsonrpc":"2.0","id":"a\\u0062","result":{}}\n'
    error = json.loads(p.error(None, -32700, "Parse error", {"x": 1}))
    assert error == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "Parse error", "data": {"x": 1}},
    }


def test_a_call_that_was_given_up() -> None:
    p = peer()
    assert p.forget(1) == "call 1" and p.forget(1) is None
    assert p.feed(b'{"id":1,"result":{}}\n') == [] and p.strays == 1
    assert p.drain() == ["call 0", "call 2"] and p.pending() == []
    assert p.feed(b'{"id":0,"result":{}}\n') == []


@pytest.mark.parametrize("other", [b'"0"', b"false", b"null", b"[0]", b"1", b"-0.5"])
def test_ids_are_compared_with_their_type(other: bytes) -> None:
    assert rpc.id_key(msgspec.Raw(b"0")) != rpc.id_key(msgspec.Raw(other))
    p = peer()
    assert not [m for m in p.feed(b'{"result":{},"id":' + other + b"}\n") if shown(m)[1] == "call 0"]


def test_ids_are_equal_however_they_are_written() -> None:
    assert rpc.id_key(msgspec.Raw(b'"ab"')) == rpc.id_key(msgspec.Raw(b'"a\\u0062"'))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": 429, "message": "slow down", "data": [1]}, rpc.RpcError(429, "slow down", [1])),
        ({"code": "odd", "message": None}, rpc.RpcError(rpc.INTERNAL, "The peer gave no reason.")),
        ("just words", rpc.RpcError(rpc.INTERNAL, "just words")),
    ],
)
def test_errors_of_any_shape(error: Any, expected: rpc.RpcError) -> None:
    (message,) = peer().feed(json.dumps({"id": 0, "error": error}).encode() + b"\n")
    assert message.error == expected


@pytest.mark.parametrize(
    "text, told",
    [
        (rb"half \ud83d", "half ?"),
        (rb"\ude00 rest", "? rest"),
        (rb"\ud83d\ude00 whole", "\U0001f600 whole"),
        (rb"\ud83d\ud83d\ude00", "?\U0001f600"),
        (rb"a \\ud83d in words", r"a \ud83d in words"),
    ],
)
def test_half_of_a_surrogate_pair_costs_no_message(text: bytes, told: str) -> None:
    """JavaScript writes one wherever it cuts a string inside an emoji."""
    peer: rpc.Peer[str] = rpc.Peer(fast=wire.plain)
    chunk = b'{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"%b"}}' % text
    line = b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":%b}}\n' % chunk
    [message] = peer.feed(line)
    if isinstance(message, rpc.Notification):
        assert json.loads(bytes(message.params))["update"]["content"]["text"] == told
    else:
        assert message.params.update.content.text == told
    number, _ = peer.request("session/prompt", {}, "call")
    [answer] = peer.feed(b'{"jsonrpc":"2.0","id":%d,"result":{"_meta":{"t":"%b"}}}\n' % (number, text))
    assert isinstance(answer, rpc.Response) and json.loads(bytes(answer.result or b""))["_meta"]["t"] == told
    wish = b'"method":"session/request_permission","params":{"title":"%b"}' % text
    [ask] = peer.feed(b'{"jsonrpc":"2.0","id":9,%b}\n' % wish)
    assert isinstance(ask, rpc.Request) and json.loads(bytes(ask.params or b""))["title"] == told
