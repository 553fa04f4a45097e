"""The environment of a worker that runs as processes of this machine, as near to a pod's as it can be."""

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
"""Between Ctrl-C and the end of ranks that do not leave."""


def pod_environment(
    job: TrainingJob, role: str, base: Mapping[str, str], checkpoints: Path
) -> dict[str, str]:
    """This machine's variables, then what the role declares, then Convoy's own, which win as in a pod."""
    interpreter = str(Path(sys.executable).parent)
    return {
        # Processes of one machine meet on the loopback; a laptop's host name may resolve to nothing.
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
