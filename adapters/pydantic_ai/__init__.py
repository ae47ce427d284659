"""Native Pydantic AI agents behind the agent port. Only ``agent.py`` may be imported without the extra installed."""
