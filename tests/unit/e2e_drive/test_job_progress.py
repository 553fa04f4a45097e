"""Tests of values that are read from a job's log."""

from __future__ import annotations

import pytest
from e2e.drive.job_progress import held_out_losses

LOG = """
step 60/180  loss 2.0000  held_out_loss 3.07792  9.0 samples/s
step 96/180  loss 1.9000  held_out_loss 3.07792  9.0 samples/s
incarnation 2 continues after step 50
step 60/180  loss 2.0000  held_out_loss 3.07792  9.0 samples/s
step 120/180  loss 1.8000  held_out_loss 2.78645  9.0 samples/s
"""


def test_a_curve_has_only_steps_with_a_measured_loss() -> None:
    assert held_out_losses(LOG, 60) == {60: "3.07792", 120: "2.78645"}


def test_a_repeated_step_must_have_the_same_loss() -> None:
    with pytest.raises(AssertionError):
        held_out_losses(LOG + "step 60/180  held_out_loss 3.07793\n", 60)
