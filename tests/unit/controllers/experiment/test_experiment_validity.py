"""Tests of the checks of an Experiment, of its tuning, and of its sweeps."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.crds.experiments import arm, make_experiment

from convoy_controllers.children import Check
from convoy_controllers.experiment.spec_problems import spec_problems
from convoy_controllers.testing.builders import make_engine, make_store
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.experiment_plan import TuningSettings
from convoy_crds.experiment_schedule import tuning_seed
from convoy_crds.experiment_status import (
    ExperimentPhase,
    PlanStatus,
    TunedValue,
    TuningSource,
    TuningStatus,
)

from .labs import Lab

JOB = {"engine": {"name": "gpt", "params": {"steps": 5}}, "roles": [{"name": "worker", "replicas": 1}]}
SEARCH = {"trials": 8, "search": [{"path": "target", "min": 0.1, "max": 0.9}]}
LAG = {"name": "lag", "kind": "ObservationLag", "magnitudes": [15]}


def job_arm(name: str, role: str, **more: Any) -> dict[str, Any]:
    """Return an arm that trains."""
    return {"name": name, "type": "TrainingJob", "role": role, "template": {"spec": JOB}, **more}


def tuned() -> list[dict[str, Any]]:
    """Return two simulated arms that are tuned."""
    return [arm("fast", "Candidate", tuning=SEARCH), arm("hpa", "Comparator", tuning=SEARCH)]


def jobs(name: str = "fast", **template: Any) -> list[dict[str, Any]]:
    """Return two arms that train; the spec of one has more fields."""
    return [
        job_arm(one, role, **({"template": {"spec": {**JOB, **template}}} if one == name else {}))
        for one, role in (("fast", "Candidate"), ("hpa", "Comparator"))
    ]


def simulated(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Return two simulated arms; one has these parameters."""
    return [
        arm("fast", "Candidate", simulation={"simulator": "a", "params": params}),
        arm("hpa", "Comparator"),
    ]


def shown(lab: Lab) -> tuple[str, str]:
    """Return the reason and the message of an experiment after one reconcile."""
    lab.step()
    assert lab.status.phase == "Pending"
    assert not lab.created
    (found,) = [one for one in lab.status.conditions if one.type == "Valid"]
    assert found.status == "False"
    return found.reason, found.message


@pytest.mark.parametrize(
    ("spec", "reason", "part"),
    [
        ({"arms": jobs(suspend=True)}, "InvalidSpec", "spec.arms[0].template.spec.suspend: "),
        ({"arms": jobs("hpa", managedBy="me")}, "InvalidSpec", "spec.arms[1].template.spec.managedBy: "),
        ({"arms": jobs(engine={"name": "gtp"})}, "UnknownEngine", "spec.arms[0].template.spec.engine.name: "),
        ({"perturbations": [LAG], "arms": jobs()}, "InvalidSpec", "spec.perturbations[0].kind: "),
        (
            {"perturbations": [{"name": "n", "kind": "NodeLoss", "magnitudes": [1]}], "arms": jobs()},
            "InvalidSpec",
            "NodeLoss cannot disturb arm 'fast' of type TrainingJob",
        ),
        (
            {"perturbations": [{"name": "n", "kind": "LinkLimit", "magnitudes": [10]}]},
            "InvalidSpec",
            "LinkLimit cannot disturb arm 'fast' of type Simulation; it is for arms of type TrainingJob",
        ),
        (
            {"arms": simulated({"note": "x" * 33000})},
            "InvalidSpec",
            "spec: the plan has 33",
        ),
        (
            {"arms": simulated({"n": 2**60})},
            "InvalidSpec",
            "canonical form",
        ),
    ],
)
def test_a_wrong_spec_is_shown_with_its_path(spec: dict[str, Any], reason: str, part: str) -> None:
    found = shown(Lab(**spec))
    assert (found[0], part in found[1]) == (reason, True), found


