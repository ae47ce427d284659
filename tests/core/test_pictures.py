"""The pictures of docs/flow.md are what the core does."""

from tests.core.pictures import BEGIN, DOCS, END, STORIES, markdown


def test_the_sequences_in_the_docs_are_those_that_the_core_plays() -> None:
    page = DOCS.read_text()
    made = page.partition(BEGIN)[2].partition(END)[0]
    assert made.strip() == markdown().strip(), "docs/flow.md is old: python -m tests.core.pictures"


def test_every_story_of_delivery_has_one() -> None:
    told = " ".join(STORIES).lower()
    for word in (
        "idle",
        "queue",
        "injected",
        "next turn",
        "interrupt",
        "first layer",
        "second layer",
        "abort",
        "killed",
    ):
        assert word in told
