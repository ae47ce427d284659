"""One golden JSON a wire message of version 2: the event, and the frames that it must become. That they have the real
server's shapes is judged by the schemas of its own OpenAPI document.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from adapters.opencode.translate_messages import Messages, project_id, slug
from adapters.opencode.translate_v2 import STRIDE, TranslatorV2, envelope
from adapters.opencode.translate_v2_messages import noted, prompt
from gateway.core import events as ev
from gateway.core.content import Audio, Image, Other, Resource, ResourceLink, Text
from gateway.core.ids import PartId, StepId
from tests.opencode.test_translate import INFO, SID

GOLDEN = Path(__file__).parent.parent / "golden" / "opencode_v2"
SCHEMA = json.loads((GOLDEN / "schema.json").read_text())
NAMES = sorted(path.stem for path in GOLDEN.glob("*.json") if path.stem != "schema")
OURS = {"session.next.pending.updated", "server.gap"}  # types that the real server does not have
NAMED = {"session.status": "session.status"}  # not what the type would give


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})


def valid(name: str, value: Any) -> None:
    validator(name).validate(json.loads(json.dumps(value)))


def check(frame: dict[str, Any]) -> None:
    """Whether a frame is what the real server's own description says."""
    kind = frame["type"]
    if kind in OURS:
        return
    if kind.startswith("session.next.") and "durable" in frame:
        valid("SessionDurableEvent", frame)
    valid(NAMED.get(kind) or "".join(word.capitalize() for word in kind.split(".")), frame)


def made(event: Any, at: int, seq: int = 7, name: str = "golden") -> list[dict[str, Any]]:
    record = msgspec.convert({"session_id": SID, "seq": seq, "clock": 1, "at": at, "event": event}, ev.Record)
    told = TranslatorV2(Messages("fake")).encode(record, lambda message_id: message_id)
    frames = [envelope(record, one, index, 9, str(INFO["cwd"])) for index, one in enumerate(told)]
    found: list[dict[str, Any]] = json.loads(msgspec.json.encode(frames))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    data = json.loads((GOLDEN / f"{name}.json").read_text())
    text = json.dumps(data["frames"]).replace('"SLUG"', f'"{slug(SID)}"')
    expected = json.loads(text.replace('"PROJECT"', f'"{project_id("/workspace")}"'))
    frames = made(data["event"], data["at"])
    for frame in frames:
        assert frame.pop("location") == {"directory": "/workspace"}
        assert frame.pop("id").startswith("evt_")
    assert frames == expected


@pytest.mark.parametrize("name", NAMES)
def test_frames_have_the_real_servers_shapes(name: str) -> None:
    data = json.loads((GOLDEN / f"{name}.json").read_text())
    for frame in made(data["event"], data["at"]):
        check(frame)


def test_every_type_that_a_turn_has_on_the_real_server_is_in_a_golden() -> None:
    """The types of the recorded traffic of version 2, but what the agent's own models and plugins make."""
    seen = {frame["type"] for name in NAMES for frame in json.loads((GOLDEN / f"{name}.json").read_text())["frames"]}
    tools = {f"session.next.tool.{kind}" for kind in ("input.started", "input.ended", "called", "success", "failed")}
    texts = {f"session.next.{of}.{kind}" for of in ("text", "reasoning") for kind in ("started", "delta", "ended")}
    turn = {
        f"session.next.{kind}" for kind in ("prompt.admitted", "prompted", "step.started", "step.ended", "step.failed")
    }
    asked = {f"{of}.v2.{kind}" for of in ("permission", "question") for kind in ("asked", "replied")}
    assert tools | texts | turn | asked | {"question.v2.rejected", "session.created"} <= seen


# --- numbers -------------------------------------------------------------------------------------------------------


