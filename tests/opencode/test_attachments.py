"""Files that a prompt links to: what of them the agent is given, and what clients are shown."""

import os
from pathlib import Path
from typing import Any

import pytest

from gateway.core import effects as fx
from gateway.core.content import Audio, Block, Image, Resource, ResourceLink, Text
from tests.fake_port import Farm
from tests.opencode.support import Gateway, gateway
from tests.opencode.test_translate import schema


async def given(one: Gateway, farm: Farm, url: str, mime: str = "text/plain", status: int = 200, **part: Any) -> Any:
    """Send a prompt with this file; the block that the agent got, or the error."""
    sid = await one.new()
    body = {"parts": [{"type": "text", "text": "see"}, {"type": "file", "mime": mime, "url": url, **part}]}
    answer = await one.http.post(f"/session/{sid}/message", json=body)
    assert answer.status_code == status, answer.text
    if status != 200:
        return answer.json()["data"]["message"]
    offer = farm.port.last(fx.OfferPrompt)
    assert isinstance(offer, fx.OfferPrompt)
    text, block = offer.messages[0].content
    assert isinstance(text, Text)
    shown = (await one.messages(sid))[0]["parts"][1]
    schema("Part").validate(shown)
    assert shown["url"] == url and shown["mime"] == mime  # the link, whatever was read
    return block


async def test_what_the_agent_is_given(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        where = one.workspace
        (where / "a b.py").write_text("1\n2\n3\n4\n")
        (where / "shot.png").write_bytes(b"\x89PNG")
        (where / "data.bin").write_bytes(b"\0\1")
        (where / "large.txt").write_text("x" * (256 * 1024 + 1))
        url = f"file://{where}/a%20b.py"
        uri = (where / "a b.py").as_uri()

        async def block(url: str, mime: str = "text/plain", **part: Any) -> Block:
            found: Block = await given(one, farm, url, mime, **part)
            return found

        source = {"type": "file", "path": "a b.py", "text": {"value": "@a b.py", "start": 0, "end": 7}}
        whole = await block(url, filename="a b.py", source=source)
        assert isinstance(whole, Resource) and (whole.text, whole.uri) == ("1\n2\n3\n4\n", uri)
        for words, text, lines in (
            ("start=2&end=3", "2\n3\n", "#L2:3"),
            ("start=3", "3\n4\n", "#L3"),
            ("end=1", "1\n", "#L1:1"),
            ("start=9&end=10", "", "#L9:10"),
        ):
            part = await block(f"{url}?{words}")
            assert isinstance(part, Resource) and (part.text, part.uri) == (text, uri + lines)
        image = await block(f"file://{where}/shot.png", "image/png")
        assert isinstance(image, Image) and image.data == "iVBORw==" and image.uri == (where / "shot.png").as_uri()
        assert isinstance(await block(f"file://{where}/shot.png", "audio/wav"), Audio)
        for name, mime in (
            ("data.bin", "application/pdf"),
            ("large.txt", "text/plain"),
            ("", "application/x-directory"),
        ):
            assert isinstance(await block(f"file://{where}/{name}", mime), ResourceLink), name
        assert isinstance(await block("https://example.org/a.txt"), ResourceLink)


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("nope.txt", 400, "No such file"),
        ("a.txt?start=0", 400, "start"),
        ("a.txt?start=3&end=2", 400, "start"),
        ("a.txt?start=x", 400, "whole numbers"),
        ("a.txt?end=1e3", 400, "whole numbers"),
        ("data.bin?start=1", 400, "no text"),
        ("pipe", 400, "regular"),
        ("out.txt", 403, "outside"),
        ("../secret", 403, ".."),
        ("%2e%2e/secret", 403, ".."),
        ("a%00.txt", 403, "not a path"),
    ],
)
async def test_what_is_refused(tmp_path: Path, name: str, status: int, said: str) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        (tmp_path / "secret").write_text("secret")
        (one.workspace / "a.txt").write_text("a\n")
        (one.workspace / "data.bin").write_bytes(b"\xff\xfe\0")
        (one.workspace / "out.txt").symlink_to(tmp_path / "secret")
        os.mkfifo(one.workspace / "pipe")
        message = await given(one, farm, f"file://{one.workspace}/{name}", status=status)
        assert said in message and '["parts"][1]["url"]' in message
        assert not farm.prompts


async def test_a_prompt_sent_again_is_the_same_though_its_file_changed(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        (one.workspace / "a.txt").write_text("before\n")
        sid = await one.new()
        part = {"type": "file", "mime": "text/plain", "url": f"file://{one.workspace}/a.txt"}
        body = {"messageID": "msg_again", "parts": [{"type": "text", "text": "see"}, part]}
        first = await one.http.post(f"/session/{sid}/message", json=body)
        (one.workspace / "a.txt").unlink()
        again = await one.http.post(f"/session/{sid}/message", json=body)
        assert first.status_code == again.status_code == 200 and first.json() == again.json()
        assert len(farm.prompts) == 1
