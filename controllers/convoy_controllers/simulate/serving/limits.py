"""The limits that a ServingJob's spec sets for its rollouts, computed without the operator's code."""

from __future__ import annotations

from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_rollout import share
from convoy_crds.terms import ROLE_ACTIVATOR

_MOST_ACTIVATORS = 3
"""Maximum number of activators: two, and one more while they are replaced."""


def floor(job: ServingJob, role: str) -> int:
    """Return the number of available replicas that a rollout must leave."""
    rollout, desired = job.spec.rollout, _range(job, role)[0]
    unavailable = share(rollout.max_unavailable, desired, up=False)
    if not unavailable and not share(rollout.max_surge, desired, up=True) and desired > 1:
        unavailable = 1
    return max(0, desired - unavailable)


def most(job: ServingJob, role: str) -> int:
    """Return the number of replicas that may exist, apart from those that drain."""
    if role == ROLE_ACTIVATOR:
        return _MOST_ACTIVATORS
    desired = _range(job, role)[1]
    surge = share(job.spec.rollout.max_surge, desired, up=True)
    return desired + (max(1, surge) if desired == 1 else surge)


def _range(job: ServingJob, role: str) -> tuple[int, int]:
    """Return the lowest and the highest number of replicas that the next plan may want. Convoy's autoscaler
    decides it in that plan.
    """
    found = job.spec.role(role)
    if found is not None and found.scaling is not None and found.scaling.decides:
        return found.scaling.min_replicas, found.scaling.max_replicas
    return job.desired(role), job.desired(role)
