"""One golden JSON a wire message: the event, and the frames that it must become. The goldens are shaped after traffic
of the real server; that they have its shapes is judged by the schemas of its own OpenAPI document.
"""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from jsonschema import Draft202012Validator

from adapters.opencode import translate_content, translate_messages, translate_requests, translate_tools
from adapters.opencode.errors import told
from adapters.opencode.frames import Frames, parse
from adapters.opencode.translate import Translator
from adapters.opencode.wire import FileInput, SubtaskInput, TextInput
from gateway.core import events as ev
from gateway.core.content import Audio, Image, Resource, ResourceLink, Text
from gateway.core.errors import ClientError, NotSupported
from gateway.core.ids import PartId, RequestId, SessionId, StepId, event_id
from gateway.core.model import Accepted, Declined, Option, Pending, Request, Selected, SessionInfo
from gateway.log import STALE, Entry, SessionLog

GOLDEN = Path(__file__).parent.parent / "golden" / "opencode"
SCHEMA = json.loads((GOLDEN / "schema.json").read_text())
NAMES = sorted(path.stem for path in GOLDEN.glob("*.json") if path.stem != "schema")
SID = "ses_dd7132299ffe4CtKa0d4XYPdAU"
INFO = {
    "id": SID,
    "root_id": SID,
    "cwd": "/workspace",
    "created": 1795982941543,
    "updated": 1795982941543,
    "agent": "fake",
}
OURS = {"message.pending.updated", "server.gap", "server.heartbeat"}  # types that the real server does not have


def schema(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})


def check(frame: dict[str, Any]) -> None:
    """Whether a frame is what the real server's own description says."""
    if frame["type"] in OURS:
        return
    name = "Event" + "".join(word.capitalize() for word in frame["type"].split("."))
    frame = json.loads(json.dumps(frame))
    part = frame["properties"].get("part", {})
    if part.get("type") == "file":
        part.pop("metadata", None)  # ours: its schema has room for it in all the others
    schema(name).validate(frame)


def golden(name: str) -> tuple[ev.Record, SessionInfo, Pending | None, list[dict[str, Any]]]:
    data = json.loads((GOLDEN / f"{name}.json").read_text())
    text = json.dumps(data["frames"])
    slug, project = translate_messages.slug(SID), translate_messages.project_id("/workspace")
    frames = json.loads(text.replace('"SLUG"', f'"{slug}"').replace('"PROJECT"', f'"{project}"'))
    record = {"session_id": SID, "seq": 1, "clock": 1, "at": data["at"], "event": data["event"]}
    info = msgspec.convert(INFO | data.get("info", {}), SessionInfo)
    pending = msgspec.convert(data["pending"], Pending) if "pending" in data else None
    return msgspec.convert(record, ev.Record), info, pending, frames


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    record, info, pending, expected = golden(name)
    made = Translator("fake").encode(record, info, pending)
    assert [json.loads(msgspec.json.encode(event)) for event in made] == expected


@pytest.mark.parametrize("name", NAMES)
def test_frames_have_the_real_servers_shapes(name: str) -> None:
    record, info, pending, _ = golden(name)
    for index, event in enumerate(Translator("fake").encode(record, info, pending)):
        frame = {"id": event_id(record.at, 1, index), **json.loads(msgspec.json.encode(event))}
        check(frame)


def test_every_event_is_either_in_a_golden_or_has_no_word_here() -> None:
    shown = {type(golden(name)[0].event).__name__ for name in NAMES}
    pending = (
        "MessagePromoted MessageDemoted MessageReleased MessageReturned QuestionAsked QuestionRefused"  # like held
    )
    silent = (
        "MessagesOffered MessageAliased AbortAsked TurnCancelling MessageRefs ModesUpdated ConfigUpdated "
        "CommandsUpdated ChildUpdated BackgroundUpdated OfferAccepted AgentWorking"
    )
    assert not shown & set(silent.split())
    assert {one.__name__ for one in get_args(ev.Event)} <= shown | set(pending.split()) | set(silent.split())


# --- content -------------------------------------------------------------------------------------------------------