KILLS = {"name": "k", "kind": "KillRank", "magnitudes": [1]}
MEMORY = {"name": "cache", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
DISK = {"volumes": [MEMORY, {"name": "data", "emptyDir": {}}]}


def trainers(**role: Any) -> list[dict[str, Any]]:
    """Return two arms that train with two roles; the first role has more fields."""
    roles = [{"name": "worker", "replicas": 2, **role}, {"name": "eval", "replicas": 1}]
    return [job_arm(one["name"], one["role"], template={"spec": {**JOB, "roles": roles}}) for one in jobs()]


@pytest.mark.parametrize(
    ("change", "role", "path", "part"),
    [
        ({"target": {"role": "w"}}, {}, "target.role", "'fast' has no role 'w'; name one of: worker, eval"),
        ({"target": {"slot": 2}}, {}, "target.slot", "role 'worker' of arm 'fast' has 2 replicas"),
        ({"target": {"role": "eval", "slot": 1}}, {}, "target.slot", "has 1 replicas"),
        ({"startSeconds": 3600}, {}, "startSeconds", "a run may take only 3600 s (runDeadlineSeconds)"),
        ({"kind": "SlowRank", "magnitudes": [2]}, {"processesPerReplica": 2}, "kind", "use SlowNode"),
        ({"kind": "LinkLimit"}, {"template": {"spec": {"hostNetwork": True}}}, "kind", "hostNetwork"),
        ({"kind": "FullDisk"}, {}, "target.volume", "exactly one, but role 'worker' of arm 'fast' has none"),
        (
            {"kind": "FullDisk", "target": {"volume": "data"}},
            {"template": {"spec": DISK}},
            "target.volume",
            "with the name 'data', but role 'worker' of arm 'fast' has cache",
        ),
    ],
)
def test_a_perturbation_that_hits_no_pod_is_refused(
    change: dict[str, Any], role: dict[str, Any], path: str, part: str
) -> None:
    reason, message = shown(Lab(perturbations=[{**KILLS, **change}], arms=trainers(**role)))
    assert reason == "InvalidSpec"
    assert f"spec.perturbations[0].{path}: " in message
    assert part in message


@pytest.mark.parametrize(
    ("change", "role"),
    [
        ({"target": {"role": "eval", "slot": 0}}, {}),
        ({"target": {"slot": 1}, "startSeconds": 3599}, {}),
        ({"kind": "FullDisk", "target": {"slot": 0}}, {"template": {"spec": DISK}}),
        ({"kind": "FullDisk", "target": {"volume": "cache"}}, {"template": {"spec": DISK}}),
    ],
)
def test_a_perturbation_that_hits_a_pod_is_accepted(change: dict[str, Any], role: dict[str, Any]) -> None:
    spec = make_experiment(perturbations=[{**KILLS, **change}], arms=trainers(**role)).spec
    assert list(spec_problems(spec)) == []


@pytest.mark.parametrize(
    ("first", "second", "path", "part"),
    [
        ({"values": [40, 50, 40.0]}, {}, "[0].values[2]", "40.0 occurs twice"),
        ({}, {"path": "a"}, "[1].path", "'a' is also the path"),
        ({}, {"name": "x"}, "[1].name", "'x' is also the name"),
        ({}, {"path": "a.b"}, "[1].path", "'a.b' and 'a' of another parameter would overwrite each other"),
        ({"path": "c.d"}, {}, "[1].path", "'c' and 'c.d'"),
    ],
)
def test_parameters_of_a_sweep_that_clash_are_refused(
    first: dict[str, Any], second: dict[str, Any], path: str, part: str
) -> None:
    parameters = [
        {"name": "x", "path": "a", "values": [1], **first},
        {"name": "y", "path": "c", "values": [True, 1, "1"], **second},
    ]
    reason, message = shown(
        Lab(arms=[arm("fast", "Candidate")], sweep={"parameters": parameters}, predictions=None)
    )
    assert reason == "InvalidSpec"
    assert f"spec.sweep.parameters{path}: " in message
    assert part in message


def test_verdicts_that_do_not_fit_are_refused() -> None:
    prediction = {"outcome": "late", "candidate": "fast", "comparator": "hpa", "direction": "Better"}
    lag = {**LAG, "magnitudes": [1, 2, 3, 4, 5, 6, 7, 8]}
    predictions = [{**prediction, "name": f"p{number}", "perturbation": "lag"} for number in range(5)]
    found = shown(Lab(perturbations=[lag], predictions=predictions, blocks=2))
    assert "predictions x magnitudes are 40" in found[1]


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (None, "UnknownStore"),
        (make_store(allowedNamespaces=["other"]), "StoreNotAllowed"),
        (make_store(ready="False", why="no space left"), "AwaitsStore"),
        (make_store(ready=""), "AwaitsStore"),
    ],
)
def test_the_store_is_checked_and_heals(store: Any, reason: str) -> None:
    lab = Lab()
    lab.store = store
    found = shown(lab)
    assert found[0] == reason
    assert found[1].startswith("spec.store: ")
    lab.store = make_store()
    lab.settle()
    assert lab.status.phase == "Registering"


