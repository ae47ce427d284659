"""The container without Docker: the compose file against its schema, and the image's steps as a script."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_compose_keeps_its_schema(compose: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "tests" / "data" / "compose_spec.json").read_text())
    jsonschema.Draft7Validator(schema).validate({key: value for key, value in compose.items() if key != "name"})


def test_the_schema_sees_a_fault(compose: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "tests" / "data" / "compose_spec.json").read_text())
    wrong = {"services": {"gateway": {**compose["services"]["gateway"], "enviroment": []}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate(wrong)


def test_compose_needs_a_token_and_shows_no_port_but_the_proxys(compose: dict[str, Any]) -> None:
    gateway, caddy = compose["services"]["gateway"], compose["services"]["caddy"]
    assert any(entry.startswith("TRUNKLINE_TOKEN=${TRUNKLINE_TOKEN:?") for entry in gateway["environment"])
    assert "ports" not in gateway
    assert any(entry.endswith(":443:443") for entry in caddy["ports"])
    assert caddy["depends_on"]["gateway"]["condition"] == "service_healthy"


def test_every_volume_is_declared_and_every_file_is_there(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).is_file(), source
            else:
                assert source in compose["volumes"], source
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_the_command_is_one_that_the_settings_take(compose: dict[str, Any]) -> None:
    from gateway.known_agents import parse_flag

    command = compose["services"]["gateway"]["command"]
    assert json.loads(re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[-1]) == command
    flags = [parse_flag(value) for flag, value in zip(command, command[1:], strict=False) if flag == "--agent"]
    assert [name for name, _ in flags] == ["demo", "claude"]


def test_the_image() -> None:
    last = DOCKERFILE.split("\nFROM ")[-1]
    assert re.search(r"^USER (?!root)", last, re.MULTILINE)
    assert "HEALTHCHECK" in last and "/health" in last
    assert "--require-hashes -r requirements.lock" in DOCKERFILE
    assert "COPY --from=node" in last


def test_what_the_image_copies_is_let_through() -> None:
    """.dockerignore refuses all but a list."""
    ignored = (ROOT / ".dockerignore").read_text().split()
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        for name in line.split()[:-1]:
            assert f"!{name}" in ignored, name
            assert (ROOT / name).exists(), name


def test_the_caddyfile_streams() -> None:
    assert "flush_interval -1" in (ROOT / "docker" / "Caddyfile").read_text()


def test_the_images_steps_in_a_clean_folder() -> None:
    """Wheel built, installed alone, started elsewhere, asked through Caddy, streams unbuffered, stopped: smoke.sh."""
    done = subprocess.run(
        [ROOT / "docker" / "smoke.sh"],
        env={name: value for name, value in os.environ.items() if not name.startswith("TRUNKLINE_")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "the first frame of /event came after" in done.stdout
    assert done.stdout.endswith("smoke: passed\n")
