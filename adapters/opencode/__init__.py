"""The OpenCode HTTP API, version 1, in front of the SessionController. What is served: ``docs/opencode.md``."""
