"""The real clients against a gateway as people run it: ``@ag-ui/client`` 1.0.0 and 0.0.59 with their verification on,
CopilotKit's runtime, the example page in Chromium, and a validator of a third party on what was recorded. The npm
packages are installed by ``make clients``, Chromium is Debian's.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from ag_ui_validate import ValidatorOptions, create_validator

from tests.agui.client import Rules, frames, rising, shaped
from tests.served import ROOT, Served, serve

CLIENTS = ROOT / "tests" / "clients"
MODULES = CLIENTS / "node_modules"
CHROMIUM = Path("/usr/bin/chromium")
DEADLINE = 240  # seconds; a loaded machine is slow, not wrong

installed = pytest.mark.usefixtures("npm_clients")


def agents() -> str:
    command = [sys.executable, "-m", "adapters.acp.demo"]
    return json.dumps({"demo": {"command": command}, "steer": {"command": [*command, "--steer"]}})


@asynccontextmanager
async def gateway(path: Path) -> AsyncIterator[Served]:
    async with serve(path, TRUNKLINE_AGENTS=agents()) as served:
        yield served


async def node(script: str, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    """Run one of ``tests/clients`` and read what it prints: a JSON line each."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/root"), **environment}
    process = await asyncio.create_subprocess_exec(
        "node",
        str(CLIENTS / script),
        *arguments,
        cwd=CLIENTS,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    told = [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]
    failed = "\n".join(f"{each.get('name')}: {each.get('error')}" for each in told if not each["ok"])
    assert told and not failed and process.returncode == 0, f"{failed}\n{err.decode()[-3000:]}"
    return told


@installed
@pytest.mark.parametrize("package", ["@ag-ui/client", "ag-ui-client-0"])
async def test_the_official_client(tmp_path: Path, package: str) -> None:
    version = json.loads((MODULES / package / "package.json").read_text())["version"]
    assert version == {"@ag-ui/client": "1.0.0", "ag-ui-client-0": "0.0.59"}[package]
    recorded = tmp_path / "recorded"
    async with gateway(tmp_path) as served:
        told = await node("agui.mjs", served.url, package, str(recorded))
    assert len(told) >= 30
    found = sorted(recorded.glob("*.sse"))
    assert len(found) > 50
    for file in found:
        _judge(file, package == "@ag-ui/client")


def _judge(file: Path, modern: bool) -> None:
    """Our own rules, the official models, and ag-ui-validate. A stream that its client cut short may be torn."""
    data = file.read_bytes()
    whole = data.endswith(b"\n\n")
    data = data[: data.rfind(b"\n\n") + 2]
    events = frames(data)
    rising([cursor for cursor, _ in events if cursor])
    rules = Rules(modern)
    for _, event in events:
        shaped(event)
        rules.check(event)
    if not whole or rules.running:
        return
    # AGUI207: the result of a call of an earlier run, which every resumed run has
    validator = create_validator(ValidatorOptions(severity_overrides={"AGUI207": "off"}))
    for _, event in events:
        validator.feed(event)
    validator.finalize()
    report = validator.report()
    assert report.event_count == len(events) and not report.internal_errors
    assert not report.summary.errors and not report.summary.warnings, (file.name, report.diagnostics)


@installed
async def test_copilotkit_in_front(tmp_path: Path) -> None:
    async with gateway(tmp_path) as served:
        told = await node("copilotkit.mjs", served.url)
    assert [each["name"] for each in told] == ["run", "stop", "interrupt"]


@installed
async def test_the_example_page(tmp_path: Path) -> None:
    """One command starts the page and a gateway beside it, on another port: its origin is allowed there."""
    assert CHROMIUM.exists(), "apt-get install chromium"
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "NODE_PATH": str(MODULES),
        "TRUNKLINE_AGENTS": agents(),
        "TRUNKLINE_DEMO_STATE": str(tmp_path / "demo"),
        "AGENT": "steer",
    }
    page = await asyncio.create_subprocess_exec(
        "node",
        str(ROOT / "examples" / "agui-chat" / "serve.mjs"),
        cwd=tmp_path,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert page.stdout is not None
        async with asyncio.timeout(60):
            while not (found := re.search(r"open (http://\S+)", (await page.stdout.readline()).decode())):
                assert page.returncode is None and not page.stdout.at_eof()
        await node("browser.mjs", found[1], str(tmp_path / "profile"))
    finally:
        page.terminate()
        async with asyncio.timeout(30):
            assert await page.wait() == 0
            assert page.stdout is not None
            await page.stdout.read()


def test_the_example_is_installed_by_its_own_manifest() -> None:
    """The same versions as the tests have tried."""
    mine = json.loads((ROOT / "examples" / "agui-chat" / "package.json").read_text())["dependencies"]
    tried = json.loads((CLIENTS / "package.json").read_text())["dependencies"]
    assert mine == {name: tried[name] for name in mine}
    assert shutil.which("node") is None or subprocess.run(["node", "--version"], capture_output=True).returncode == 0