def test_each_durable_event_of_one_record_has_a_number_of_its_own() -> None:
    data = json.loads((GOLDEN / "tool_at_once.json").read_text())
    frames = made(data["event"], data["at"], seq=12)
    numbers = [frame["durable"]["seq"] for frame in frames]
    assert len(frames) == 4 and numbers == [12 * STRIDE + index for index in range(4)]
    assert len({frame["id"] for frame in frames}) == 4
    assert [frame["id"] for frame in made(data["event"], data["at"], seq=12)] == [frame["id"] for frame in frames]


def test_a_record_of_more_events_than_there_is_room_for_does_not_reach_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adapters.opencode.translate_v2.STRIDE", 3)
    data = json.loads((GOLDEN / "tool_at_once.json").read_text())
    assert [frame["durable"]["seq"] for frame in made(data["event"], data["at"], seq=2)] == [6, 7, 8]


def test_a_tool_that_works_again_is_called_again() -> None:
    event = json.loads((GOLDEN / "tool_success.json").read_text())["event"]
    event["call"] |= {"status": "in_progress", "told": True, "called": True}
    kinds = [frame["type"] for frame in made(event, 1795982942043)]
    assert kinds == ["session.next.tool.input.ended", "session.next.tool.called", "session.next.tool.progress"]


# --- content -------------------------------------------------------------------------------------------------------


def test_files_and_mentions_of_a_prompt_come_back() -> None:
    span = {"start": 0, "end": 5, "text": "@a.py"}
    content = (
        noted(Text("look at @a.py"), agents=[{"name": "plan"}]),
        noted(ResourceLink("file:///w/a.py", "a.py", "text/x-python"), filename="a.py", source=span, description="it"),
        Image("AAAA", "image/png"),
        Other({"type": "strange"}),
    )
    shown = prompt(content)
    assert shown["agents"] == [{"name": "plan"}]
    assert shown["text"] == 'look at @a.py\n{"type":"strange"}'
    file, image = shown["files"]
    assert file == {
        "uri": "file:///w/a.py",
        "mime": "text/x-python",
        "name": "a.py",
        "source": span,
        "description": "it",
    }
    assert image["uri"] == "data:image/png;base64,AAAA" and image["mime"] == "image/png"
    user = {"id": "msg_1", "time": {"created": 1}, "type": "user", **shown}
    valid("SessionMessage", user)
    valid("SessionInputAdmitted", {**admitted(), "prompt": shown})


def admitted() -> dict[str, Any]:
    return {"admittedSeq": 1, "id": "msg_1", "sessionID": SID, "delivery": "steer", "timeCreated": 1}


def test_a_files_place_in_the_text_as_version_1_says_it() -> None:
    source = {"type": "file", "path": "a.py", "text": {"start": 1, "end": 4, "value": "@a"}}
    [file] = prompt((noted(ResourceLink("file:///w/a.py", "a.py"), source=source),))["files"]
    assert file["source"] == {"start": 1, "end": 4, "text": "@a"}


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (Image("AAAA", "image/png"), "![image/png](data:image/png;base64,AAAA)"),
        (Audio("AAAA", "audio/wav"), "![audio/wav](data:audio/wav;base64,AAAA)"),
        (Resource("file:///a", text="inside"), "inside"),
        (Resource("file:///a", blob="AAAA"), "[file:///a](file:///a)"),
        (ResourceLink("file:///a", "a"), "[a](file:///a)"),
        (Other({"x": 1}), '{"x":1}'),
    ],
)
def test_a_block_of_the_agent_is_text(block: Any, said: str) -> None:
    part = {"part_id": PartId("prt_1"), "message_id": "msg_1", "step_id": StepId("msg_1"), "turn_id": "trn_1"}
    event = msgspec.to_builtins(ev.BlockAdded(**part, role="agent", created=1, block=block))  # type: ignore[arg-type]
    started, ended = made(event, 1)
    assert ended["data"]["text"] == said and started["data"]["textID"] == "prt_1"
    check(started)
    check(ended)
