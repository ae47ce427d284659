"""Asks a gateway behind a proxy: ``smoke_client.py URL CA_FILE``, the token in TRUNKLINE_TOKEN. Needs httpx only."""

import json
import os
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx

SOON = 1.0
"""Seconds. A proxy that collects would wait for its buffer to fill, or for the heartbeat (10 s)."""


def main(url: str, ca_file: str) -> None:
    wait_for(url, ca_file)
    tls = ssl.create_default_context(cafile=ca_file)
    print(f"  TLS through the proxy, {negotiated(url)} offered")
    token = os.environ["TRUNKLINE_TOKEN"]
    with httpx.Client(base_url=url, verify=tls, timeout=20) as nobody:
        expect(nobody.get("/health"), 200)
        for path in ("/metrics", "/session"):
            refused = expect(nobody.get(path), 401)
            assert refused.headers["www-authenticate"].startswith("Basic"), refused.headers
        print("  without a token: /health answers, the rest is 401")
    with httpx.Client(base_url=url, verify=tls, timeout=20, headers={"Authorization": f"Bearer {token}"}) as bearer:
        expect(bearer.get("/metrics"), 200)
    with httpx.Client(base_url=url, verify=tls, timeout=20, auth=("opencode", token)) as client:
        unbuffered(client)


def unbuffered(client: httpx.Client) -> None:
    """The first frame comes at once, and each chunk of an answer when the agent says it, not together at the end."""
    began = time.monotonic()
    with client.stream("GET", "/event") as events:
        assert events.status_code == 200, f"/event: {events.status_code}"
        assert events.headers["content-type"].startswith("text/event-stream"), events.headers
        frames = data_of(events)
        next(frames)
        first = time.monotonic() - began
        assert first < SOON, f"the first frame took {first:.2f} s"
        print(f"  the first frame of /event came after {first * 1000:.0f} ms")

        session = expect(client.post("/session", json={}), 200).json()["id"]
        prompt = {"parts": [{"type": "text", "text": "stream 5 200"}]}
        expect(client.post(f"/session/{session}/prompt_async", json=prompt), 204)
        arrivals = []
        for frame in frames:
            if frame.get("type") == "message.part.delta":
                arrivals.append(time.monotonic())
            if frame.get("type") == "session.idle":
                break
        assert len(arrivals) >= 3, f"{len(arrivals)} deltas"
        spread = arrivals[-1] - arrivals[0]
        assert spread > 0.4, f"{len(arrivals)} chunks of 200 ms each came within {spread:.2f} s"
        print(f"  {len(arrivals)} chunks, 200 ms apart at the agent, came over {spread:.2f} s")


def data_of(events: httpx.Response) -> Iterator[dict[str, object]]:
    for line in events.iter_lines():
        if line.startswith("data:"):
            yield json.loads(line[5:])


def expect(response: httpx.Response, status: int) -> httpx.Response:
    assert response.status_code == status, f"{response.url.path}: {response.status_code} {response.text[:300]}"
    return response


def wait_for(url: str, ca_file: str) -> None:
    """Until the proxy listens and has made its certificate; 30 s at most."""
    address = (urlsplit(url).hostname or "", urlsplit(url).port or 443)
    for _ in range(300):
        try:
            tls = ssl.create_default_context(cafile=ca_file)
            with socket.create_connection(address, timeout=2) as raw, tls.wrap_socket(raw, server_hostname=address[0]):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the proxy did not come up")


def negotiated(url: str) -> str:
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection((parts.hostname or "", parts.port or 443), timeout=5) as raw,
        context.wrap_socket(raw, server_hostname=parts.hostname) as wrapped,
    ):
        protocol = wrapped.selected_alpn_protocol()
    assert protocol == "h2", protocol
    return "HTTP/2"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
