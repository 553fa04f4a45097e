"""The short form of a result, which fits into the status of the analysis job."""

from __future__ import annotations

import json
from typing import Any

from convoy_crds.experiment_hash import digest
from convoy_workloads.experiments.result import HypothesisResult, Result, rounded

MAX_BYTES = 3400
"""Maximum bytes of the short form as JSON. A job's result may have 3,500."""
_LEVELS = (
    *((5, length, True) for length in (200, 100, 50, 20, 0)),
    *((digits, 0, False) for digits in (5, 4, 3, 2)),
)
"""Significant digits of the numbers, characters of a control's message, and whether controls that passed are
listed. Each level is shorter than the one before.
"""


def compact(result: Result) -> dict[str, Any]:
    """Return the digest, the controls and the verdicts. If they do not fit, messages of controls become
    shorter, then controls that passed are left out, and at last the numbers get fewer digits.
    """
    found: dict[str, Any] = {}
    for digits, length, passed in _LEVELS:
        controls = [one for one in result.controls if passed or not one.passed]
        found = {
            "digest": digest(result.document()),
            "valid": result.valid,
            "controls": [[one.name, one.passed, one.message[:length]] for one in controls],
            "verdicts": [
                [*_where(one), one.verdict.value, *_numbers(one, digits), one.blocks, int(one.unequal)]
                for one in result.hypotheses
                if one.verdict is not None
            ],
        }
        if len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()) <= MAX_BYTES:
            break
    return found


def _where(one: HypothesisResult) -> tuple[int, int | None]:
    return one.prediction_index, one.magnitude_index


def _numbers(one: HypothesisResult, digits: int) -> Any:
    return rounded([one.effect, one.low, one.high, one.p, one.minimum_effect], digits)
