"""Compares the status of an Experiment with the files in its store. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from convoy_crds.experiment_status import BlockStatus, ExperimentStatus
from convoy_crds.shown import shown

DATA_FILE, RESULT_FILE = "data.json", "result.json"


def status_differences(files: Mapping[str, bytes], status: ExperimentStatus) -> Iterator[str]:
    """Yield a line for each block, verdict and control that differs. Raises ValueError if the data are
    malformed. A missing or malformed result has no verdicts and no controls.
    """
    data, result = json.loads(files[DATA_FILE]), json.loads(files.get(RESULT_FILE, b"{}"))
    blocks = [BlockStatus.model_validate(row) for row in data["blocks"]]
    yield from _compared(
        "blocks",
        {one.id: _content(one) for one in status.blocks},
        {one.id: _content(one) for one in blocks},
    )
    verdicts = {
        (one.prediction, one.perturbation, one.magnitude): one.verdict.value for one in status.verdicts
    }
    computed = {
        (one.get("prediction"), one.get("perturbation", ""), one.get("magnitude")): one["verdict"]
        for one in _rows(result, "hypotheses")
        if one.get("verdict")
    }
    yield from _compared("verdicts", verdicts, computed)
    controls = {one.get("name"): one.get("passed") for one in _rows(result, "controls")}
    yield from _compared("controls", {one.name: one.passed for one in status.controls}, controls)


def _rows(result: Any, name: str) -> list[dict[str, Any]]:
    found = result.get(name) if isinstance(result, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _content(block: BlockStatus) -> dict[str, Any]:
    """Return the content of a block. The order of its figures says nothing."""
    found = block.to_dict()
    return {
        **found,
        "figures": {f"{one.arm} {one.outcome}": (one.value, bool(one.censored)) for one in block.figures},
        "failures": {one.arm: (one.reason, one.message) for one in block.failures},
        "achieved": {one.arm: one.magnitude for one in block.achieved},
    }


def _compared(where: str, status: Mapping[Any, Any], stored: Mapping[Any, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*status, *stored]):
        ours, theirs = status.get(key), stored.get(key)
        name = key if not isinstance(key, tuple) else " ".join(str(one) for one in key if one)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            yield from _compared(f"{where} {name}", ours, theirs)
        elif ours != theirs:
            yield f"status.{where} {name}: status {_short(ours)}, store {_short(theirs)}"


def _short(value: Any) -> str:
    return "nothing" if value is None else shown(value, 200)
