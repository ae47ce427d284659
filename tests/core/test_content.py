"""Content blocks: what is text, and what two admissions are compared by."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.content import Audio, Block, Content, Image, Other, Resource, ResourceLink, Text, digest, text_of

ALL: Content = (
    Text("a", meta={"k": 1}),
    Image("aGk=", "image/png"),
    Audio("aGk=", "audio/wav"),
    Resource("file:///x", text="t"),
    ResourceLink("file:///y", "y", size=3),
    Other({"type": "new"}),
    Text("b"),
)


def test_text_of() -> None:
    assert text_of(ALL) == "a\nb"
    assert text_of(()) == ""


def test_every_block_survives_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(ALL), type=tuple[Block, ...]) == ALL


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_digests_are_equal_for_equal_content_and_delivery(a: list[str], b: list[str]) -> None:
    one, two = tuple(map(Text, a)), tuple(map(Text, b))
    assert (digest(one, "queue") == digest(two, "queue")) == (a == b)
    assert digest(one, "queue") != digest(one, "steer")


def test_the_order_of_keys_does_not_matter() -> None:
    assert digest((Other({"a": 1, "b": 2}),), "queue") == digest((Other({"b": 2, "a": 1}),), "queue")
