"""Identifiers: OpenCode's ascending layout, from a clock value and entropy that are given as arguments.

An id is ``prefix_`` + 12 hex digits + 14 base62 digits. The hex digits are the low 48 bits of an *id clock*
value, ``milliseconds * 4096 + counter``; session ids carry their bitwise inverse, so that new sessions sort first.
The clock itself is a plain integer that never wraps and never goes backwards inside a session.

This module must not read a clock or a source of randomness. Only ``core/session.py`` calls the minting functions.
"""

from hashlib import blake2b
from typing import NewType

SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", str)
StepId = NewType("StepId", str)
PartId = NewType("PartId", str)
TurnId = NewType("TurnId", str)
OfferId = NewType("OfferId", str)
RequestId = NewType("RequestId", str)

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MASK = (1 << 48) - 1
_SUFFIX = 14


def next_clock(clock: int, now: int) -> int:
    """The id clock after ``clock`` at ``now`` (milliseconds since the epoch): strictly greater than ``clock``."""
    return max(clock + 1, now * 4096 + 1)


def suffix(entropy: bytes, clock: int) -> str:
    """14 base62 digits that only ``entropy`` and ``clock`` decide."""
    n = int.from_bytes(blake2b(clock.to_bytes(12, "big"), key=entropy[:64], digest_size=11).digest(), "big")
    out = []
    for _ in range(_SUFFIX):
        n, digit = divmod(n, 62)
        out.append(BASE62[digit])
    return "".join(out)


def ascending(prefix: str, clock: int, entropy: bytes) -> str:
    """An id that sorts after every id of the same prefix and an earlier clock (until the 48 bits wrap)."""
    return f"{prefix}_{clock & _MASK:012x}{suffix(entropy, clock)}"


def descending(prefix: str, clock: int, entropy: bytes) -> str:
    """An id that sorts before every id of the same prefix and an earlier clock."""
    return f"{prefix}_{~clock & _MASK:012x}{suffix(entropy, clock)}"


def after(previous: str, candidate: str) -> str:
    """``candidate`` if it sorts after ``previous``, else the next id after ``previous``.

    Clients find the parts of a message by binary search over their ids, so these keep ascending across the wrap of
    the 48 bits: the hex digits are clamped and the suffix rises.
    """
    if candidate > previous:
        return candidate
    head, tail = previous[:-_SUFFIX], previous[-_SUFFIX:]
    n = 0
    for ch in tail:
        n = n * 62 + BASE62.index(ch)
    n += 1
    if n == 62**_SUFFIX:
        return previous + "0"  # no room in the layout: a longer one still sorts after it
    out = []
    for _ in range(_SUFFIX):
        n, digit = divmod(n, 62)
        out.append(BASE62[digit])
    return head + "".join(reversed(out))


def is_ascending(value: str, prefix: str) -> bool:
    """Whether ``value`` has the layout of an id with this prefix."""
    head = len(prefix) + 1
    return (
        len(value) == head + 12 + _SUFFIX
        and value.startswith(prefix + "_")
        and all(c in "0123456789abcdef" for c in value[head : head + 12])
        and all(c in BASE62 for c in value[head + 12 :])
    )


def event_id(at: int, position: int, index: int = 0) -> str:
    """The id of a frame on an OpenCode stream: not minted, but derived from the time and the place of its event."""
    n = position * 4096 + index
    out = []
    for _ in range(_SUFFIX):
        n, digit = divmod(n, 62)
        out.append(BASE62[digit])
    return f"evt_{(at * 4096) & _MASK:012x}{''.join(reversed(out))}"
