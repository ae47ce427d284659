"""What Prometheus may ask for at ``/metrics``. A registry an app, so that two gateways in one process do not mix."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response


class Metrics:
    """Labels are agents' and outcomes' names only: few, and never from a client."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.sessions_loaded = Gauge("trunkline_sessions_loaded", "Sessions in memory", registry=self.registry)
        self.subscribers = Gauge("trunkline_subscribers", "Open event streams", registry=self.registry)
        self.agents_running = Gauge("trunkline_agents_running", "Agent processes", ["agent"], registry=self.registry)
        self.agent_deaths = Counter(
            "trunkline_agent_deaths", "Agents that ended by themselves", ["agent"], registry=self.registry
        )
        self.turns = Counter("trunkline_turns", "Turns that ended", ["agent", "outcome"], registry=self.registry)
        self.messages_admitted = Counter(
            "trunkline_messages_admitted", "Messages accepted from clients", ["delivery"], registry=self.registry
        )
        self.events = Counter("trunkline_events", "Durable events stored", registry=self.registry)
        self.commit_failures = Counter(
            "trunkline_commit_failures", "Commits that the store refused", registry=self.registry
        )
        self.commit_seconds = Histogram(
            "trunkline_commit_seconds",
            "From decision to durable",
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0),
            registry=self.registry,
        )
        self.commit_inputs = Histogram(
            "trunkline_commit_inputs",
            "Inputs that one commit took together",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=self.registry,
        )

    def response(self) -> Response:
        return Response(generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
