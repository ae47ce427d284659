"""Metrics count what was committed, in the real application."""

from pathlib import Path

import httpx

from gateway.app import create_app
from gateway.config import load_settings


async def test_a_prompt_is_counted(tmp_path: Path) -> None:
    flags = {"data": str(tmp_path / "data"), "workspace": [str(tmp_path)]}
    app = create_app(load_settings(flags=flags, environ={}))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client,
    ):
        session = (await client.post("/session", json={})).json()["id"]
        prompt = {"parts": [{"type": "text", "text": "say hello"}]}
        assert (await client.post(f"/session/{session}/message", json=prompt)).status_code == 200
        text = (await client.get("/metrics")).text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values["trunkline_sessions_loaded"] == "1.0"
    assert values["trunkline_subscribers"] == "0.0"
    assert values['trunkline_messages_total{delivery="queue"}'] == "1.0"
    assert values['trunkline_turns_total{outcome="end_turn"}'] == "1.0"
    assert float(values["trunkline_events_total"]) > 4
    assert float(values["trunkline_commit_seconds_count"]) > 2
    assert values["trunkline_commit_failures_total"] == "0.0"
