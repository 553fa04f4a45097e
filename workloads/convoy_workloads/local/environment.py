"""The environment of a worker of a local run, as close to a pod's as possible."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from convoy_crds import terms
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.variables import declared

GRACE_SECONDS = 25
"""Seconds from Ctrl-C to the kill of ranks that have not ended."""


def pod_environment(
    job: TrainingJob, role: str, base: Mapping[str, str], checkpoints: Path
) -> dict[str, str]:
    """Return this machine's variables, overridden by the role's variables, then by Convoy's own, as in a
    pod.
    """
    interpreter = str(Path(sys.executable).parent)
    return {
        # Processes of one machine connect over the loopback interface; a laptop's host name may not resolve.
        "GLOO_SOCKET_IFNAME": "lo",
        **base,
        "PATH": interpreter + os.pathsep + base.get("PATH", os.defpath),
        **declared(next(one for one in job.spec.roles if one.name == role)),
        terms.ENV_PARAMS: json.dumps(job.spec.engine.params if job.spec.engine else {}),
        terms.ENV_CHECKPOINT_DIR: str(checkpoints),
        terms.ENV_CHECKPOINT_SECONDS: str(job.spec.checkpoint.interval_seconds),
        terms.ENV_HANG_SECONDS: str(job.spec.recovery.hang_seconds),
        terms.ENV_GRACE_SECONDS: str(GRACE_SECONDS),
        **({} if job.spec.recovery.warm else {terms.ENV_WARM: "false"}),
    }
