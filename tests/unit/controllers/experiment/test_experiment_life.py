"""Tests of an Experiment's life: the phases, and the jobs in each of them."""

from __future__ import annotations

import json

import pytest

from convoy_controllers.experiment.names import MAX_NAME
from convoy_crds.experiment_hash import plan_document, plan_hash
from convoy_crds.experiment_schedule import schedule

from .labs import VERDICT, Lab


def condition(lab: Lab, kind: str) -> tuple[str, str] | None:
    """Return status and reason of a condition; None without it."""
    found = next((one for one in lab.status.conditions if one.type == kind), None)
    return (found.status, found.reason) if found else None


def test_an_experiment_goes_through_all_phases() -> None:
    lab, phases = Lab(), []
    lab.step()
    phases.append(lab.status.phase.value)
    lab.register()
    phases.append(lab.status.phase.value)
    lab.run_all()
    phases.append(lab.status.phase.value)
    lab.analyse()
    phases.append(lab.status.phase.value)
    assert phases == ["Registering", "Running", "Analysing", "Succeeded"]
    assert lab.status.progress == "3/3"
    assert lab.status.summary == "1 Supported"
    assert lab.status.artefact.digest == "sha256:1"
    assert lab.status.verdicts[0].low == VERDICT[4]
    assert [condition(lab, kind) for kind in ("Valid", "Registered", "PlanKept", "Complete")] == [
        ("True", "Accepted"),
        ("True", "PlanRegistered"),
        ("True", "PlanKept"),
        ("True", "VerdictsReady"),
    ]


def test_the_plan_that_is_registered_has_the_hash_of_the_status() -> None:
    lab = Lab()
    lab.settle()
    given = lab.params(lab.named("-plan-"))
    assert given["plan"] == plan_document("trial", lab.raw, lab.status.plan.engines)
    assert lab.status.plan.hash == plan_hash(given["plan"])
    assert [one.name for one in lab.status.plan.engines] == ["experiment-analysis", "experiment-simulation"]


def test_no_run_starts_before_the_store_has_the_plan() -> None:
    lab = Lab()
    lab.settle()
    assert lab.status.phase == "Registering"
    assert lab.created == [lab.named("-plan-")]


def test_another_hash_of_the_plan_ends_the_experiment() -> None:
    lab = Lab()
    lab.settle()
    lab.end(lab.named("-plan-"), {"planHash": "sha256:else"})
    lab.settle()
    assert (lab.status.phase, lab.status.reason) == ("Failed", "PlanMismatch")
    assert condition(lab, "Failed") == ("True", "PlanMismatch")


def test_a_refused_plan_ends_the_experiment_with_the_reason() -> None:
    lab = Lab()
    lab.settle()
    lab.end(lab.named("-plan-"), None, "Failed", reason="ParamsRefused", message="9 blocks are needed")
    lab.settle()
    assert (lab.status.phase, lab.status.reason) == ("Failed", "RegistrationFailed")
    assert "9 blocks are needed" in lab.status.message


def test_runs_follow_the_schedule_one_after_the_other() -> None:
    lab = Lab()
    lab.register()
    lab.run_all()
    started = [lab.manifests[name]["metadata"]["labels"] for name in lab.created if "-b" in name]
    found = [(int(one["convoy.dev/block"]), one["convoy.dev/arm"]) for one in started]
    assert found == [(block.id, arm) for block in schedule(lab.experiment.spec) for arm in block.arms]


def test_a_run_gets_the_simulator_and_the_seed_of_its_block() -> None:
    perturbations = [
        {
            "name": "lag",
            "kind": "ObservationLag",
            "magnitudes": [15],
            "startSeconds": 5,
            "durationSeconds": 60,
        }
    ]
    lab = Lab(perturbations=perturbations)
    lab.register()
    lab.run_all()
    for block in schedule(lab.experiment.spec):
        (name,) = [one for one in lab.created if f"-b{block.id}-hpa-" in one]
        params = lab.params(name)
        assert (params["action"], params["simulator"], params["seed"]) == ("run", "autoscaling", block.seed)
        expected = {"kind": "ObservationLag", "magnitude": 15.0, "start": 5.0, "duration": 60.0}
        assert params.get("perturbation") == (expected if block.cell.perturbation else None)


