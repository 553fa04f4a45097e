"""Tests of casgd's rows in docs/bench/engines_training.json, from made-up results."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_workloads.bench.figures import Figures
from convoy_workloads.engines.casgd import equality, rows
from convoy_workloads.engines.casgd.bench import FULL


def results(
    auto_seconds: float, loss: float = 0.5, extra_calls: int = 0, choice_seconds: float = 0.01
) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for name, variant in rows.VARIANTS.items():
        s = 12 if variant["s"] == "auto" else int(variant["s"])
        calls, size = equality.expected_traffic(s, FULL["iterations"], FULL["batch"], 4)
        one = {
            "seconds": {1: 1.0, 12: auto_seconds}.get(s, 0.3),
            "choice_seconds": choice_seconds if name == rows.AUTO else 0.0,
            "s": s,
            "calls": calls + extra_calls,
            "bytes": size,
            "loss": loss if name == rows.AUTO else 0.5,
        }
        found[name] = [dict(one) for _ in range(5)]
    return found


def missed(**given: Any) -> list[str]:
    found = Figures()
    rows.add_times(found, "loopback", results(**given))
    judged = [row for row in found.rows() if row["target"] is not None]
    assert len(judged) == 4 + 2 * len(rows.VARIANTS)
    return [row["metric"] for row in judged if not row["met"]]


def test_the_targets_are_met_or_missed() -> None:
    without, included = (
        "casgd, loopback: s auto, without its choice, times faster than SGD",
        "casgd, loopback: s auto with its choice, times faster than SGD, 512 iterations",
    )
    assert missed(auto_seconds=0.2) == []
    assert missed(auto_seconds=0.3) == [without, included]
    assert missed(auto_seconds=0.2, choice_seconds=0.07) == [included]
    assert missed(auto_seconds=0.2, loss=0.51) == ["casgd, loopback: largest difference of the loss from SGD"]


@pytest.mark.parametrize("extra", [1, -1])
def test_a_collective_too_many_or_too_few_misses_each_row_of_counts(extra: int) -> None:
    names = missed(auto_seconds=0.2, extra_calls=extra)
    assert len(names) == len(rows.VARIANTS) and all("all-reduces" in name for name in names)


def test_the_control_may_be_off_in_neither_direction() -> None:
    for factor in (0.5, 2.0):
        given = results(auto_seconds=0.2)
        for one in given[rows.AGAIN]:
            one["seconds"] *= factor
        found = Figures()
        rows.add_times(found, "loopback", given)
        assert found.row("casgd, loopback: negative control, SGD against itself")["met"] is False


@pytest.mark.parametrize(
    ("values", "met"),
    [([0.001, -0.002, 0.003] * 3, True), ([0.004, -0.016, 0.02] * 3, False), ([0.001] * 4, False)],
    ids=["small", "too spread", "too few seeds"],
)
def test_the_loss_within_half_a_percent_is_a_test_of_equivalence(values: list[float], met: bool) -> None:
    found = Figures()
    rows.add_precisions(found, "linear", [{"fp32": 0.0, "mixed": one, "data": 0.1} for one in values])
    assert found.row("casgd, linear: difference of the loss, mixed")["met"] is met
    assert found.row("casgd, linear: difference of the loss, data in bf16")["met"] is None


@pytest.mark.parametrize(("value", "met"), [(0.001, False), (0.011, True)])
def test_a_good_recurrence_in_bf16_misses_its_control(value: float, met: bool) -> None:
    found = Figures()
    rows.add_control(found, [{"recurrence": value}] * 8)
    assert found.rows()[0]["met"] is met


def test_equality_needs_every_s_and_exact_counts() -> None:
    good: dict[str, list[Any]] = {"difference": [1e-15] * 256, "excess": [0] * 256, "excess_bytes": [0] * 256}
    bad = {
        "difference": [*good["difference"][:255], 1e-11],
        "excess": [1, *good["excess"][1:]],
        "excess_bytes": [-4, *good["excess"][1:]],
    }
    for given, met in ((good, True), (bad, False)):
        found = Figures()
        rows.add_equality(found, "linear", given)
        *judged, control = found.rows()
        assert [row["met"] for row in judged] == [met] * 3 and control["met"] is True
