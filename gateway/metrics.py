"""What Prometheus may ask for at ``/metrics``. A registry an app, so that two gateways in one process do not mix.

Counted is what was committed, in one place and after it is durable; nothing else of the gateway knows of metrics.
"""

import asyncio
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response

from gateway.core import events as ev
from gateway.store import Store
from gateway.store_writer import Commit

COMMIT_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """Labels have few values, and never a client's."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.sessions_loaded = Gauge("trunkline_sessions_loaded", "Sessions in memory", registry=registry)
        self.sessions_busy = Gauge("trunkline_sessions_busy", "Sessions with a running turn", registry=registry)
        self.subscribers = Gauge("trunkline_subscribers", "Open event streams", registry=registry)
        self.turns = Counter("trunkline_turns", "Turns that ended", ["outcome"], registry=registry)
        self.messages = Counter("trunkline_messages", "Messages admitted", ["delivery"], registry=registry)
        self.events = Counter("trunkline_events", "Durable events", registry=registry)
        self.commit_failures = Counter("trunkline_commit_failures", "Commits that failed", registry=registry)
        self.commit_seconds = Histogram(
            "trunkline_commit_seconds", "From decided to durable", buckets=COMMIT_BUCKETS, registry=registry
        )

    def committed(self, commit: Commit, seconds: float) -> None:
        self.commit_seconds.observe(seconds)
        self.events.inc(len(commit.records))
        for record in commit.records:
            if isinstance(record.event, ev.TurnEnded):
                self.turns.labels(record.event.outcome).inc()
            elif isinstance(record.event, ev.MessageAdmitted):
                self.messages.labels(record.event.message.lane).inc()

    def response(self) -> Response:
        return Response(generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class MeasuredStore(Store):
    """A store whose commits are counted."""

    metrics: Metrics | None = None

    def commit(self, commit: Commit) -> asyncio.Future[None]:
        began = time.perf_counter()
        future = super().commit(commit)
        metrics = self.metrics
        if metrics is not None:

            def count(done: asyncio.Future[None]) -> None:
                if done.cancelled():
                    return
                if done.exception() is not None:
                    metrics.commit_failures.inc()
                else:
                    metrics.committed(commit, time.perf_counter() - began)

            future.add_done_callback(count)
        return future
