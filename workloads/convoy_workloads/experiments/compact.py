"""The short form of a result, which fits into the status of the analysis job."""

from __future__ import annotations

import json
from typing import Any

from convoy_crds.experiment_hash import digest
from convoy_workloads.experiments.result import Result, rounded

MAX_BYTES = 3400
"""Maximum bytes of the short form as JSON. A job's result may have 3,500."""
DIGITS = 5
_MESSAGE_LENGTHS = (200, 100, 50, 20, 0)


def compact(result: Result) -> dict[str, Any]:
    """Return the digest, the controls and the verdicts. Messages of controls are shortened until all fits."""
    verdicts = [
        [
            one.prediction_index,
            one.magnitude_index,
            one.verdict.value,
            one.effect,
            one.low,
            one.high,
            one.p,
            one.minimum_effect,
            one.blocks,
        ]
        for one in result.hypotheses
        if one.verdict is not None
    ]
    found: dict[str, Any] = {}
    for length in _MESSAGE_LENGTHS:
        found = {
            "digest": digest(result.document()),
            "valid": result.valid,
            "controls": [[one.name, one.passed, one.message[:length]] for one in result.controls],
            "verdicts": rounded(verdicts, DIGITS),
        }
        if len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()) <= MAX_BYTES:
            break
    return found
