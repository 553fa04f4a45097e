"""The Prometheus metrics of the kernels. They are read at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from convoy_workloads.engines.tilefuse.packed_linear import Counters
from convoy_workloads.serving.kernel_metrics import selected
from convoy_workloads.serving.metrics import LABELS


class KernelCollector(Collector):
    """The metrics of the kernels of one engine."""

    def __init__(self, values: Sequence[str], kernel: str, counters: Counters) -> None:
        """`values`: values of `LABELS`."""
        self._values = list(values)
        self._kernel = kernel
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        yield from selected(self._values, self._kernel)
        seconds = CounterMetricFamily(
            "convoy_kernel_seconds",
            "Seconds of products by kernel and shape of the weights (outputs x inputs).",
            labels=(*LABELS, "kernel", "shape"),
        )
        for shape, value in dict(self._counters.seconds).items():
            seconds.add_metric([*self._values, self._kernel, shape], value)
        read = CounterMetricFamily(
            "convoy_kernel_bytes",
            "Bytes of packed weights that products have read.",
            labels=(*LABELS, "kernel"),
        )
        read.add_metric([*self._values, self._kernel], self._counters.bytes)
        yield from (seconds, read)
