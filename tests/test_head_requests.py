"""HEAD is the answer to GET without its body, on every path and protocol."""

from pathlib import Path

from tests.served import serve


async def test_head_wherever_get_is(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        for path in ("/session", "/api/session", "/agui", "/health", "/doc", "/nowhere"):
            got, head = await served.http.get(path), await served.http.head(path)
            assert (head.status_code, head.content) == (got.status_code, b""), path
            assert head.headers["content-length"] == got.headers["content-length"], path
        assert (await served.http.head("/log")).status_code == 405


async def test_a_stream_ends_with_its_head(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        for path in ("/global/event", "/event", "/api/event"):
            head = await served.http.head(path, timeout=20)
            assert head.status_code == 200 and head.headers["content-type"].startswith("text/event-stream"), path
        assert "trunkline_subscribers 0.0" in (await served.http.get("/metrics")).text
