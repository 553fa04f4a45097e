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
from convoy_workloads.engines.prelort.comparison import PROCESSOR, play
from convoy_workloads.engines.prelort.params import Params
from convoy_workloads.federated.aggregation import aggregate
from convoy_workloads.federated.levels import Levels
from convoy_workloads.federated.update import Update


def test_a_gain_is_oriented_and_has_its_interval() -> None:
    results = {
        rows.PRELORT: {"accuracy, rank 2": [0.8, 0.9] * 3, "perplexity, rank 2": [10.0, 11.0] * 3},
        rows.ZEROPAD: {"accuracy, rank 2": [0.7, 0.7] * 3, "perplexity, rank 2": [12.0, 12.0] * 3},
    }
    found = Figures()
    for figure in ("accuracy, rank 2", "perplexity, rank 2"):
        rows._gain(found, "digits", results, (rows.PRELORT, rows.ZEROPAD), figure)
    rows._gain(found, "digits", results, (rows.PRELORT, rows.PRELORT), "accuracy, rank 2")
    more, less = found.rows()
    assert (more["metric"], more["value"], more["met"]) == (
        "prelort, digits, gains: prelort, more accuracy, rank 2, than zero-padding",
        pytest.approx(0.15),
        True,
    )
    assert less["value"] == pytest.approx(1.5) and "less perplexity" in less["metric"]
    assert more["spread"].endswith("6 seeds") and "0.1000 to 0.2000" in more["spread"]


def test_a_gain_that_is_not_significant_misses_its_target() -> None:
    results = {
        rows.PRELORT: {"accuracy, rank 2": [0.9, 0.5, 0.6, 0.5, 0.9]},
        rows.ZEROPAD: {"accuracy, rank 2": [0.6] * 5},
    }
    found = Figures()
    rows._gain(found, "digits", results, (rows.PRELORT, rows.ZEROPAD), "accuracy, rank 2")
    (row,) = found.rows()
    assert row["value"] == pytest.approx(0.08) and row["met"] is False


@pytest.mark.parametrize(
    ("ours", "met"),
    [
        ([9.0] * 5, True),
        ([10.02] * 5, True),
        ([10.2] * 5, False),
        ([9.5, 10.6] * 3, False),
        ([10.0] * 4, False),
    ],
    ids=["lower", "higher within the margin", "higher", "too spread", "too few seeds"],
)
def test_lower_or_equal_perplexity_needs_proof(ours: list[float], met: bool) -> None:
    name = "perplexity, rank 2"
    results = {rows.PRELORT: {name: ours}, rows.ZEROPAD: {name: [10.0] * len(ours)}}
    found = Figures()
    rows._not_worse(found, results, (rows.PRELORT, rows.ZEROPAD), 2)
    assert found.rows()[0]["met"] is met


@pytest.mark.parametrize(("perplexity", "met"), [(5.9, True), (16.0, False)])
def test_rouge_l_of_a_weak_model_is_marked_as_no_evidence(perplexity: float, met: bool) -> None:
    scores = {f"{name}, rank {rank}": [1.0] * 5 for name in ("perplexity", "ROUGE-L") for rank in (2, 16)}
    scores |= {"perplexity, rank 16": [perplexity] * 5, "passes": [8.0] * 5, PROCESSOR: [1.0] * 5}
    found = Figures()
    rows.add_text(found, dict.fromkeys((*rows.OURS, rows.ZEROPAD), scores))
    listed = found.rows()
    assert [row["met"] for row in listed if "is evidence" in row["metric"]] == [met]
    marked = [row["metric"] for row in listed if "no evidence" in row["spread"]]
    assert marked == (
        []
        if met
        else [row["metric"] for row in listed if ", rank" in row["metric"] and "ROUGE" in row["metric"]]
    )


@pytest.mark.parametrize(
    ("given", "equal", "passes"),
    [({"nested": True}, False, 2 * (1 + 2)), ({"nested": False}, False, 4), ({"nested": False}, True, 6)],
)
def test_equal_passes_are_those_of_nested_clients(given: dict[str, Any], equal: bool, passes: int) -> None:
    small = {"clients": [2, 4], "ranks": [2, 4], "steps": 1, "local_steps": 2, "pretrain_steps": 1}
    found = play(Params.model_validate({**small, **given}), equal_passes=equal)
    assert found["passes"] == passes and found[PROCESSOR] >= 0


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