def test_parameters_of_simulations_are_checked_with_the_schema_of_the_engine() -> None:
    lab = Lab()
    properties: dict[str, Any] = {name: {} for name in ("action", "params", "seed", "perturbation")}
    schema = {"properties": {**properties, "simulator": {"enum": ["recovery"]}}}
    lab.engines["experiment-simulation"] = make_engine("experiment-simulation", paramsSchema=schema)
    reason, message = shown(lab)
    assert reason == "InvalidParams"
    assert message.startswith("spec.arms[")
    assert "].simulation.params.simulator: 'autoscaling' is not one of ['recovery']" in message


def test_the_api_server_checks_one_job_of_each_arm_before_the_registration() -> None:
    lab = Lab(arms=jobs())
    made = lab.plan()
    checks = [child for child in made.children if isinstance(child, Check)]
    assert sorted(child.name for child in checks) == ["trial-check-fast", "trial-check-hpa"]
    assert checks[0].manifest["spec"] == JOB
    lab.refused["trial-check-hpa"] = Refusal("admission denied: hostPath volumes are not allowed")
    reason, message = shown(lab)
    assert (reason, message.startswith("spec.arms[1]: admission denied")) == ("InvalidSpec", True)
    lab.refused.clear()
    lab.settle()
    assert lab.status.phase == "Registering"


def test_tuning_is_equal_for_all_arms_and_its_values_are_used() -> None:
    lab = Lab(arms=tuned(), tuning={"outcome": "late", "blocks": 2}, parallelism=2)
    lab.register()
    assert lab.status.phase == "Tuning"
    names = [name for name in lab.active if "-t-" in name]
    assert len(names) == 2
    params = [lab.params(name) for name in names]
    for one in params:
        assert one["seeds"] == [tuning_seed(0, 0), tuning_seed(0, 1)]
        assert (one["action"], one["trials"], one["figure"], one["better"]) == (
            "tune",
            8,
            "latePercent",
            "Lower",
        )
        assert one["search"][0]["path"] == "target"
    assert params[0]["seed"] == params[1]["seed"]
    assert lab.manifests[names[0]]["spec"]["checkpoint"]["tiers"]["remote"]["store"] == "s3"
    for name, value in zip(names, ("0.25", "0.75"), strict=True):
        chosen = [{"path": "target", "value": value, "atEdge": value == "0.75"}]
        lab.end(name, {"values": chosen, "best": 1.5, "trials": 8, "seconds": 3.5})
    lab.settle()
    assert [(one.arm, one.trials, one.values[0].at_edge) for one in lab.status.tuning] == [
        ("fast", 8, False),
        ("hpa", 8, True),
    ]
    lab.run_all()
    found = {
        (lab.manifests[name]["metadata"]["labels"]["convoy.dev/arm"], lab.params(name)["params"]["target"])
        for name in lab.created
        if "-b" in name
    }
    assert found == {("fast", 0.25), ("hpa", 0.75)}
    assert len(lab.data.tuning) == 2


