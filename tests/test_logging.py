"""Logs are lines on stderr, and secrets are not in them."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from gateway.logging import configure


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")
    structlog.get_logger("part").info("agent started", agent="demo", pid=7)
    structlog.get_logger("part").debug("not shown")
    logging.getLogger("other").warning("from a library: %s", "x")
    own, foreign = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (own["event"], own["agent"], own["pid"]) == ("agent started", "demo", 7)
    assert (own["level"], own["logger"]) == ("info", "part") and own["timestamp"].endswith("Z")
    assert (foreign["event"], foreign["level"]) == ("from a library: x", "warning")


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_are_hidden(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure("debug", form, secrets=["s3cret"])
    log = structlog.get_logger("part")
    log.info("request", authorization="Bearer abc123", headers={"Cookie": "abc123"}, url="/x?token=s3cret")
    logging.getLogger("other").error("failed with s3cret")
    s3 = "abc123"
    try:
        raise ValueError("s3cret")
    except ValueError:
        log.exception("broken")
    said = capsys.readouterr().err
    assert "broken" in said and "ValueError" in said
    assert "s3cret" not in said and s3 not in said


def test_a_streams_content_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure("debug", "json")
    logging.getLogger("sse_starlette.sse").debug("chunk: what somebody said")
    assert capsys.readouterr().err == ""
