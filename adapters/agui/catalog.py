"""What the agents are, for clients that ask before they run one: a list, and the capabilities in AG-UI's own shape."""

from typing import Any
from urllib.parse import quote

from adapters.agui.wire import NAMESPACE, VERSION
from gateway.agents import AgentConfig


def listed(config: AgentConfig) -> dict[str, Any]:
    base = f"/agui/{quote(config.name)}"
    return {
        "name": config.name,
        "url": base,
        "connectUrl": f"{base}/connect",
        "capabilitiesUrl": f"{base}/capabilities",
    }


def capabilities(config: AgentConfig) -> dict[str, Any]:
    """AgentCapabilities. ``transport.resumable`` stays unset: the protocol has no mechanism for it; ours is in custom.

    What an agent takes is known only when it runs: a part that it has no block for is told to it in words.
    """
    base = f"/agui/{quote(config.name)}"
    return {
        "identity": {"name": config.name, "type": "acp", "provider": "trunkline"},
        "transport": {"streaming": True, "websocket": False, "httpBinary": False},
        "tools": {"supported": True, "parallelCalls": True, "clientProvided": False},
        "output": {"structuredOutput": False},
        "state": {"snapshots": True, "deltas": True, "persistentState": True},
        "multiAgent": {"supported": True, "delegation": True},
        "reasoning": {"supported": True, "streaming": True, "encrypted": False},
        "multimodal": {
            "input": {"image": True, "audio": True, "video": False, "pdf": True, "file": False},
            "output": {"image": True, "audio": True},
        },
        "execution": {"codeExecution": True},
        "humanInTheLoop": {"supported": True, "approvals": True, "interventions": True, "interrupts": True},
        "custom": {
            NAMESPACE: {
                "protocolVersion": VERSION,
                "delivery": ["queue", "steer", "reject"],
                "onDisconnect": ["cancel", "continue"],
                "connect": f"{base}/connect",
                "cursor": True,
                "frontendTools": "ignored: an ACP agent has its own tools",
                "state": "the gateway's: what a client sends is not read",
            }
        },
    }
