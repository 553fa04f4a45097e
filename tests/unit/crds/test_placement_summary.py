"""Tests of the texts about compared places."""

from __future__ import annotations

import pytest

from convoy_crds.placement import PlacementAdvice, RankedPlace
from convoy_crds.placement_summary import advice_lines

PLACES = [
    RankedPlace(name="rack-b first", step_ms=151.04, bottleneck="node-0 -> rack-0"),
    RankedPlace(name="packed", step_ms=268.4),
]


@pytest.mark.parametrize(
    ("advice", "lines"),
    [
        (PlacementAdvice(), []),
        (PlacementAdvice(skipped="no label"), [("Places", "not compared: no label")]),
        (
            PlacementAdvice(places=PLACES, chosen="packed"),
            [("Places", "rack-b first: 151 ms, busiest link node-0 -> rack-0; packed: 268.4 ms (here)")],
        ),
        (PlacementAdvice(predicted_ms=100.0), [("Predicted step", "100 ms")]),
        (
            PlacementAdvice(predicted_ms=100.0, measured_ms=80.0, error_percent=25.0),
            [("Predicted step", "100 ms, measured 80 ms (+25 %)")],
        ),
    ],
)
def test_the_advice_is_shown_in_lines(advice: PlacementAdvice, lines: list[tuple[str, str]]) -> None:
    assert advice_lines(advice) == lines
