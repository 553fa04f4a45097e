"""The limits that a ServingJob's spec sets for its rollouts, computed without the operator's code."""

from __future__ import annotations

from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_rollout import share


def floor(job: ServingJob, role: str) -> int:
    """Return the number of available replicas that a rollout must leave."""
    rollout, desired = job.spec.rollout, job.desired(role)
    unavailable = share(rollout.max_unavailable, desired, up=False)
    if not unavailable and not share(rollout.max_surge, desired, up=True) and desired > 1:
        unavailable = 1
    return max(0, desired - unavailable)


def most(job: ServingJob, role: str) -> int:
    """Return the number of replicas that may exist, apart from those that drain."""
    desired = job.desired(role)
    surge = share(job.spec.rollout.max_surge, desired, up=True)
    return desired + (max(1, surge) if desired == 1 else surge)
