"""Tests of the plots of a report."""

from __future__ import annotations

import re

from tests.unit.workloads.experiments.plans import PREDICTION, blocks, outcome, plan, shifted

from convoy_workloads.experiments.artefact import result_files


def test_a_plot_says_what_it_shows() -> None:
    lag = {"name": "lag", "kind": "ObservationLag", "magnitudes": [60]}
    document = plan(
        unperturbed=False,
        perturbations=[lag],
        predictions=[{**PREDICTION, "perturbation": "lag"}],
        outcomes=[outcome("seconds", "Lower", unit="s"), outcome("offered", "Neither")],
    )
    page = result_files(document, blocks(document, shifted(3)), [])[1]["report.html"].decode()
    [_, forest, curve] = page.split("<figcaption>")
    assert "Dot: mean; line: interval; ticks: pairs" in forest
    assert re.search(r"the level 0\.95\b", page)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", curve)
    assert {"lag (ObservationLag) in s", "seconds in s", "mean, 95 % interval"} <= set(texts)
    assert [one for one in texts if one.startswith(("59", "60", "61"))] == ["60"]
