"""Builds the environment of a worker in a local run. It is as similar to a pod's environment as possible."""

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
"""Seconds from Ctrl-C until ranks that have not ended are killed."""


def pod_environment(
    job: TrainingJob, role: str, base: Mapping[str, str], checkpoints: Path
) -> dict[str, str]:
    """Return the environment of a worker with this role. Convoy's variables override the role's variables,
    which override this machine's variables (`base`), as in a pod.
    """
    interpreter = str(Path(sys.executable).parent)
    return {
        # All processes run on this machine, so they connect over the loopback interface. A laptop's host name
        # may not resolve to an address.
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