def test_parts_of_a_prompt_become_blocks_and_come_back() -> None:
    source = {"type": "file", "path": "a.py", "text": {"value": "@a.py", "start": 0, "end": 5}}
    parts = [
        TextInput("see @a.py", id="prt_1"),
        FileInput("image/png", "data:image/png;base64,aGk=", id="prt_2", filename="shot.png"),
        FileInput("audio/wav", "data:audio/wav;base64,aGk=", id="prt_3"),
        FileInput("text/plain", "data:text/plain,hi%20there", id="prt_4", filename="note.txt"),
        FileInput("application/pdf", "data:application/pdf;base64,aGk=", id="prt_5"),
        FileInput("text/plain", "file:///workspace/a.py", id="prt_6", source=source),
    ]
    content, ids = translate_content.content_of(parts, str)
    assert ids == tuple(f"prt_{n}" for n in range(1, 7))
    assert [type(block) for block in content] == [Text, Image, Audio, Resource, Resource, ResourceLink]
    back = [translate_content.user_part(b, i, SID, "msg_1", None) for b, i in zip(content, ids, strict=True)]
    wire = json.loads(msgspec.json.encode(back))
    for part in wire:
        schema("Part").validate(part)
    assert wire[1]["filename"] == "shot.png" and wire[1]["url"] == parts[1].url  # type: ignore[union-attr]
    assert wire[3]["url"] == "data:text/plain;base64,aGkgdGhlcmU="
    assert wire[5]["source"] == source


@pytest.mark.parametrize(
    ("part", "where"),
    [
        (FileInput("image/png", "data:image/png;base64,%%%"), '["parts"][0]["url"]'),
        (FileInput("image/png", "data:image/png"), '["parts"][0]["url"]'),
        (FileInput("image/png", "no url"), '["parts"][0]["url"]'),
    ],
)
def test_a_bad_part_names_its_place(part: FileInput, where: str) -> None:
    with pytest.raises(ClientError, match="\n  at ") as caught:
        translate_content.content_of([part], str)
    assert where in caught.value.message


def test_part_ids_rise() -> None:
    with pytest.raises(ClientError, match=r'\["parts"\]\[1\]\["id"\]'):
        translate_content.content_of([TextInput("a", id="prt_2"), TextInput("b", id="prt_1")], str)


def test_subtasks_are_not_offered() -> None:
    with pytest.raises(NotSupported):
        translate_content.content_of([SubtaskInput("x")], str)


# --- tools ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "raw", "name"),
    [
        ("execute", {"command": ["bash", "-lc", "ls"]}, "bash"),
        ("execute", {}, "Title"),
        ("read", {"path": "/a"}, "read"),
        ("read", None, "Title"),
        ("edit", {"filePath": "/a", "content": "x"}, "write"),
        ("search", {"query": "x"}, "grep"),
        ("search", {"x": 1}, "Title"),
        ("fetch", {"url": "https://example.org"}, "webfetch"),
        ("think", {"command": "ls"}, "Title"),
    ],
)
def test_a_tool_has_opencodes_name_only_with_the_input_that_it_needs(kind: str, raw: object, name: str) -> None:
    assert translate_tools.named(kind, "", "Title", raw, None, None)[0] == name


# --- requests ------------------------------------------------------------------------------------------------------


def asked(*kinds: str) -> Request:
    options = tuple(Option(kind, kind, kind) for kind in kinds)
    return Request(RequestId("per_1"), "permission", "t", 1, "1", options=options)


@pytest.mark.parametrize(
    ("kinds", "reply", "expected"),
    [
        (("allow_always", "allow_once", "reject_once"), "once", Selected("allow_once", "")),
        (("allow_always", "reject_once"), "once", Selected("allow_always", "")),
        (("allow_once",), "always", Selected("allow_once", "")),
        (("allow_once", "allow_always"), "always", Selected("allow_always", "")),
        (("custom", "reject_once"), "once", Selected("custom", "")),
        (("allow_once",), "reject", Declined("")),
    ],
)
def test_replies_are_options_of_the_agent(kinds: tuple[str, ...], reply: str, expected: object) -> None:
    assert translate_requests.outcome(asked(*kinds), reply, "") == expected


def test_a_reply_that_no_option_allows() -> None:
    with pytest.raises(ClientError, match=r'\["reply"\]'):
        translate_requests.outcome(asked("reject_once"), "once", "")


FORM = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "enum": ["a", "b"]},
        "sure": {"type": "boolean", "description": "Are you sure?"},
        "count": {"type": "integer"},
        "many": {"type": "array", "items": {"enum": ["x", "y"]}},
        "free": {"type": "string"},
    },
}


