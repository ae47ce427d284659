"""docs/message-ids.md names tests that exist, and no clause of the documents is left out."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "message-ids.md").read_text()


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 50
    for path, name in named:
        text = (ROOT / path).read_text()
        assert not name or f"def {name}(" in text, f"{path} has no {name}"


def test_every_clause_has_a_line_with_a_test() -> None:
    clauses = [f"G{n}" for n in range(1, 12)] + [f"D{n}" for n in range(1, 18)] + ["D12.1"]
    clauses += [f"S{n}" for n in range(1, 11)] + [f"M{n}" for n in range(1, 9)] + [f"R{n}" for n in range(1, 6)]
    for clause in clauses:
        lines = [line for line in PAGE.splitlines() if line.startswith(f"| {clause} |")]
        assert len(lines) == 1 and ("tests/" in lines[0] or "make test" in lines[0]), clause
