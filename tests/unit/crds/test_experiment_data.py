"""Tests of the short form in which blocks pass to the analysis."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from pydantic import ValidationError

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_data import (
    MAX_BYTES,
    DataMismatch,
    Deviation,
    ExperimentData,
    PackedBlock,
    compressed,
    decompressed,
    pack,
    unpack,
)
from convoy_crds.experiment_plan import MAX_LIMIT, HealthLimit, Outcome, Prediction
from convoy_crds.experiment_schedule import Block, schedule
from convoy_crds.experiment_status import MAX_BLOCKS, BlockStatus
from convoy_crds.meta import Model


def spec(arms: int = 3, outcomes: int = 2, blocks: int = 3, **changes: Any) -> ExperimentSpec:
    simulation = {"simulator": "recovery"}
    named = [
        {
            "name": f"arm-{at:02}-of-the-study",
            "type": "Simulation",
            "role": "Default",
            "simulation": simulation,
        }
        for at in range(arms)
    ]
    measured = [
        {"name": f"outcome{at}", "better": "Lower", "source": {"metric": "seconds"}} for at in range(outcomes)
    ]
    lag = [{"name": "lag", "kind": "ObservationLag", "magnitudes": [10]}]
    return ExperimentSpec.model_validate(
        {
            "arms": named,
            "outcomes": measured,
            "store": "s3",
            "blocks": blocks,
            "perturbations": lag,
            **changes,
        }
    )


def row(of: ExperimentSpec, block: Block, failed: str = "") -> BlockStatus:
    """Return a block whose arm `failed` has failed. Every value of the first outcome is censored."""
    figures = [
        {
            "arm": label,
            "outcome": one.name,
            "value": 1 / (3 + block.id + at),
            "censored": True if at == 0 else None,
        }
        for label in block.labels
        if label != failed
        for at, one in enumerate(of.outcomes)
    ]
    return BlockStatus.model_validate(
        {
            "id": block.id,
            "perturbation": block.cell.perturbation,
            "magnitude": block.cell.magnitude,
            "repetition": block.repetition,
            "seed": block.seed,
            "arms": list(block.labels),
            "figures": figures,
            "failures": [{"arm": failed, "reason": "JobFailed", "message": "exit code 1"}] if failed else [],
            "achieved": [{"arm": block.labels[-1], "magnitude": 9.5}] if block.cell.magnitude else [],
            "startTime": "2026-11-26T20:00:00Z",
            "completionTime": "2026-11-26T20:01:00Z",
        }
    )


def through_json(blocks: list[PackedBlock]) -> list[PackedBlock]:
    return [PackedBlock.model_validate(json.loads(json.dumps(one.to_dict()))) for one in blocks]


@pytest.mark.parametrize("sweep", [None, {"parameters": [{"name": "n", "path": "n", "values": [1, 2]}]}])
def test_blocks_survive_the_short_form(sweep: Any) -> None:
    of = spec(arms=1 if sweep else 3, sweep=sweep)
    blocks = [row(of, one, failed=one.labels[0] if one.id == 1 else "") for one in schedule(of)]
    assert unpack(of, through_json(pack(of, blocks))) == blocks


@pytest.mark.parametrize(("arms", "outcomes"), [(16, 1), (4, 4), (2, 8)])
def test_all_blocks_of_the_largest_experiment_fit_into_parameters(arms: int, outcomes: int) -> None:
    of = spec(arms, outcomes, MAX_BLOCKS // 2)
    blocks = [row(of, one) for one in schedule(of)]
    for block in blocks:
        for figure in block.figures:
            figure.censored = None
    text = json.dumps([one.to_dict() for one in pack(of, blocks)], separators=(",", ":"))
    assert len(blocks) == MAX_BLOCKS
    assert len(text) <= 90 * 1024


def test_data_survive_their_compression() -> None:
    of = spec()
    data = ExperimentData(
        blocks=pack(of, [row(of, one) for one in schedule(of)]),
        tuning=[{"arm": "a", "best": 0.1}],
        deviations=[Deviation(reason="ExperimentStopped", message="\N{SNOWMAN}")],
    )
    assert decompressed(compressed(data)) == data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no base64!", "not base64"),
        (base64.b64encode(b"plain").decode(), "not base64 of zlib"),
        (base64.b64encode(zlib.compress(b"{}" * 999)[:-9]).decode(), "incomplete"),
        (base64.b64encode(zlib.compress(b" " * (MAX_BYTES + 1))).decode(), "more than"),
        (base64.b64encode(zlib.compress(b'{"blocks": 3}')).decode(), "blocks"),
    ],
)
def test_malformed_data_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decompressed(text)


@pytest.mark.parametrize("field", ["censoredAt", "margin", "min"])
def test_limits_that_could_overflow_are_refused(field: str) -> None:
    models: dict[str, tuple[type[Model], dict[str, Any]]] = {
        "censoredAt": (Outcome, {"name": "x", "better": "Lower", "source": {"metric": "x"}}),
        "margin": (
            Prediction,
            {"name": "p", "outcome": "x", "candidate": "a", "comparator": "b", "direction": "Better"},
        ),
        "min": (HealthLimit, {"arm": "a", "outcome": "x"}),
    }
    model, body = models[field]
    model.model_validate({**body, field: MAX_LIMIT})
    with pytest.raises(ValidationError, match="less than or equal to 10"):
        model.model_validate({**body, field: 1.1 * MAX_LIMIT})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 99}, "block 99: the plan has no such block"),
        ({"values": [[1.0, 2.0]]}, "block 0: values must have 3 rows of 2 values"),
        ({"values": [[1.0], [2.0], [3.0]]}, "block 0: values must have 3 rows of 2 values"),
        ({"failures": [(3, "JobFailed", "")]}, "block 0: the plan has only 3 arms"),
    ],
)
def test_rows_that_do_not_fit_the_plan_are_refused(change: dict[str, Any], message: str) -> None:
    of = spec()
    (packed,) = pack(of, [row(of, schedule(of)[0])])
    with pytest.raises(DataMismatch, match=message):
        unpack(of, [packed.model_copy(update=change)])


def test_blocks_of_another_plan_are_refused() -> None:
    of = spec()
    block = row(of, schedule(of)[0])
    block.figures[0].arm = "other"
    with pytest.raises(DataMismatch, match="block 0: it does not belong to the plan: 'other'"):
        pack(of, [block])
