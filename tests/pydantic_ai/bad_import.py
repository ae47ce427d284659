"""Needs something that is not there."""

import surely_not_installed  # type: ignore[import-not-found]

agent = surely_not_installed.agent
