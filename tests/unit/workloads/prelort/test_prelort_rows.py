"""Tests of prelort's rows in docs/bench/engines_training.json, from made-up results, and of Flower as a
peer.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from convoy_workloads.bench.figures import Figures
from convoy_workloads.engines.prelort import flower, rows
from convoy_workloads.federated.aggregation import aggregate
from convoy_workloads.federated.levels import Levels
from convoy_workloads.federated.update import Update


def test_a_gain_is_oriented_and_has_its_interval() -> None:
    results = {
        rows.PRELORT: {"accuracy, rank 2": [0.8, 0.9], "perplexity, rank 2": [10.0, 11.0]},
        rows.ZEROPAD: {"accuracy, rank 2": [0.7, 0.7], "perplexity, rank 2": [12.0, 12.0]},
    }
    found = Figures()
    for figure in ("accuracy, rank 2", "perplexity, rank 2"):
        rows._gain(found, "digits", results, (rows.PRELORT, rows.ZEROPAD), figure, 0.1)
    rows._gain(found, "digits", results, (rows.PRELORT, rows.PRELORT), "accuracy, rank 2", 0.1)
    more, less = found.rows()
    assert (more["metric"], more["value"], more["met"]) == (
        "prelort, digits, gains: prelort, more accuracy, rank 2, than zero-padding",
        pytest.approx(0.15),
        True,
    )
    assert less["value"] == pytest.approx(1.5) and "less perplexity" in less["metric"]
    assert more["spread"].endswith("2 seeds") and "0.1000 to 0.2000" in more["spread"]


def test_flower_gets_padded_adapters_and_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    def weighted(results: list[tuple[list[np.ndarray], int]]) -> list[np.ndarray]:
        """Return what flwr.server.strategy.aggregate.aggregate returns."""
        total = sum(count for _, count in results)
        layers = zip(*([layer * count for layer in layers] for layers, count in results), strict=True)
        return [sum(one) / total for one in layers]  # type: ignore[misc]

    module: Any = ModuleType("flwr.server.strategy.aggregate")
    module.aggregate = weighted
    monkeypatch.setitem(sys.modules, "flwr.server.strategy.aggregate", module)
    levels = Levels((2, 4))
    before = {"layer": (torch.randn(4, 3), torch.randn(5, 4))}
    updates = [
        Update("a", 1, 2, 10, {"layer": (torch.randn(2, 3), torch.randn(5, 2))}),
        Update("b", 1, 4, 30, {"layer": (torch.randn(4, 3), torch.randn(5, 4))}),
    ]
    theirs = flower.fedavg(levels, before, updates)["layer"]
    ours = aggregate("zeropad", levels, before, updates)["layer"]
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(ours, theirs, strict=True))
