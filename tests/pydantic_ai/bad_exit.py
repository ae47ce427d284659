"""Exits when it is imported."""

raise SystemExit("no")
