"""Tests of the progress of a job, as it follows from its ranks' reports."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.trainingjob.progress import merge_progress
from convoy_controllers.views import RankView, SlotView
from convoy_crds.trainingjob_status import Progress


def merged(*ranks: dict[str, Any], stored: Progress | None = None) -> Progress:
    """Return the progress that follows from reports of ranks 0, 1 ... of the first incarnation, each at
    step 7.
    """
    views = [
        RankView(number, "RUNNING", **{"step": 7, "time": 70.0, **one}) for number, one in enumerate(ranks)
    ]
    found = merge_progress([SlotView("u", "n", True, incarnation=1, ranks=tuple(views))], 1, stored)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("ranks", "loss", "diverged"),
    [
        pytest.param([{}, {}], None, None, id="none is merged"),
        pytest.param([{}, {"loss": 0.5}], 0.5, None, id="of the lowest rank that knows one"),
        pytest.param([{"loss": 0.0}, {"diverged": True}], 0.0, None, id="of the lowest, which is a number"),
        pytest.param([{}, {"diverged": True}, {"loss": 0.5}], None, True, id="of the lowest, which is none"),
    ],
)
def test_loss_without_a_number_is_reported_as_diverged(
    ranks: list[dict[str, Any]], loss: float | None, diverged: bool | None
) -> None:
    found = merged(*ranks)
    assert (found.loss, found.diverged) == (loss, diverged)
    assert ("diverged" in found.to_dict()) is (diverged is True)


def test_recovered_run_is_no_longer_diverged() -> None:
    stored = merged({"diverged": True})
    assert merged({"step": 8, "loss": 0.5}, stored=stored).diverged is None
