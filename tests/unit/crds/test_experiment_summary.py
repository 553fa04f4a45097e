"""Tests of the summary of an Experiment's blocks by condition."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.crds.experiments import arm, make_experiment

from convoy_crds.experiment import Experiment
from convoy_crds.experiment_plan import Prediction
from convoy_crds.experiment_schedule import Cell
from convoy_crds.experiment_status import (
    MAX_BLOCKS,
    TunedValue,
    TuningSource,
    TuningStatus,
    Verdict,
    VerdictStatus,
)
from convoy_crds.experiment_summary import (
    arm_labels,
    comparison_title,
    condition_title,
    summarise,
    tuned_values,
    verdict_title,
)

LAG = [{"name": "lag", "kind": "ObservationLag", "magnitudes": [15.0, 60.0]}]


def block(number: int, figures: dict[str, float], **more: Any) -> dict[str, Any]:
    shown = [{"arm": name, "outcome": "late", "value": value} for name, value in figures.items()]
    return {"id": number, "repetition": number, "seed": number, "figures": shown, **more}


def experiment(blocks: list[dict[str, Any]], phase: str = "Succeeded", **spec: Any) -> Experiment:
    made = make_experiment(**spec).to_dict()
    return Experiment.model_validate({**made, "status": {"blocks": blocks, "phase": phase}})


def test_every_condition_has_its_blocks_and_medians() -> None:
    blocks = [
        block(0, {"fast": 1.0, "hpa": 5.0}),
        block(1, {"fast": 2.0, "hpa": 6.0}),
        block(2, {"fast": 9.0}, failures=[{"arm": "hpa", "reason": "JobFailed"}]),
        block(3, {"fast": 4.0, "hpa": 7.0}, perturbation="lag", magnitude=60.0),
    ]
    blocks[3]["figures"][1]["censored"] = True
    plain, short, long = summarise(experiment(blocks, perturbations=LAG))
    assert [one.title for one in (plain, short, long)] == ["unperturbed", "lag 15 s", "lag 60 s"]
    assert [(one.planned, one.ended, one.failed) for one in (plain, short, long)] == [
        (3, 3, 1), (3, 0, 0), (3, 1, 0)
    ]  # fmt: skip
    assert plain.sample("fast", "late").median == 2.0
    assert plain.sample("hpa", "late").values == [5.0, 6.0]
    assert short.sample("fast", "late").median is None
    assert (long.sample("hpa", "late").censored, long.sample("fast", "late").censored) == (1, 0)


def test_values_of_a_comparison_are_not_summarised_before_its_end() -> None:
    (plain,) = summarise(experiment([block(0, {"fast": 1.0, "hpa": 5.0})], phase="Running"))
    assert (plain.ended, plain.samples) == (1, {})


def test_a_block_of_an_unknown_condition_is_left_out() -> None:
    (plain,) = summarise(experiment([block(0, {"fast": 1.0}, perturbation="gone", magnitude=1.0)]))
    assert plain.ended == 0


def test_the_combinations_of_a_sweep_are_its_arms() -> None:
    parameters = [
        {"name": "target", "path": "target", "values": [50, 70]},
        {"name": "policy", "path": "policy", "values": ["hpa", "static"]},
    ]
    swept = make_experiment().to_dict()
    swept["spec"] |= {
        "arms": [arm("one", "Candidate")],
        "sweep": {"parameters": parameters},
        "blocks": 2,
        "predictions": None,
    }
    swept["status"] = {"blocks": [block(0, {"3": 1.0}), block(1, {"3": 2.0})]}
    made = Experiment.model_validate(swept)
    assert arm_labels(made.spec) == {
        "0": "target=50, policy=hpa",
        "1": "target=50, policy=static",
        "2": "target=70, policy=hpa",
        "3": "target=70, policy=static",
    }
    (cell,) = summarise(made)
    assert (cell.planned, cell.ended, cell.sample("3", "late").median) == (8, 2, 1.5)


def test_billions_of_combinations_are_counted_without_being_made() -> None:
    swept = make_experiment().to_dict()
    parameters = [{"name": f"p{n}", "path": f"x{n}", "values": list(range(100))} for n in range(8)]
    swept["spec"] |= {"arms": [arm("one", "Candidate")], "sweep": {"parameters": parameters}}
    swept["spec"] |= {"blocks": 1, "predictions": None}
    made = Experiment.model_validate(swept)
    assert summarise(made)[0].planned == 100**8
    assert len(arm_labels(made.spec)) == MAX_BLOCKS


def test_arms_are_described_by_their_roles() -> None:
    assert arm_labels(make_experiment().spec) == {"fast": "Candidate", "hpa": "Comparator"}


def test_a_comparison_names_contrast_and_margin() -> None:
    made: dict[str, Any] = {
        "name": "p",
        "outcome": "late",
        "candidate": "ours",
        "comparator": "hpa",
        "direction": "NotWorse",
    }
    assert comparison_title(Prediction.model_validate(made)) == "ours not worse than hpa in late"
    made |= {"contrast": "Degradation", "perturbation": "lag", "margin": 2}
    title = "ours not worse than hpa in the degradation of late, margin 2"
    assert comparison_title(Prediction.model_validate(made)) == title


@pytest.mark.parametrize(
    ("kind", "magnitude", "title"),
    [
        ("KillRank", 1.0, "fault 1 kill"),
        ("KillRank", 2.0, "fault 2 kills"),
        ("SlowNode", 2.0, "fault factor 2"),
        ("TelemetryNoise", 0.1, "fault ratio 0.1"),
        ("LinkLimit", 20.0, "fault 20 Mbit/s"),
    ],
)
def test_a_condition_has_its_unit(kind: str, magnitude: float, title: str) -> None:
    spec = make_experiment(perturbations=[{"name": "fault", "kind": kind, "magnitudes": [magnitude]}]).spec
    assert condition_title(spec, Cell("fault", magnitude)) == title


def test_a_verdict_on_unequally_disturbed_arms_says_so() -> None:
    made = VerdictStatus(prediction="p", verdict=Verdict.SUPPORTED)
    assert verdict_title(made) == "Supported"
    made.unequal = True
    assert verdict_title(made) == "Supported (unequal magnitudes)"


def test_tuned_values_name_the_experiment_that_they_come_from() -> None:
    made = TuningStatus(arm="hpa", values=[TunedValue(path="target", value="70", at_edge=True)])
    assert tuned_values(made) == "target=70 (at the edge)"
    made.source = TuningSource(experiment="before", arm="hpa", plan="sha256:00")
    assert tuned_values(made) == "target=70 (at the edge); from arm hpa of experiment/before"
