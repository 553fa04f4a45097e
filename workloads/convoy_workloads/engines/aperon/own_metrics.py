"""The Prometheus metrics of an index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from convoy_workloads.engines.aperon.replication import Replication
from convoy_workloads.engines.aperon.shard import Facts
from convoy_workloads.kernels.hntl import KERNEL
from convoy_workloads.serving.kernel_metrics import selected
from convoy_workloads.serving.metrics import LABELS, Metrics

_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class OwnMetrics:
    """The metrics. Every thread may use them; before `register` they count nothing."""

    def __init__(self, facts: Callable[[], Sequence[Facts]], replication: Replication | None) -> None:
        """`facts` returns those of each shard, without waiting."""
        self._facts, self._replication = facts, replication
        self._registered = threading.Event()

    def register(self, metrics: Metrics) -> None:
        """Add the metrics to a registry."""
        registry, values = metrics.registry, metrics.values
        self._query = Histogram(
            "convoy_ann_query_seconds",
            "Time that a search of queries takes together, without the queue.",
            LABELS,
            registry=registry,
            buckets=_SECONDS,
        ).labels(*values)

        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, LABELS, registry=registry).labels(*values)

        self._queries = counter("convoy_ann_queries", "Queries.")
        self._scanned = counter("convoy_ann_scanned_vectors", "Vectors whose codes or values were compared.")
        self._upserts = counter("convoy_ann_upserts", "Records that were inserted or replaced.")
        self._deletes = counter("convoy_ann_deletes", "Records that were deleted.")
        registry.register(_FactsCollector(values, self._facts))
        registry.register(_KernelCollector(values))
        if self._replication is not None:
            registry.register(_ReplicationCollector(values, self._replication))
        self._registered.set()

    def searched(self, queries: int, scanned: int, seconds: float) -> None:
        """Record a search."""
        if self._registered.is_set():
            self._query.observe(seconds)
            self._queries.inc(queries)
            self._scanned.inc(scanned)

    def upserted(self, records: int) -> None:
        """Record inserted or replaced records."""
        if self._registered.is_set():
            self._upserts.inc(records)

    def deleted(self, records: int) -> None:
        """Record deleted records."""
        if self._registered.is_set():
            self._deletes.inc(records)


class _FactsCollector(Collector):
    """The gauges, which are read at each scrape."""

    def __init__(self, values: Sequence[str], facts: Callable[[], Sequence[Facts]]) -> None:
        self._values, self._facts = list(values), facts

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        facts = self._facts()
        if not facts:
            return
        yield self._gauge("convoy_ann_records", "Records.", sum(one.records for one in facts))
        yield self._gauge(
            "convoy_ann_segments", "Segments of all shards.", sum(one.segments for one in facts)
        )
        sizes = GaugeMetricFamily(
            "convoy_ann_index_bytes", "Bytes of the index, by part.", labels=(*LABELS, "part")
        )
        parts: dict[str, int] = {}
        for one in facts:
            for part, size in one.bytes.items():
                parts[part] = parts.get(part, 0) + size
        for part, size in parts.items():
            sizes.add_metric([*self._values, part], size)
        yield sizes
        recalls = [one.recall for one in facts if one.recall is not None]
        if recalls:
            count = sum(one.queries for one in recalls)
            mean = sum(one.mean * one.queries for one in recalls) / count
            yield self._gauge(
                "convoy_ann_recall_estimate",
                "Mean share of the true nearest records in the results of sampled queries.",
                mean,
            )

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        return _with_value(GaugeMetricFamily(name, text, labels=LABELS), self._values, value)


def _with_value(
    family: GaugeMetricFamily | CounterMetricFamily, values: Sequence[str], value: float
) -> Metric:
    """Return the metric with its only value. `values`: those of LABELS."""
    family.add_metric(values, value)
    return family


class _KernelCollector(Collector):
    """The metrics of the scan's kernel."""

    def __init__(self, values: Sequence[str]) -> None:
        self._values = list(values)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        yield from selected(self._values, KERNEL.name)


class _ReplicationCollector(Collector):
    """The metrics of the replication, which are read at each scrape."""

    def __init__(self, values: Sequence[str], replication: Replication) -> None:
        self._values, self._replication = list(values), replication

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        facts = self._replication.facts()
        if facts is None:
            return
        gauges = {
            "peers": ("Other replicas that were reported.", facts.peers),
            "caught_up": ("1 if this replica has caught up with its peers.", int(facts.caught_up)),
            "unacknowledged": ("Operations that wait for their copies.", facts.unacknowledged),
            "retained_bytes": ("Bytes of the operations that are kept for peers.", facts.retained_bytes),
            "lag_operations": ("Operations that the slowest peer is not known to have.", facts.lag),
        }
        for name, (text, value) in gauges.items():
            gauge = GaugeMetricFamily(f"convoy_ann_replication_{name}", text, labels=LABELS)
            yield _with_value(gauge, self._values, value)
        counters = {
            "sent_operations": ("Operations that were sent to peers.", facts.sent),
            "applied_operations": ("Operations of peers that were applied.", facts.applied),
            "states": ("States of peers that were requested to catch up.", facts.states),
        }
        for name, (text, value) in counters.items():
            counter = CounterMetricFamily(f"convoy_ann_replication_{name}", text, labels=LABELS)
            yield _with_value(counter, self._values, value)