def test_a_form_becomes_questions_and_their_answers_its_content() -> None:
    request = Request(RequestId("que_1"), "elicitation", "Fill in", 1, "1", schema=FORM)
    wire = json.loads(msgspec.json.encode(translate_requests.question(request, SID)))
    schema("QuestionRequest").validate(wire)
    assert [q["header"] for q in wire["questions"]] == ["name", "sure", "count", "many", "free"]
    assert wire["questions"][3]["multiple"] is True
    given = [["b"], ["Yes"], ["7"], ["x", "y"], []]
    assert translate_requests.answers(request, given) == Accepted(
        {"name": "b", "sure": True, "count": 7, "many": ["x", "y"]}
    )


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ([["c"], [], [], [], []], '["answers"][0]'),
        ([[], [], [], [], []], '["answers"][0]'),
        ([["a", "b"], [], [], [], []], '["answers"][0]'),
        ([["a"], ["perhaps"], [], [], []], '["answers"][1]'),
        ([["a"], [], ["x"], [], []], '["answers"][2]'),
        ([["a"], [], ["9" * 30], [], []], '["answers"][2]'),
        ([["a"]], '["answers"]'),
    ],
)
def test_a_wrong_answer_names_its_place(given: list[list[str]], where: str) -> None:
    request = Request(RequestId("que_1"), "elicitation", "Fill in", 1, "1", schema=FORM)
    with pytest.raises(ClientError) as caught:
        translate_requests.answers(request, given)
    assert caught.value.message.endswith(f"at {where}")


def test_a_page_to_open_is_a_question() -> None:
    request = Request(RequestId("que_1"), "elicitation", "Log in", 1, "1", url="https://example.org/login")
    wire = json.loads(msgspec.json.encode(translate_requests.question(request, SID)))
    schema("QuestionRequest").validate(wire)
    assert "https://example.org/login" in wire["questions"][0]["question"]
    assert translate_requests.answers(request, [["Done"]]) == Accepted(None)


# --- bytes ---------------------------------------------------------------------------------------------------------


def entry(name: str, pos: int = 7) -> Entry:
    record, info, pending, _ = golden(name)
    return Entry(pos, record, info, pending, {})


@pytest.mark.parametrize("kind", ["event", "global"])
def test_the_short_way_of_a_delta_is_the_long_way(kind: Any) -> None:
    frames = Frames(Translator("fake"), 3)
    record, info, _, _ = golden("part_delta")
    for pos in (1, 5, 3607, 14_776_336, 2**40):
        one = Entry(pos, record, info, None, {})
        assert frames.of_entry(one, kind) == frames._list(one, kind)[0]


def test_an_entry_is_encoded_once_for_all_readers() -> None:
    frames, one = Frames(Translator("fake"), 3), entry("message_delivered")
    assert frames.of_entry(one, "global") is frames.of_entry(one, "global")


def test_ids_rise_and_say_where_to_go_on() -> None:
    frames, one = Frames(Translator("fake"), 3), entry("message_delivered")
    text = frames.of_entry(one, "event").decode()
    ids = [line[4:] for line in text.split("\n") if line.startswith("id: ")]
    assert ids == ["3.6.1", "3.6.2", "3.6.3", "3.6.4", "3.6.5", "3.7"]
    assert frames.of_entry(one, "event", skip=4).decode() == text[text.index("id: 3.6.5") :]


def test_global_frames_say_where_they_happened() -> None:
    frames = Frames(Translator("fake"), 3)
    data = json.loads(frames.of_entry(entry("turn_started"), "global").split(b"data: ")[1])
    assert data["directory"] == "/workspace" and set(data) == {"directory", "project", "payload"}
    assert data["payload"]["type"] == "session.status"


def test_cursors() -> None:
    log = SessionLog(3)
    info = msgspec.convert(INFO, SessionInfo)
    delta = ev.TextDelta(PartId("p"), "m", StepId("m"), "agent", "x")
    log.publish([(ev.Record(SessionId(SID), 0, 1, 1, delta), info, None)] * 9)
    assert parse(log, "3.5")[:2] == (5, 0)
    assert parse(log, "3.5.2")[:2] == (5, 2)
    assert parse(log, "3.5.0.17")[:2] == (5, 0)
    assert parse(log, "3.5.4096.2")[:2] == (STALE, 0)  # inside of a snapshot
    assert parse(log, "2.5")[:2] == (STALE, 0)
    assert parse(log, "3.10")[:2] == (STALE, 0)  # not reached yet: no place of this log
    for bad in ("", "x", "3", "3.", "3.x", "3.5.", "3.5.1.2.3", "3.-1", "3.5.²", "3.5." + "9" * 40, "\0"):
        with pytest.raises(ClientError):
            parse(log, bad)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Object missing required field `parts`", 'Missing key\n  at ["parts"]'),
        ("Expected `str`, got `int` - at `$.parts[0].text`", 'Expected `str`, got `int`\n  at ["parts"][0]["text"]'),
        ("Expected `object`, got `array`", "Expected `object`, got `array`"),
        ("Object missing required field `x` - at `$.a[...]`", 'Missing key\n  at ["a"][...]["x"]'),
    ],
)
def test_a_violation_says_what_and_where(said: str, expected: str) -> None:
    assert told(said) == expected
