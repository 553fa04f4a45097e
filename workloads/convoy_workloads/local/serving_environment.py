"""Builds the environment of a serving pod in a local run. It is as similar to a pod's environment as
possible.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from convoy_crds import terms
from convoy_crds.servingjob import ServingJob, ServingRole
from convoy_crds.variables import declared
from convoy_workloads.local.ports import HOST

TEARDOWN_SECONDS = 10


@dataclass(frozen=True)
class LocalFiles:
    """The local files that a run uses in place of the cluster's objects."""

    model: Path | None = None
    """Folder of the model; None if the engine brings its own model."""
    token: Path | None = None
    """File with the bearer token; None if requests need no token."""


def serving_environment(
    job: ServingJob, role: ServingRole, base: Mapping[str, str], files: LocalFiles, ports: tuple[int, int]
) -> dict[str, str]:
    """Return the environment of a pod of this role. `ports`: the serving port, and the port of the probes.

    Convoy's variables override the role's variables, which override this machine's variables (`base`).
    """
    interpreter = str(Path(sys.executable).parent)
    drain = job.spec.rollout.drain_seconds
    found = {
        "GLOO_SOCKET_IFNAME": "lo",
        **base,
        "PATH": interpreter + os.pathsep + base.get("PATH", os.defpath),
        **declared(role),
        terms.ENV_SERVING_HOST: HOST,
        terms.ENV_SERVING_PORT: str(ports[0]),
        terms.ENV_DRAIN_SECONDS: str(drain),
        # No proxy sends requests to a local replica, so it need not wait for any.
        terms.ENV_ENDPOINT_LAG_SECONDS: "0",
        terms.ENV_GRACE_SECONDS: str(drain + TEARDOWN_SECONDS),
        terms.ENV_HANG_SECONDS: str(job.spec.recovery.hang_seconds),
    }
    if role.engine is not None:
        found[terms.ENV_PARAMS] = json.dumps(role.engine.params)
        found[terms.ENV_READY_PORT] = str(ports[1])
    if files.model is not None:
        found[terms.ENV_MODEL_PATH] = str(files.model.resolve())
    if files.token is not None:
        found[terms.ENV_AUTH_TOKEN_FILE] = str(files.token.resolve())
    return found