@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        {"values": [{"path": "other", "value": "1"}]},
        {"values": [{"path": "target", "value": "{"}]},
        {"values": "no"},
        {"values": [1]},
    ],
)
def test_a_malformed_tuning_ends_the_experiment(result: Any) -> None:
    lab = Lab(arms=tuned(), tuning={"outcome": "late"})
    lab.register()
    lab.end(lab.named("-t-"), result)
    lab.settle()
    assert (lab.status.phase, lab.status.reason) == ("Failed", "TuningFailed")
    assert not [name for name in lab.created if "-b" in name]


def source(trials: int = 8, phase: ExperimentPhase = ExperimentPhase.SUCCEEDED) -> Any:
    """Return an experiment that has tuned an arm."""
    found = make_experiment("before")
    value = TunedValue(path="spec.engine.params.steps", value="9")
    found.status.tuning = [TuningStatus(arm="fast", trials=trials, values=[value])]
    found.status.phase = phase
    return found


def reusing() -> list[dict[str, Any]]:
    """Return two arms that train with the tuned parameters of another experiment."""
    tuning = {"trials": 8, "reuse": {"experiment": "before", "arm": "fast"}}
    return [job_arm("fast", "Candidate", tuning=tuning), job_arm("hpa", "Comparator", tuning=tuning)]


def test_cluster_arms_take_over_what_was_tuned_in_simulation() -> None:
    lab = Lab(arms=reusing())
    lab.sources["before"] = source()
    lab.sources["before"].status.plan = PlanStatus(hash="sha256:before")
    lab.register()
    assert lab.status.phase == "Running"
    registered = next(lab.params(name) for name in lab.created if "-plan-" in name)
    assert registered["tuning"] == [one.to_dict() for one in lab.status.tuning]
    origin = TuningSource(experiment="before", arm="fast", plan="sha256:before")
    assert [one.source for one in lab.status.tuning] == [origin, origin]
    lab.sources.clear()
    run = lab.manifests[lab.named("-b0-")]
    assert run["spec"]["engine"] == {"name": "gpt", "params": {"steps": 9}}
    assert [one.arm for one in lab.status.tuning] == ["fast", "hpa"]


@pytest.mark.parametrize(
    ("before", "part"),
    [
        (None, "there is no Experiment 'before'"),
        (source(trials=4), "with 4 trials, not 8"),
        (source(phase=ExperimentPhase.RUNNING), "has not ended"),
    ],
)
def test_a_tuning_that_cannot_be_taken_over_is_refused(before: Any, part: str) -> None:
    lab = Lab(arms=reusing())
    if before is not None:
        lab.sources["before"] = before
    reason, message = shown(lab)
    assert reason == "InvalidSpec"
    assert message.startswith("spec.arms[0].tuning.reuse: ")
    assert part in message


def test_arms_whose_trials_had_other_numbers_of_blocks_are_refused() -> None:
    other = {"trials": 8, "reuse": {"experiment": "after", "arm": "fast"}}
    lab = Lab(arms=[reusing()[0], job_arm("hpa", "Comparator", tuning=other)])
    for name, blocks in (("before", 8), ("after", 2)):
        lab.sources[name] = source()
        settings = TuningSettings(outcome="late", blocks=blocks)
        spec = lab.sources[name].spec.model_copy(update={"tuning": settings})
        lab.sources[name] = lab.sources[name].model_copy(update={"spec": spec})
    assert shown(lab)[1] == (
        "spec.arms[1].tuning.reuse: a trial of arm 'hpa' had 2 blocks, but one of arm 'fast' has 8: all arms "
        "need the same budget"
    )


