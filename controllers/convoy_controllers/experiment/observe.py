"""Observes an Experiment: reads it, its jobs, and the objects that its spec names, from the caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from convoy_controllers.experiment.names import step_name
from convoy_controllers.experiment.observed import ChildJob, Observed
from convoy_controllers.keys import Key
from convoy_controllers.reader import Reader
from convoy_controllers.resources import SERVING_JOBS, TRAINING_JOBS
from convoy_controllers.views import ENDED_PHASES, PodView
from convoy_crds import checkpointstore, engine
from convoy_crds.experiment import KIND, Experiment
from convoy_crds.experiment_arm import ArmType
from convoy_crds.experiment_plan import Perturbation
from convoy_crds.perturbations import Backend, perturbation_type

OVERDUE_SECONDS = 60.0
"""Seconds after the end of its grace period from which a pod counts as stopped. The kubelet of its node is
then lost.
"""


def observe(reader: Reader, key: Key) -> Observed | None:
    """Return the experiment, its jobs, and the objects that its spec names; None if it does not exist or is
    invalid.
    """
    experiment = reader.get(KIND, key.name, key.namespace)
    stored = reader.stored(KIND, key.name, key.namespace)
    if experiment is None or stored is None:
        return None
    uid, spec = experiment.metadata.uid, experiment.spec
    jobs = {job.name: job for job in _jobs(reader, uid)}
    reused = {arm.tuning.reuse.experiment for arm in spec.arms if arm.tuning and arm.tuning.reuse}
    disturbed = _disturbed(reader, experiment, jobs)
    sources = {name: reader.get(KIND, name, key.namespace) for name in reused}
    return Observed(
        experiment=experiment,
        spec=stored.raw.get("spec") or {},
        jobs=jobs,
        busy=frozenset(_busy(reader, experiment, jobs)),
        pods=disturbed,
        first_steps=dict(_first_steps(reader, disturbed)),
        faults=reader.hub.faults(tuple(pod for pods in disturbed.values() for pod in pods)),
        engines={one.metadata.name: one for one in reader.all(engine.KIND)},
        store=reader.get(checkpointstore.KIND, spec.store),
        known_stores=tuple(
            sorted(
                one.metadata.name
                for one in reader.all(checkpointstore.KIND)
                if one.spec.allows(key.namespace)
            )
        ),
        sources={name: one for name, one in sources.items() if one is not None},
        refused=reader.refused(uid, experiment.metadata.generation or 0),
    )


def _jobs(reader: Reader, uid: str) -> Iterator[ChildJob]:
    for resource in (TRAINING_JOBS, SERVING_JOBS):
        for one in reader.children(resource, uid):
            metadata = one.raw["metadata"]
            yield ChildJob(
                resource=resource,
                name=one.name,
                uid=one.uid,
                status=one.status,
                deleting=bool(metadata.get("deletionTimestamp")),
                labels=metadata.get("labels") or {},
            )


def _disturbed(
    reader: Reader, experiment: Experiment, jobs: Mapping[str, ChildJob]
) -> dict[str, tuple[PodView, ...]]:
    """Return the pods of the jobs that run, by uid of the job, if there are perturbations of pods."""
    if not any(Backend.AGENT in perturbation_type(one.kind).backends for one in _registered(experiment)):
        return {}
    namespace = experiment.metadata.namespace or ""
    return {
        job.uid: tuple(pod for pod in reader.pods(namespace, job.name) if pod.owner_uid == job.uid)
        for job in jobs.values()
        if not job.ended
    }


def _registered(experiment: Experiment) -> list[Perturbation]:
    simulated = all(arm.type is ArmType.SIMULATION for arm in experiment.spec.arms)
    return [] if simulated else experiment.spec.perturbations or []


def _first_steps(
    reader: Reader, disturbed: Mapping[str, tuple[PodView, ...]]
) -> Iterator[tuple[str, datetime]]:
    for uid, pods in disturbed.items():
        views = reader.hub.slots(pods).values()
        steps = [rank.first_step for view in views for rank in view.ranks if rank.first_step]
        if steps:
            yield uid, datetime.fromtimestamp(min(steps), UTC)


def _busy(reader: Reader, experiment: Experiment, jobs: dict[str, ChildJob]) -> Iterator[str]:
    """Yield the uids of jobs whose pods still run: those that exist, and those of runs and steps whose job
    is gone.
    """
    namespace, now = experiment.metadata.namespace or "", reader.now()
    names = {(job.name, job.uid) for job in jobs.values()}
    names |= {(run.name, run.uid) for run in experiment.status.runs if run.uid}
    plan, name = experiment.status.plan, experiment.metadata.name
    if plan is not None:
        steps = [step for step in experiment.status.internal.steps if step.uid]
        names |= {(step_name(name, plan.hash, step.name, step.attempt), step.uid) for step in steps}
    for job, uid in names:
        if any(pod.owner_uid == uid and _runs(pod, now) for pod in reader.pods(namespace, job)):
            yield uid


def _runs(pod: PodView, now: datetime) -> bool:
    overdue = pod.deleting and now.timestamp() > pod.leaves_by + OVERDUE_SECONDS
    return pod.phase not in ENDED_PHASES and not overdue
