"""The Prometheus metrics of tasks and batches. They are read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from convoy_workloads.engines.fmplex.pods import Pod
from convoy_workloads.engines.fmplex.stats import BOUNDS, OUTCOMES, BatchStats
from convoy_workloads.engines.fmplex.tasks import VirtualModel
from convoy_workloads.serving.metrics import LABELS

TASK = (*LABELS, "task")


class TaskCollector(Collector):
    """The metrics of one engine."""

    def __init__(
        self,
        values: Sequence[str],
        models: Callable[[], list[VirtualModel]],
        pods: Callable[[], list[Pod]],
        batches: BatchStats,
    ) -> None:
        """`values`: values of `LABELS`. `models` and `pods` return those of the engine."""
        self._values = list(values)
        self._models = models
        self._pods = pods
        self._batches = batches

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        models, pods = self._models(), self._pods()
        attached = GaugeMetricFamily("convoy_vfm_attached", "Attached tasks.", labels=LABELS)
        attached.add_metric(self._values, len(models))
        yield attached
        yield self._sizes()
        yield from self._accounts(models, pods)
        yield from self._requests(models)

    def _accounts(self, models: Sequence[VirtualModel], pods: Sequence[Pod]) -> Iterable[Metric]:
        tag = GaugeMetricFamily(
            "convoy_vfm_virtual_time",
            "Start tag of the task's next request: its compute seconds divided by its weight, or the virtual "
            "time of the queue if that is later.",
            labels=TASK,
        )
        waiting = GaugeMetricFamily("convoy_vfm_waiting", "Rows of the task that wait.", labels=TASK)
        weight = GaugeMetricFamily("convoy_vfm_weight", "Weight of the task.", labels=TASK)
        busy = CounterMetricFamily(
            "convoy_vfm_service_seconds",
            "Compute time of the task: its share of the measured time of each batch.",
            labels=TASK,
        )
        for model in models:
            values = [*self._values, model.task.name]
            flow = pods[model.assignment.pod].queue.flow(model.task.name)
            tag.add_metric(values, flow.tag)
            waiting.add_metric(values, flow.waiting)
            weight.add_metric(values, flow.weight)
            busy.add_metric(values, model.stats.busy_seconds)
        yield from (tag, waiting, weight, busy)

    def _requests(self, models: Sequence[VirtualModel]) -> Iterable[Metric]:
        ended = CounterMetricFamily(
            "convoy_vfm_requests",
            "Ended requests of the task by outcome: ok, invalid, refused (its queue was full), failed (its "
            "head failed) or cancelled.",
            labels=(*TASK, "outcome"),
        )
        missed = CounterMetricFamily(
            "convoy_vfm_slo_missed", "Complete requests that took longer than the task's target.", labels=TASK
        )
        latency = HistogramMetricFamily(
            "convoy_vfm_request_seconds", "Time from a request's arrival to its result.", labels=TASK
        )
        for model in models:
            values, stats = [*self._values, model.task.name], model.stats
            for outcome in OUTCOMES:
                ended.add_metric([*values, outcome], stats.outcomes[outcome])
            missed.add_metric(values, stats.slo_missed)
            latency.add_metric(values, _buckets(stats.latencies), stats.seconds)
        yield from (ended, missed, latency)

    def _sizes(self) -> Metric:
        """Return the histogram of the sizes of batches."""
        found = HistogramMetricFamily("convoy_batch_size", "Rows of a batch.", labels=LABELS)
        sizes = dict(self._batches.sizes)
        bounds = [2**power for power in range(11)]
        buckets = [
            (str(float(bound)), float(sum(count for size, count in sizes.items() if size <= bound)))
            for bound in bounds
        ]
        buckets.append(("+Inf", float(sum(sizes.values()))))
        found.add_metric(self._values, buckets, float(sum(size * count for size, count in sizes.items())))
        return found


def _buckets(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return cumulative buckets."""
    names = [*(str(bound) for bound in BOUNDS), "+Inf"]
    return [(name, float(total)) for name, total in zip(names, accumulate(counts), strict=True)]
