"""Tests of the Workload that asks for a job's quota, and of the pods that use it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.placement.kueue_objects import admitted, condition, evicted, workload

from convoy_controllers.cached import CachedObject
from convoy_controllers.placement.kueue.admission import Stage, admission
from convoy_controllers.placement.kueue.pods import Conflict
from convoy_controllers.placement.kueue.pods import admitted as with_admission
from convoy_controllers.placement.kueue.priority import Priority, priority
from convoy_controllers.placement.kueue.topology import Domain
from convoy_controllers.placement.kueue.workload import MAX_NAME, PodSet, manifest, wishes, workload_name
from convoy_crds.placement import Pack

SPEC: dict[str, Any] = {
    "containers": [
        {
            "name": "main",
            "image": "img",
            "env": [{"name": "A", "value": "1"}],
            "resources": {"requests": {"cpu": "1"}},
        }
    ],
    "nodeSelector": {"a": "b"},
    "volumes": [{"name": "v", "emptyDir": {}}],
}
OWNER = {"apiVersion": "v1", "kind": "TrainingJob", "name": "job", "uid": "u", "controller": True}


def sets(*minimums: int, count: int = 4, **more: Any) -> list[PodSet]:
    return [PodSet(f"r{number}", count, SPEC, least, **more) for number, least in enumerate(minimums)]


def body(*minimums: int, **more: Any) -> dict[str, Any]:
    return manifest("w", "team", sets(*minimums, **more), Priority(), OWNER)


def test_the_template_has_only_what_kueue_decides_on() -> None:
    (found,) = body(0)["spec"]["podSets"]
    assert found["template"]["spec"] == {
        "nodeSelector": {"a": "b"},
        "containers": [{"name": "main", "image": "img", "resources": {"requests": {"cpu": "1"}}}],
    }


def test_a_workload_belongs_to_its_job_and_leaves_its_activation_to_others() -> None:
    found = body(0)
    assert found["metadata"]["ownerReferences"] == [OWNER]
    assert found["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": "u"}
    assert "finalizers" not in found["metadata"]
    assert "active" not in found["spec"]


@pytest.mark.parametrize(
    ("minimums", "partial"), [((0, 0), []), ((3, 1), ["r1"]), ((4, 4), []), ((2, 2), ["r0"])]
)
def test_at_most_one_role_may_be_admitted_in_part(minimums: tuple[int, ...], partial: list[str]) -> None:
    found = body(*minimums)["spec"]["podSets"]
    assert [one["name"] for one in found if "minCount" in one] == partial


@pytest.mark.parametrize(
    ("pack", "level", "wanted"),
    [
        (Pack.REQUIRED, "rack", {"required": "rack"}),
        (Pack.PREFERRED, "rack", {"preferred": "rack"}),
        (Pack.NONE, "rack", None),
        (Pack.REQUIRED, "", None),
    ],
)
def test_the_topology_of_the_placement_is_asked_for(pack: Pack, level: str, wanted: Any) -> None:
    (found,) = body(0, pack=pack, level=level)["spec"]["podSets"]
    assert found.get("topologyRequest") == wanted


def test_parameters_of_the_job_reach_its_workload() -> None:
    labels = {"kueue.x-k8s.io/max-exec-time-seconds": "3600", "team": "a"}
    provisioning = {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "600"}
    found = manifest(
        "w", "team", sets(0), Priority(), OWNER, wishes(labels, {**provisioning, "note": "of the user"})
    )
    assert found["spec"]["maximumExecutionTimeSeconds"] == 3600
    assert found["metadata"]["annotations"] == provisioning
    without = manifest("w", "team", sets(0), Priority(), OWNER, wishes({}, {}))
    assert "maximumExecutionTimeSeconds" not in without["spec"] and "annotations" not in without["metadata"]


@pytest.mark.parametrize("text", ["0", "-5", "1h", "1.5", "\u0663", "9999999999", " 5"])
def test_a_time_that_is_none_is_a_problem(text: str) -> None:
    found = wishes({"kueue.x-k8s.io/max-exec-time-seconds": text}, {})
    assert not found.max_seconds and repr(text) in found.wrong


def test_the_name_changes_with_the_shape_and_fits_into_a_label() -> None:
    names = {
        workload_name("j" * 60, "u", "team", sets(0)),
        workload_name("j" * 60, "u", "other", sets(0)),
        workload_name("j" * 60, "v", "team", sets(0)),
        workload_name("j" * 60, "u", "team", sets(0, count=5)),
        workload_name("j" * 60, "u", "team", sets(2)),
    }
    assert len(names) == 5
    assert all(len(name) <= MAX_NAME for name in names)
    assert workload_name("job", "u", "team", sets(0)) == workload_name("job", "u", "team", sets(0))


def class_(name: str, value: int, **more: Any) -> CachedObject:
    return CachedObject("", name, name, 1, {"metadata": {"name": name}, "value": value, **more})


@pytest.mark.parametrize(
    ("label", "pods", "value", "group"),
    [
        ("high", "gold", 1000, "kueue.x-k8s.io"),
        ("", "gold", 50, "scheduling.k8s.io"),
        ("", "", 7, "scheduling.k8s.io"),
        ("", "absent", 0, None),
    ],
)
def test_the_priority_comes_from_the_nearest_class(label: str, pods: str, value: int, group: Any) -> None:
    own, others = [class_("high", 1000)], [class_("gold", 50), class_("std", 7, globalDefault=True)]
    found = priority(label, pods, own, others)
    assert (found.value, found.reference.get("group"), found.unknown) == (value, group, "")
    spec = manifest("w", "team", sets(0), found, OWNER)["spec"]
    assert spec["priority"] == value
    assert spec.get("priorityClassRef", {}).get("group") == group


def test_an_unknown_class_of_the_queue_is_a_problem() -> None:
    assert priority("nobody", "gold", [], [class_("gold", 50)]).unknown == "nobody"


RESERVED = condition("QuotaReserved")
CHECK = {"name": "budget", "state": "Pending", "message": "asks for money"}


@pytest.mark.parametrize(
    ("found", "stage", "text"),
    [
        (workload(), Stage.WAITING, "not read"),
        (workload(condition("QuotaReserved", "False", message="full")), Stage.WAITING, "full"),
        (workload(RESERVED, admissionChecks=[CHECK]), Stage.WAITING, "budget: Pending asks for money"),
        (admitted(), Stage.ADMITTED, ""),
        (evicted("Preempted"), Stage.EVICTED, "make room"),
        (
            workload(condition("Evicted", reason="Preempted"), condition("QuotaReserved", "False")),
            Stage.WAITING,
            "",
        ),
        (workload(condition("Finished", reason="OutOfSync", message="gone")), Stage.FINISHED, "gone"),
    ],
)
def test_the_conditions_give_the_stage(found: CachedObject, stage: Stage, text: str) -> None:
    state = admission(found.raw)
    assert state.stage is stage
    assert text in state.message


@pytest.mark.parametrize(("found", "stage"), [(admitted(), Stage.EVICTED), (workload(), Stage.INACTIVE)])
def test_a_deactivated_workload_is_evicted_before_it_is_inactive(found: CachedObject, stage: Stage) -> None:
    raw = {**found.raw, "spec": {**found.raw["spec"], "active": False}}
    assert admission(raw).stage is stage


def test_a_preemption_names_its_finer_reason() -> None:
    found = evicted("Preempted", condition("Preempted", reason="InCohortReclamation"))
    assert admission(found.raw).cause == "Preempted/InCohortReclamation"


def test_an_unreadable_admission_is_a_fault_and_not_a_crash() -> None:
    broken = {
        "levels": ["rack"],
        "slices": [{"domainCount": 2, "valuesPerLevel": [], "podCounts": {"universal": 1}}],
    }
    state = admission(admitted(2, topologyAssignment=broken).raw)
    assert state.stage is Stage.ADMITTED
    assert "0 of 1 levels" in state.fault
    assert not state.pod_sets


POD: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"own": "1", "kueue.x-k8s.io/queue-name": "team"}, "annotations": {}},
    "spec": {"nodeSelector": {"own": "1"}, "tolerations": [{"key": "own"}]},
}
FLAVOR = {"nodeLabels": {"pool": "gpu"}, "tolerations": [{"key": "gpu"}, {"key": "own"}]}


def placed(pod: dict[str, Any] = POD, *, domain: Domain | None = None, **assignment: Any) -> dict[str, Any]:
    stored = admitted(2, **assignment)
    own = admission(stored.raw).pod_sets["worker"]
    return with_admission(pod, stored.raw, "worker", own, [FLAVOR], domain)


def test_a_pod_gets_the_fields_of_its_flavor_once() -> None:
    found = placed()
    assert found["spec"]["nodeSelector"] == {"own": "1", "pool": "gpu"}
    assert found["spec"]["tolerations"] == [{"key": "own"}, {"key": "gpu"}]
    assert found["metadata"]["labels"] == {"own": "1", "kueue.x-k8s.io/podset": "worker"}
    assert found["metadata"]["annotations"] == {"kueue.x-k8s.io/workload": "w"}
    assert POD["spec"]["nodeSelector"] == {"own": "1"}, "the template itself is unchanged"


def test_a_pod_with_a_place_has_one_topology_annotation() -> None:
    assignment = {
        "levels": ["rack"],
        "slices": [
            {"domainCount": 1, "valuesPerLevel": [{"universal": "r1"}], "podCounts": {"universal": 2}}
        ],
    }
    found = placed(domain=Domain(("r1",), 2), topologyAssignment=assignment)
    assert found["spec"]["nodeSelector"]["rack"] == "r1"
    notes = found["metadata"]["annotations"]
    assert notes["kueue.x-k8s.io/podset-unconstrained-topology"] == "true"
    assert notes["convoy.dev/queue-domain"] == "r1"


def test_a_template_that_contradicts_the_flavor_is_a_conflict() -> None:
    pod = {**POD, "spec": {"nodeSelector": {"pool": "cpu"}}}
    with pytest.raises(Conflict, match="'cpu' in the template and 'gpu' in the queue"):
        placed(pod)
