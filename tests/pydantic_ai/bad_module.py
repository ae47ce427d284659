"""Raises when it is imported."""

agent = 1 / 0
