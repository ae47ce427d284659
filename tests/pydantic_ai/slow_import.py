"""Takes too long to import."""

from tests.pydantic_ai import agents

agents.release.wait(60)
agent = agents.agent
