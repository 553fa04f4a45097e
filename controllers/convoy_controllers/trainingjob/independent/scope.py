"""Splits the observation of a job into its process group and its Independent pods.

The decisions about the process group see only the pods of Member roles. So no Independent pod can change
the incarnation, the world or a pod of the group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.views import PodView
from convoy_crds.trainingjob import TrainingJob


@dataclass(frozen=True, slots=True)
class Parts:
    """The two parts of an observation."""

    members: Observed
    """The job with the pods of its process group."""
    independents: Observed
    """The job with the pods of its Independent roles."""


def split(observed: Observed) -> Parts:
    """Return the two parts of an observation. Pods of other owners are part of the half in which their name
    is needed.
    """
    prefixes = _prefixes(observed.job)
    inside = [pod for pod in observed.pods if not _matches(pod.name, prefixes)]
    outside = [pod for pod in observed.pods if _matches(pod.name, prefixes)]
    refused = {name for name in observed.create_errors if _matches(name, prefixes)}
    return Parts(
        _part(observed, inside, observed.create_errors.keys() - refused), _part(observed, outside, refused)
    )


def is_independent(job: TrainingJob, pod: PodView) -> bool:
    """Return True if the name of a pod is that of a pod of an Independent role."""
    return _matches(pod.name, _prefixes(job))


def _part(observed: Observed, pods: Iterable[PodView], refused: Iterable[str]) -> Observed:
    kept = tuple(pods)
    uids = {pod.uid for pod in kept}
    return replace(
        observed,
        pods=kept,
        slots={uid: view for uid, view in observed.slots.items() if uid in uids},
        create_errors={name: observed.create_errors[name] for name in refused},
    )


def _prefixes(job: TrainingJob) -> frozenset[str]:
    return frozenset(f"{job.metadata.name}-{role.name}" for role in job.spec.roles if role.independent)


def _matches(name: str, prefixes: frozenset[str]) -> bool:
    prefix, _, number = name.rpartition("-")
    return prefix in prefixes and number.isdecimal()
