"""Random lives of a job in a queue: users, administrators, Kueue and kubelets act in any order.

After each plan three rules hold. A pod is created only while its Workload is admitted, and no more pods than
admitted. A reservation is cleared, and a Workload deleted, only if no pod of it is left. And when nobody
disturbs the job any more, it gets its pods.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.controllers.placement.kueue_objects import NOW, condition

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Apply, Create, Delete, PatchStatus
from convoy_controllers.placement.kueue.admission import Stage, admission
from convoy_controllers.placement.kueue.names import ANNOTATION_WORKLOAD
from convoy_controllers.placement.kueue.objects import QueueObjects
from convoy_controllers.resources import KUEUE_WORKLOADS, PODS
from convoy_controllers.testing.builders import make_engine, make_job
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.views import PodView
from convoy_crds.trainingjob import TrainingJob

LABEL = "kueue.x-k8s.io/queue-name"
MAX_PLANS = 40
"""Plans within which an undisturbed job must have its pods."""


@dataclass
class Scene:
    """A job, its pods and its Workloads."""

    job: TrainingJob
    pods: dict[str, PodView] = field(default_factory=dict)
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: Counter[str] = field(default_factory=Counter)
    created: int = 0
    now: Any = NOW

    def observed(self) -> Observed:
        stored = tuple(
            CachedObject("default", name, f"uid-{name}", self.versions[name], copy.deepcopy(raw))
            for name, raw in self.workloads.items()
        )
        return Observed(
            job=self.job,
            engine=make_engine(),
            known_engines=("gpt",),
            pods=tuple(self.pods.values()),
            agent_nodes=3,
            served=frozenset({KUEUE_WORKLOADS}),
            queue=QueueObjects(stored, {"plain": {}}),
        )

    def step(self) -> None:
        """Carry out one plan, and check the rules."""
        self.now += timedelta(seconds=1)
        made = plan(self.observed(), self.now)
        before = {name: admission(raw) for name, raw in self.workloads.items()}
        used = Counter(one.annotations.get(ANNOTATION_WORKLOAD, "") for one in self.pods.values())
        if made.status is not None:
            self.job = TrainingJob.model_validate({**self.job.to_dict(), "status": made.status})
        # The operator creates objects last.
        for child in sorted(made.children, key=lambda one: isinstance(one, Create)):
            if isinstance(child, PatchStatus):
                raw = self.workloads[child.name]
                if "admission" in raw["status"] and "admission" not in child.status:
                    assert not used[child.name], f"{child.name} is still used"
                raw["status"] = dict(child.status)
                self.versions[child.name] += 1
            elif isinstance(child, Delete) and child.resource == KUEUE_WORKLOADS:
                assert not self.pods, f"{child.name} is deleted beside pods"
                self.workloads.pop(child.name, None)
            elif isinstance(child, Delete) and child.resource == PODS:
                self.pods[child.name] = replace(self.pods[child.name], deleting=True)
            elif isinstance(child, Apply) and child.resource == KUEUE_WORKLOADS:
                new = {"metadata": {"name": child.name, "generation": 1}, "status": {}}
                self.workloads.setdefault(child.name, {**new, "spec": dict(child.manifest["spec"])})
                self.versions[child.name] += 1
            elif isinstance(child, Create) and child.resource == PODS:
                name = str(child.manifest["metadata"]["annotations"].get(ANNOTATION_WORKLOAD, ""))
                if self.job.metadata.labels:
                    state = before[name]
                    assert state.stage is Stage.ADMITTED, f"{child.name} is created while {state.stage}"
                    used[name] += 1
                    assert used[name] <= state.pod_sets["worker"].count
                else:
                    assert not name
                self._run(child)

    def _run(self, child: Create) -> None:
        self.created += 1
        meta = child.manifest["metadata"]
        self.pods[child.name] = PodView(
            name=child.name,
            uid=f"pod-{self.created}",
            phase="Running",
            node="n",
            owner_uid=self.job.metadata.uid,
            labels=meta["labels"],
            annotations=meta["annotations"],
            ready=True,
        )

    # Acts of Kueue, users and kubelets. Each act is possible at any time.

    def admit(self, count: int) -> None:
        """Act as Kueue: admit every Workload that waits."""
        for name, raw in self.workloads.items():
            state, (pod_set,) = admission(raw), raw["spec"]["podSets"]
            if state.stage is not Stage.WAITING or raw["spec"].get("active") is False:
                continue
            pods = min(pod_set["count"], max(count, pod_set.get("minCount", pod_set["count"])))
            assignment = {"name": "worker", "count": pods, "flavors": {"cpu": "plain"}}
            raw["status"] = {
                "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
                "conditions": [condition("QuotaReserved"), condition("Admitted")],
            }
            self.versions[name] += 1

    def evict(self, reason: str) -> None:
        """Act as Kueue: evict every admitted Workload."""
        for name, raw in self.workloads.items():
            if admission(raw).reserved and not admission(raw).cause:
                raw["status"]["conditions"].append(condition("Evicted", reason=reason))
                self.versions[name] += 1

    def activate(self, value: bool) -> None:
        """Act as an administrator."""
        for name, raw in self.workloads.items():
            raw["spec"]["active"] = value
            self.versions[name] += 1
        if not value:
            self.evict("Deactivated")

    def delete_workloads(self) -> None:
        self.workloads.clear()

    def suspend(self, value: bool) -> None:
        self.job = TrainingJob.model_validate(
            {**self.job.to_dict(), "spec": {**self.job.to_dict()["spec"], "suspend": value}}
        )

    def move(self, queue: str) -> None:
        """Act as a user who changes the queue, or removes it."""
        self.job.metadata.labels = {LABEL: queue} if queue else {}

    def end_pods(self) -> None:
        """Act as the kubelets: remove the pods that are being deleted."""
        self.pods = {name: one for name, one in self.pods.items() if not one.deleting}


def act(scene: Scene, name: str, value: Any) -> None:
    if value is None:
        getattr(scene, name)()
    else:
        getattr(scene, name)(value)


ACTS = st.one_of(
    st.just(("end_pods", None)),
    st.just(("delete_workloads", None)),
    st.tuples(st.just("admit"), st.integers(1, 3)),
    st.tuples(st.just("evict"), st.sampled_from(["Preempted", "PodsReadyTimeout", "NodeFailures"])),
    st.tuples(st.just("activate"), st.booleans()),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("move"), st.sampled_from(["team", "other", ""])),
)


def scene_of(least: int | None) -> Scene:
    role: dict[str, Any] = {"name": "worker", "replicas": 3}
    role |= {"minReplicas": least} if least else {}
    job = make_job(roles=[role])
    job.metadata.labels, job.metadata.namespace = {LABEL: "team"}, "default"
    return Scene(job)


@settings(max_examples=100, deadline=None)
@example(None, [(("evict", "Preempted"), True)])
@example(1, [(("end_pods", None), True), (("delete_workloads", None), True), (("admit", 2), True)])
@given(st.sampled_from([None, 1]), st.lists(st.tuples(ACTS, st.booleans()), max_size=25))
def test_pods_run_only_with_quota_whatever_happens(
    least: int | None, acts: list[tuple[tuple[str, Any], bool]]
) -> None:
    scene = scene_of(least)
    scene.step()
    scene.admit(3 if least is None else 2)
    scene.step()
    for (name, value), planned in acts:
        act(scene, name, value)
        if planned:
            scene.step()
    scene.suspend(False)
    scene.move("team")
    for _ in range(MAX_PLANS):
        scene.activate(True)
        scene.step()
        scene.end_pods()
        scene.admit(3)
        if len(scene.pods) == 3 and not any(one.deleting for one in scene.pods.values()):
            break
    names = {one.annotations.get(ANNOTATION_WORKLOAD) for one in scene.pods.values()}
    (own,) = names
    assert own in scene.workloads, f"{len(scene.pods)} pods of {names}, Workloads {list(scene.workloads)}"
    assert admission(scene.workloads[own or ""]).stage is Stage.ADMITTED
