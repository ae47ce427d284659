"""The SDK's JSON schemas, made strict: an open union takes only the variants that it names.

Every message that the gateway sends in these tests is checked against them (``Checker``).
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

Json = Any
FOLDER = Path(__file__).resolve().parents[2] / "clients" / "node_modules" / "@agentclientprotocol" / "sdk" / "schema"

# What has no schema: our own extensions, proposals, and what was removed and agents still serve (``set_model``).
EXTENSIONS = ("session/inject", "session/revoke_inject", "session/replace_inject", "session/set_model", "_")


def _open(branch: Json, tags: set[str]) -> bool:
    """A branch for variants that nobody has named yet."""
    properties = branch.get("properties", {})
    return any(properties.get(tag, {}).get("type") == "string" and "const" not in properties[tag] for tag in tags)


def strict(value: Json) -> Json:
    """The schema with its open unions of objects closed. Open words (kinds, categories) stay: agents make their own."""
    if isinstance(value, list):
        return [strict(each) for each in value]
    if not isinstance(value, dict):
        return value
    out = {key: strict(each) for key, each in value.items()}
    for key in ("anyOf", "oneOf"):
        branches = out.get(key)
        if not isinstance(branches, list) or not all(isinstance(branch, dict) for branch in branches):
            continue
        tags = {
            name
            for branch in branches
            for name, field in branch.get("properties", {}).items()
            if isinstance(field, dict) and "const" in field
        }
        out[key] = [branch for branch in branches if not _open(branch, tags)]
    return out


@cache
def document(version: int) -> Json:
    found: Json = json.loads((FOLDER / f"v{version}" / "schema.unstable.json").read_text())
    return {"$schema": found["$schema"], "$defs": strict(found["$defs"])}


@cache
def validator(version: int, name: str) -> Draft202012Validator:
    return Draft202012Validator({**document(version), "$ref": f"#/$defs/{name}"})


@cache
def names(version: int, ending: tuple[str, ...], side: str) -> dict[str, str]:
    """Method → the definition of its params or result."""
    return {
        body["x-method"]: name
        for name, body in document(version)["$defs"].items()
        if body.get("x-method") and body.get("x-side") == side and name.endswith(ending)
    }


class Invalid(AssertionError):
    pass


def check(version: int, name: str, value: Json) -> None:
    errors = sorted(validator(version, name).iter_errors(value), key=lambda e: e.json_path)
    if errors:
        told = "; ".join(f"{e.json_path}: {e.message[:300]}" for e in errors[:3])
        raise Invalid(f"not a {name} of v{version}: {told}\n{json.dumps(value)[:1500]}")


def check_update(version: int, update: Json) -> None:
    """One ``update`` object, against the variant of its kind."""
    union = document(version)["$defs"]["SessionUpdate"]
    variants = union.get("oneOf") or union["anyOf"]
    kind = update.get("sessionUpdate")
    found = next((v for v in variants if v["properties"]["sessionUpdate"].get("const") == kind), None)
    if found is None:
        raise Invalid(f"v{version} has no update {kind!r}")
    errors = list(Draft202012Validator({**document(version), **found}).iter_errors(update))
    if errors:
        raise Invalid(f"not a {kind} of v{version}: {errors[0].json_path}: {errors[0].message[:400]}\n{update}")


class Checker:
    """Everything that an agent sends on one connection."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.asked: dict[str, str] = {}  # our requests: the JSON of the id → the method

    def request(self, request_id: Json, method: str) -> None:
        self.asked[json.dumps(request_id)] = method

    def message(self, message: Json) -> None:
        assert message.get("jsonrpc") == "2.0", message
        if "method" in message:
            self._call(message)
        elif "error" in message:
            check(self.version, "Error", message["error"])
            assert "id" in message
        else:
            method = self.asked[json.dumps(message["id"])]
            if not method.startswith(EXTENSIONS):
                check(self.version, names(self.version, ("Response",), "agent")[method], message["result"])

    def _call(self, message: Json) -> None:
        method, params = message["method"], message["params"]
        if method == "session/update":
            assert isinstance(params["sessionId"], str)
            check_update(self.version, params["update"])
        elif method == "$/cancel_request":
            check(self.version, "CancelRequestNotification", params)
        elif not method.startswith(EXTENSIONS):
            check(self.version, names(self.version, ("Request", "Notification"), "client")[method], params)
            assert ("id" in message) == names(self.version, ("Request",), "client").__contains__(method)


def check_to_agent(version: int, message: Json, asked: dict[str, str]) -> None:
    """One message that the gateway, as a client, writes to an agent. ``asked``: what the agent asked, by the id."""
    assert message.get("jsonrpc") == "2.0", message
    if "method" in message:
        method = message["method"]
        if method == "$/cancel_request":
            check(version, "CancelRequestNotification", message["params"])
        elif not method.startswith(EXTENSIONS):
            check(version, names(version, ("Request", "Notification"), "agent")[method], message["params"])
            assert ("id" in message) == (method in names(version, ("Request",), "agent"))
    elif "error" in message:
        check(version, "Error", message["error"])
    elif json.dumps(message["id"]) in asked:
        method = asked[json.dumps(message["id"])]
        if not method.startswith(EXTENSIONS):
            check(version, names(version, ("Response",), "client")[method], message["result"])
