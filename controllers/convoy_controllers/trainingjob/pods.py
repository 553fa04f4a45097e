"""Builds the pod of a slot: the user's template with Convoy's additions."""

from __future__ import annotations

import json
from typing import Any

from convoy_controllers.children import owner_reference
from convoy_controllers.placement.gangs.backend import GangGroup
from convoy_controllers.trainingjob import tiers
from convoy_controllers.workers.pod import DEFAULT_GRACE_SECONDS, WorkerPod, kubelet_literal, worker_pod
from convoy_crds import terms
from convoy_crds.engine import Engine
from convoy_crds.layout import Slot
from convoy_crds.trainingjob import KIND, Role, TrainingJob
from convoy_crds.trainingjob_checkpoint import CheckpointDefaults


def _role(job: TrainingJob, slot: Slot) -> Role:
    return next(role for role in job.spec.roles if role.name == slot.role)


def _environment(job: TrainingJob, defaults: CheckpointDefaults) -> dict[str, str]:
    values = _common_environment(job)
    wanted = tiers.nominal(job, defaults)
    if wanted.any:
        values[terms.ENV_CHECKPOINT_TIERS] = ",".join(wanted.names)
        values[terms.ENV_CHECKPOINT_SECONDS] = str(job.spec.checkpoint.interval_seconds)
    if not job.spec.checkpoint.journal:
        values[terms.ENV_CHECKPOINT_JOURNAL] = "false"
    if tiers.gets_default(job, defaults):
        values[terms.ENV_CHECKPOINT_BY_DEFAULT] = "true"
    return values


def _common_environment(job: TrainingJob) -> dict[str, str]:
    values: dict[str, str] = {}
    if job.spec.engine:
        values[terms.ENV_PARAMS] = kubelet_literal(json.dumps(job.spec.engine.params, sort_keys=True))
    if not job.spec.recovery.warm:
        values[terms.ENV_WARM] = "false"
    return values


def _independent_environment(job: TrainingJob, role: Role) -> dict[str, str]:
    """Return the environment of a pod outside the process group. It saves no checkpoints of the job."""
    return {
        **_common_environment(job),
        terms.ENV_MEMBERS_FILE: f"{terms.MOUNT_PATH}/{terms.MEMBERS_FILE}",
        terms.ENV_ROLE_REPLICAS: str(role.replicas),
    }


def pod(
    job: TrainingJob,
    engine: Engine | None,
    slot: Slot,
    defaults: CheckpointDefaults | None = None,
    group: GangGroup | None = None,
) -> dict[str, Any]:
    """Return the manifest of a slot's pod, with its intent hash. `defaults`: the chart's settings for jobs
    without tiers. `group`: the gang of the job's Member pods; None if each pod starts alone.
    """
    role, metadata = _role(job, slot), job.metadata
    template = role.template
    labels = {
        terms.LABEL_JOB: metadata.name,
        terms.LABEL_ROLE: slot.role,
        terms.LABEL_INDEX: str(slot.index),
    }
    if role.independent:
        labels[terms.LABEL_MEMBERSHIP] = role.membership.value
        environment = _independent_environment(job, role)
    else:
        environment = _environment(job, defaults or CheckpointDefaults())
    if role.spot_pool:
        labels[terms.LABEL_SPOT_POOL] = role.spot_pool
    return worker_pod(
        WorkerPod(
            name=slot.pod,
            namespace=metadata.namespace or "",
            owner=owner_reference(KIND.api_version, KIND.name, metadata.name, metadata.uid),
            labels=labels,
            template=template.to_dict() if template else {},
            image=engine.spec.image if engine else "",
            environment=environment,
            grace_seconds=DEFAULT_GRACE_SECONDS,
            gang=group.member(slot.role) if group is not None and not role.independent else None,
        )
    )
