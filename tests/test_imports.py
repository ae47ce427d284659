"""The import rules of the design, read from the import statements."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What a pure module may use: no clock, no randomness, no I/O, no loop, no log.
PURE_STDLIB = set(
    "__future__ abc base64 binascii bisect collections contextlib copy dataclasses difflib enum functools hashlib "
    "heapq itertools json math operator re string textwrap types typing".split()
)
# Translators write times down; that they do not read the clock is for reviews.
FOR_TRANSLATORS = PURE_STDLIB | {"datetime"}
ADAPTERS = {path.name for path in (ROOT / "adapters").iterdir() if path.is_dir()}

# These may import an adapter: app.py puts the parts together; the command starts the demo agent and asks agents what
# they are with no app around it, and must not load an adapter for its help.
LAZY = {"gateway/__main__.py", "gateway/cli.py"}
COMPOSITION = {"gateway/app.py", *LAZY}


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Each imported module with its line, and whether it is imported when the file is."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
    }
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) not in inside
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node.lineno, id(node) not in inside
            # `from adapters import acp` names a module too.
            for alias in node.names:
                yield f"{module}.{alias.name}", node.lineno, id(node) not in inside


def problems(path: Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    parts = name.split("/")
    found = []
    for module, line, at_import in imports(path):
        why = _why(name, parts, module, at_import)
        if why:
            found.append(f"{name}:{line}: {module}: {why}")
    return found


def _why(name: str, parts: list[str], module: str, at_import: bool) -> str:
    top = module.split(".")[0]
    if top == "sse_starlette" and name != "adapters/sse.py":
        return "only adapters/sse.py imports sse_starlette"
    if parts[0] == "gateway":
        if parts[1] == "core":
            own = module == "gateway" or module == "gateway.core" or module.startswith("gateway.core.")
            if not own and top != "msgspec" and not _pure(module, PURE_STDLIB):
                return "gateway/core is pure: itself, msgspec and pure stdlib"
        if top == "adapters":
            if name not in COMPOSITION:
                return "gateway never imports adapters"
            if name in LAZY and at_import:
                return "the command imports adapters where it uses them"
        return ""
    if top == "adapters":
        target = module.split(".")[1] if "." in module else ""
        folder = parts[1] if len(parts) > 2 else ""
        if target in ADAPTERS and target != folder:
            return "adapters never import each other"
    if parts[-1].startswith("translate") or "translate" in parts[2:-1]:
        return _why_translator(parts[1], module)
    return ""


def _pure(module: str, allowed: set[str]) -> bool:
    return module.split(".")[0] in allowed or module == "urllib.parse" or module.startswith("urllib.parse.")


def _why_translator(protocol: str, module: str) -> str:
    """A translator is pure too: the core, its own protocol's wire and other translators, no clock and no loop."""
    top = module.split(".")[0]
    if _pure(module, FOR_TRANSLATORS) or top == "msgspec" or module == "gateway" or module.startswith("gateway.core"):
        return ""
    own = f"adapters.{protocol}"
    rest = module.removeprefix(own).lstrip(".").split(".")[0]
    if module == own or module.startswith(own + ".") and rest.startswith(("wire", "translate")):
        return ""
    return "a translator imports gateway.core and its own wire only"


def sources() -> list[Path]:
    return sorted(path for top in ("gateway", "adapters") for path in (ROOT / top).rglob("*.py"))


def test_the_rules_are_kept() -> None:
    found = [problem for path in sources() for problem in problems(path)]
    assert not found, "\n".join(found)


def test_there_is_something_to_check() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in sources()}
    assert {"gateway/core/events.py", "adapters/sse.py", "gateway/app.py"} <= names


@pytest.mark.parametrize(
    ("name", "module", "at_import"),
    [
        ("gateway/core/session.py", "asyncio", True),
        ("gateway/core/session.py", "time", False),
        ("gateway/core/session.py", "random", True),
        ("gateway/core/session.py", "logging", True),
        ("gateway/core/session.py", "gateway.store", True),
        ("gateway/core/session.py", "pydantic", True),
        ("gateway/controller.py", "adapters.acp.rpc", False),
        ("gateway/__main__.py", "adapters.acp.demo", True),
        ("adapters/opencode/routes.py", "adapters.acp.rpc", True),
        ("adapters/acp/routes.py", "sse_starlette", True),
        ("adapters/acp/translate_v1.py", "gateway.store", True),
        ("adapters/acp/translate_v1.py", "adapters.acp.process", True),
        ("adapters/acp/translate_v1.py", "time", True),
    ],
)
def test_a_breach_is_seen(name: str, module: str, at_import: bool) -> None:
    assert _why(name, name.split("/"), module, at_import)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("gateway/core/session.py", "gateway.core.ids"),
        ("gateway/core/session.py", "msgspec"),
        ("gateway/app.py", "adapters.acp.agent"),
        ("adapters/opencode/routes.py", "adapters.sse"),
        ("adapters/opencode/routes/events.py", "adapters.opencode.wire"),
        ("adapters/acp/translate_v1.py", "adapters.acp.wire"),
        ("adapters/acp/translate_v1.py", "gateway.core.events"),
    ],
)
def test_the_allowed_is_allowed(name: str, module: str) -> None:
    assert not _why(name, name.split("/"), module, True)


def test_the_demo_agent_does_not_import_the_gateway() -> None:
    """It starts once a session: its start is the session's."""
    import subprocess

    code = (
        "import sys, adapters.acp.demo; "
        "print([n for n in sys.modules if n.split('.')[0] in ('gateway', 'fastapi', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
