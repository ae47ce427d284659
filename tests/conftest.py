"""What every test may ask for."""

from pathlib import Path

import pytest

CLIENTS = Path(__file__).resolve().parent / "clients" / "node_modules"


@pytest.fixture(scope="session")
def npm_clients() -> Path:
    """The folder of the real clients. A missing one is a failure: a test that is skipped shows nothing."""
    assert CLIENTS.is_dir(), "the npm clients are not installed: make clients"
    return CLIENTS
