"""Warnings about a prediction: what the recording does not show, or the model does not explain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from convoy_workloads.traces.predict.calibration import Calibration

MAX_ERROR = 0.25
"""Largest error of a fit, and of the recorded step as the fitted links give it, without a warning."""
MIN_COMMUNICATIONS = 10
"""Least number of communications without a warning: five for each of latency and bandwidth."""
_CALIBRATE = "--calibrate takes the links from the traces of another job"


class FitCode(StrEnum):
    """Kind of a warning."""

    FIT_ERROR = "FitError"
    """The fitted links do not give the recorded times of communications."""
    STEP_ERROR = "StepError"
    """The fitted links do not give the recorded time of a step."""
    FEW_COMMUNICATIONS = "FewCommunications"
    ONE_SIZE = "OneSize"
    """All communications have the same number of bytes."""


@dataclass(frozen=True, slots=True)
class FitWarning:
    """One reason to distrust a prediction, and what to do about it."""

    code: FitCode
    message: str


def fit_warnings(calibration: Calibration, recorded_us: float, modelled_us: float) -> Iterator[FitWarning]:
    """Yield the warnings of a calibration.

    `recorded_us`: recorded time of a step. `modelled_us`: the time of the same step on the fitted links.
    """
    if calibration.error > MAX_ERROR:
        text = (
            f"the fitted links are {calibration.error:.1%} off the recorded communications, more than "
            f"{MAX_ERROR:.0%}: do not rely on predictions for other speeds"
        )
        yield FitWarning(FitCode.FIT_ERROR, text)
    if recorded_us > 0 and abs(modelled_us / recorded_us - 1) > MAX_ERROR:
        text = (
            f"with the fitted links, the recorded step takes {modelled_us / recorded_us:.3f} of its recorded "
            "time: compare predictions with each other, not with the recorded step"
        )
        yield FitWarning(FitCode.STEP_ERROR, text)
    if calibration.transfers < MIN_COMMUNICATIONS:
        text = (
            f"only {calibration.transfers} communication(s) with bytes, fewer than {MIN_COMMUNICATIONS}: "
            f"record more steps; {_CALIBRATE}"
        )
        yield FitWarning(FitCode.FEW_COMMUNICATIONS, text)
    if calibration.sizes == 1:
        text = (
            f"all communications have one size, so latency and bandwidth cannot be told apart; {_CALIBRATE}"
        )
        yield FitWarning(FitCode.ONE_SIZE, text)