def test_rows_have_the_figures_of_their_own_runs() -> None:
    lab = Lab()
    lab.register()
    lab.run_all(lambda params: {"latePercent": params["seed"] % 1000 + 0.5})
    for row in lab.status.blocks:
        assert [figure.value for figure in row.figures] == [row.seed % 1000 + 0.5] * 2
        assert [figure.arm for figure in row.figures] == row.arms
        assert not row.failed


def test_the_analysis_gets_the_plan_and_all_blocks() -> None:
    lab = Lab()
    lab.register()
    lab.run_all()
    params = lab.params(lab.named("-result-"))
    assert (params["action"], plan_hash(params["plan"])) == ("analyse", lab.status.plan.hash)
    assert [one.id for one in lab.data.blocks] == [0, 1, 2]


def test_a_failed_control_gives_no_verdicts() -> None:
    lab = Lab()
    lab.register()
    lab.run_all()
    lab.analyse(valid=False, controls=[["A/A late", False, "p=0.001"]])
    assert (lab.status.phase, lab.status.reason) == ("Invalid", "ControlFailed")
    assert lab.status.verdicts == []
    assert "A/A late" in lab.status.message
    assert lab.status.artefact.digest == "sha256:1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"digest": 3},
        {"valid": "yes"},
        {"controls": [["one"]]},
        {"controls": [["one", "yes", ""]]},
        {"verdicts": [[5, *VERDICT[1:]]]},
        {"verdicts": [[0, None, "Perhaps", *VERDICT[3:]]]},
        {"verdicts": [[0, None, "Supported", "much", *VERDICT[4:]]]},
        {"verdicts": "none"},
        {"verdicts": [VERDICT] * 33},
    ],
)
def test_a_malformed_analysis_ends_the_experiment_and_keeps_the_blocks(wrong: dict[str, object]) -> None:
    lab = Lab()
    lab.register()
    lab.run_all()
    lab.analyse(**wrong)  # type: ignore[arg-type]
    assert (lab.status.phase, lab.status.reason) == ("Failed", "AnalysisFailed")
    assert len(lab.status.blocks) == 3


def test_no_run_is_left_at_the_end() -> None:
    lab = Lab()
    lab.register()
    lab.run_all()
    lab.analyse()
    assert lab.active == []
    assert not [name for name in lab.jobs if "-b" in name]
    assert lab.status.runs == []


def test_long_names_are_shortened_and_stay_different() -> None:
    arms = [
        {"name": f"{'arm' * 5}-{end}", "type": "Simulation", "role": role, "simulation": {"simulator": "a"}}
        for end, role in (("one", "Candidate"), ("two", "Comparator"))
    ]
    prediction = {"name": "p", "outcome": "late", "direction": "Better"}
    names = {"candidate": arms[0]["name"], "comparator": arms[1]["name"]}
    lab = Lab(arms=arms, predictions=[{**prediction, **names}])
    lab.experiment.metadata.name = "n" * 30
    lab.register()
    lab.run_all()
    assert len(lab.created) == len(set(lab.created)) == 3 * 2 + 2
    assert max(map(len, lab.created)) <= MAX_NAME


def test_a_deleted_experiment_does_nothing() -> None:
    lab = Lab()
    lab.register()
    lab.experiment.metadata.deletion_timestamp = lab.now
    assert lab.plan() == type(lab.plan())()


def test_the_messages_of_failed_runs_have_a_limit_together() -> None:
    lab = Lab(blocks=10, maxFailedBlocks=10)
    lab.register()
    while runs := [name for name in lab.active if "-b" in name]:
        for name in runs:
            lab.end(name, None, "Failed", reason="Crashed", message="\N{SNOWMAN}" * 300)
        lab.settle()
    failures = [one for row in lab.status.blocks for one in row.failures]
    messages = [one.message for one in failures if one.message]
    assert [one.reason for one in failures] == ["JobFailed"] * 20
    assert 0 < len(messages) < len(failures) and [one.message for one in failures[:5]] == messages[:5]
    assert len(json.dumps(messages)) <= 25 * 1024
