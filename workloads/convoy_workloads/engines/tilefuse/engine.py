"""The engine that serves a quantised language model: the engine lm with packed weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from convoy_workloads.engines.lm.engine import MAX_GROUP, LanguageModel, limits
from convoy_workloads.engines.lm.models import LoadedModel
from convoy_workloads.engines.tilefuse import loading
from convoy_workloads.engines.tilefuse.metrics import KernelCollector
from convoy_workloads.engines.tilefuse.packed_linear import Counters
from convoy_workloads.engines.tilefuse.params import Params
from convoy_workloads.kernels.threads import available_threads
from convoy_workloads.serving.group import Group
from convoy_workloads.serving.metrics import Metrics
from convoy_workloads.serving.rank import run


class QuantisedLanguageModel(LanguageModel):
    """The engine of one rank. It computes on CPUs."""

    def __init__(self, params: Params, path: Path | None, group: Group | None = None) -> None:
        """`path`: folder of the model; None to use the engine's own model."""
        super().__init__(params, path, torch.device("cpu"), group)
        self._quantised = params
        self._counters = Counters()

    def register(self, metrics: Metrics) -> None:
        """Add the metrics of the kernels."""
        scheme = self._quantised.quant.scheme
        if scheme != "bf16":
            metrics.registry.register(KernelCollector(metrics.values, scheme, self._counters))

    def _read(self, renew: Callable[[], None]) -> LoadedModel:
        return loading.load(self._path, self._quantised, self._counters, renew)


def make(params: Params, path: Path | None, group: Group) -> QuantisedLanguageModel:
    """Return the engine."""
    threads = params.threads or available_threads()
    # Torch's part is small, and with one thread its elementwise functions compute all rows alike.
    torch.set_num_threads(threads if params.quant.scheme == "bf16" else 1)
    return QuantisedLanguageModel(params.model_copy(update={"threads": threads}), path, group)


def main() -> None:
    """Run one rank of a replica."""
    run("tilefuse", Params, make, limits, MAX_GROUP)


if __name__ == "__main__":
    main()