def test_arms_that_were_tuned_for_different_goals_are_refused() -> None:
    lab = Lab(
        arms=[
            arm("fast", "Candidate", tuning=SEARCH),
            job_arm("hpa", "Comparator", tuning=reusing()[1]["tuning"]),
        ],
        tuning={"outcome": "late"},
    )
    lab.sources["before"] = source()
    outcomes = [{"name": "cost", "source": {"metric": "cost"}, "better": "Lower"}]
    spec = make_experiment("before", outcomes=outcomes, predictions=None).spec
    tuned_for = TuningSettings(outcome="cost")
    lab.sources["before"].spec = spec.model_copy(update={"tuning": tuned_for})
    assert shown(lab)[1] == (
        "spec.arms[1].tuning.reuse: arm 'hpa' was tuned for Lower cost, but arm 'fast' for Lower late: all "
        "arms need the same goal"
    )


def sweep(*values: Any, **more: Any) -> Lab:
    """Return a sweep of one parameter of a job."""
    parameters = [{"name": "steps", "path": "spec.engine.params.steps", "values": list(values)}]
    only = job_arm("only", "Candidate")
    return Lab(arms=[only], predictions=None, sweep={"parameters": parameters}, blocks=2, **more)


def test_a_sweep_runs_every_combination_without_verdicts() -> None:
    lab = sweep(1, 2, 3)
    lab.register()
    while runs := [name for name in lab.active if "-b" in name]:
        lab.end(runs[0], {"latePercent": float(lab.params(runs[0])["steps"])})
        lab.settle()
    found = sorted((row.arms[0], row.figures[0].arm, row.figures[0].value) for row in lab.status.blocks)
    assert found == sorted(2 * [(str(number), str(number), number + 1.0) for number in range(3)])
    lab.analyse(verdicts=[])
    assert lab.status.phase == "Succeeded"
    assert "6 blocks have ended" in lab.status.message


def test_a_sweep_with_too_many_combinations_is_refused() -> None:
    assert "combinations x blocks are 202" in shown(sweep(*range(101)))[1]


def test_billions_of_combinations_are_counted_without_being_made() -> None:
    parameters = [{"name": f"p{n}", "path": f"spec.x{n}", "values": list(range(100))} for n in range(8)]
    only = job_arm("only", "Candidate")
    lab = Lab(arms=[only], predictions=None, sweep={"parameters": parameters}, blocks=1)
    assert f"combinations x blocks are {100**8}" in shown(lab)[1]


@pytest.mark.parametrize(("field", "value"), [("name", "steps"), ("path", "spec.engine.params.steps")])
def test_two_parameters_of_a_sweep_share_neither_name_nor_path(field: str, value: str) -> None:
    first = {"name": "steps", "path": "spec.engine.params.steps", "values": [1, 2]}
    second = {"name": "rate", "path": "spec.engine.params.rate", "values": [3], field: value}
    only = job_arm("only", "Candidate")
    lab = Lab(arms=[only], predictions=None, sweep={"parameters": [first, second]})
    assert shown(lab)[1].startswith(f"spec.sweep.parameters[1].{field}: {value!r} is also the {field} of")


def test_a_path_that_does_not_fit_the_arm_is_refused() -> None:
    parameters = [{"name": "n", "path": "spec.roles.3.replicas", "values": [1]}]
    lab = Lab(arms=[job_arm("only", "Candidate")], predictions=None, sweep={"parameters": parameters})
    message = shown(lab)[1]
    assert message.startswith("spec.sweep.parameters: path 'spec.roles.3.replicas' does not fit arm 'only'")
    assert "1 items" in message


def test_a_negative_control_runs_the_same_as_its_arm() -> None:
    control = {"name": "aa", "type": "TrainingJob", "role": "NegativeControl", "controlOf": "hpa"}
    lab = Lab(arms=[*jobs("hpa", success="worker"), control], parallelism=3)
    lab.register()
    by_arm = {
        lab.manifests[name]["metadata"]["labels"]["convoy.dev/arm"]: lab.manifests[name]["spec"]
        for name in lab.active
    }
    assert by_arm["aa"] == by_arm["hpa"] != by_arm["fast"]
