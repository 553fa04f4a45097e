"""Tests of what deviates from a plan, of unequal conditions of arms, and of results that barely fit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.workloads.experiments.plans import PREDICTION, arm, blocks, plan, shifted

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_data import Deviation, ExperimentData, pack
from convoy_crds.experiment_status import BlockStatus, Verdict
from convoy_workloads.experiments.analysis import analyse
from convoy_workloads.experiments.artefact import analysed, result_files
from convoy_workloads.experiments.compact import MAX_BYTES, compact
from convoy_workloads.experiments.health import flags
from convoy_workloads.experiments.register import power_problem
from convoy_workloads.experiments.result import ControlResult
from convoy_workloads.experiments.verify import verify

LAG = [{"name": "lag", "kind": "ObservationLag", "magnitudes": [10]}]
STOPPED = {"reason": "ExperimentStopped", "message": "spec.stop became true after 8 of 10 blocks"}


def test_what_the_operator_has_seen_is_in_report_data_and_statement_and_is_verified() -> None:
    document = plan()
    spec = ExperimentSpec.model_validate(document["spec"])
    rows = [BlockStatus.model_validate(one) for one in blocks(document, shifted(3))[:8]]
    data = ExperimentData(blocks=pack(spec, rows), deviations=[Deviation.model_validate(STOPPED)])
    result, files = analysed(document, data)
    line = "Deviation from the plan: ExperimentStopped: spec.stop became true after 8 of 10 blocks."
    assert line in files["report.md"].decode() and line in files["report.html"].decode()
    assert json.loads(files["data.json"])["deviations"] == [STOPPED]
    predicate = json.loads(files["result.intoto.json"])["predicate"]
    assert predicate["deviations"] == ["ExperimentStopped: spec.stop became true after 8 of 10 blocks"]
    assert result.hypotheses[0].verdict is Verdict.SUPPORTED
    assert verify(files) == []


def test_an_experiment_with_too_many_failed_blocks_has_no_verdicts() -> None:
    document, failed = plan(), {"reason": "TooManyFailedBlocks", "message": "4 blocks failed"}
    result, files = result_files(document, blocks(document, shifted(3)), [], [failed], drawn=False)
    assert (result.valid, result.hypotheses[0].verdict) == (True, None)
    assert "There are no verdicts: the experiment failed: 4 blocks failed." in files["report.md"].decode()
    assert json.loads(files["result.intoto.json"])["predicate"]["result"] == "FAILED"
    assert compact(result)["verdicts"] == []


@pytest.mark.parametrize(("reached", "unequal"), [(9.5, False), (6.0, True)])
def test_arms_that_were_not_disturbed_equally_are_named_beside_the_verdict(
    reached: float, unequal: bool
) -> None:
    document = plan(perturbations=LAG, predictions=[{**PREDICTION, "perturbation": "lag"}])
    rows = blocks(document, shifted(3))
    for row in rows:
        if row.get("magnitude"):
            row["achieved"] = [{"arm": "ours", "magnitude": reached}, {"arm": "theirs", "magnitude": 10}]
    result = analyse(document, rows)
    (found,) = result.hypotheses
    assert (found.achieved_candidate, found.achieved_comparator) == (reached, 10)
    assert found.unequal is unequal
    told = "the perturbation reached 6 in ours and 10 in theirs on average"
    assert (told in found.reason) is unequal
    assert compact(result)["verdicts"][0][-1] == int(unequal)


def test_arms_with_other_requests_are_flagged() -> None:
    def served(name: str, role: str, **load: Any) -> dict[str, Any]:
        return {"name": name, "type": "ServingJob", "role": role, "template": {"spec": {}}, "load": load}

    arms = [
        served("ours", "Candidate", rate=5, stream=True),
        served("theirs", "Comparator", rate=9, seconds=3, stream=True),
        served("worse", "PositiveControl", rate=90) | {"controlOf": "ours"},
    ]
    spec = ExperimentSpec.model_validate(plan(arms=arms)["spec"])
    assert "arms ours and theirs get different requests: load.rate, load.seconds" in flags(spec, [])
    spec.arms[1].load = {"stream": True, "rate": 5}
    assert not [one for one in flags(spec, []) if "requests" in one]


def test_the_largest_result_fits_into_the_status_of_a_job() -> None:
    document = plan(arms=[arm("ours", "Candidate"), arm("theirs", "Comparator")])
    result = analyse(document, blocks(document, shifted(3)))
    huge = result.hypotheses[0].model_copy(
        update={
            "prediction_index": 15,
            "magnitude_index": 7,
            "verdict": Verdict.COMPARATOR_COLLAPSED,
            "effect": -1.2345678e100,
            "low": -1.2345678e-100,
            "high": 1.2345678e100,
            "p": 1.2345678e-5,
            "minimum_effect": 1.2345678e-100,
            "blocks": 200,
            "unequal": True,
        }
    )
    controls = [ControlResult(name=f"equal {'x' * 63}", passed=True, message="y" * 300)] * 14
    full = result.model_copy(update={"hypotheses": [huge] * 32, "controls": controls})
    short = compact(full)
    assert len(json.dumps(short, separators=(",", ":"))) <= MAX_BYTES
    assert (len(short["verdicts"]), short["controls"]) == (32, [])
    assert short["verdicts"][0][3] == pytest.approx(-1.23e100, rel=0.03)
    invalid = full.model_copy(
        update={
            "hypotheses": [huge.model_copy(update={"verdict": None})] * 32,
            "controls": [one.model_copy(update={"passed": False}) for one in controls],
        }
    )
    assert len(compact(invalid)["controls"]) == 14


@pytest.mark.parametrize(
    ("number", "directions", "part"),
    [
        (5, ["NotWorse"], ""),
        (5, ["NotWorse", "Better"], "0.0312, but 2 hypotheses at alpha 0.05 need 0.025"),
        (6, ["NotWorse", "Better"], ""),
        (5, ["Better"], "a test with two sides (Better, Worse) is 0.0625"),
        (6, ["NotWorse", "NotWorse", "Better", "Better"], "set blocks to 7 or more"),
        (7, ["NotWorse", "NotWorse", "Better", "Better"], ""),
    ],
)
def test_each_kind_of_test_must_be_able_to_decide(number: int, directions: list[str], part: str) -> None:
    predictions = [
        {**PREDICTION, "name": f"p{at}", "direction": direction} for at, direction in enumerate(directions)
    ]
    found = power_problem(ExperimentSpec.model_validate(plan(blocks=number, predictions=predictions)["spec"]))
    assert (part in found) and bool(part) is bool(found), found
