"""The Prometheus metrics of the selection of a kernel's instruction set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from convoy_workloads.kernels import dispatch
from convoy_workloads.serving.metrics import LABELS


def selected(values: Sequence[str], kernel: str) -> Iterable[Metric]:
    """Yield the metrics of a kernel's selections. `values`: those of `LABELS`."""
    info = GaugeMetricFamily(
        "convoy_kernel_info",
        "1 for the instruction set that a kernel uses; `twin` is numpy.",
        labels=(*LABELS, "kernel", "instruction_set"),
    )
    fallback = CounterMetricFamily(
        "convoy_kernel_fallback",
        "Instruction sets that a kernel does not use by reason: cpu (the processor lacks it), off, "
        "library (it cannot be loaded or built) or differs (its results are wrong).",
        labels=(*LABELS, "kernel", "reason"),
    )
    for one in dispatch.selections():
        if one.kernel == kernel:
            info.add_metric([*values, one.kernel, one.instruction_set], 1)
            reasons = [rejection.reason for rejection in one.rejected.values()]
            for reason in sorted(set(reasons)):
                fallback.add_metric([*values, one.kernel, reason], reasons.count(reason))
    yield from (info, fallback)
