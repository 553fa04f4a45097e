"""Finds errors in the templates of a ServingJob that the schema cannot find. Pure. The operator and
`convoy validate` share these checks.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from convoy_controllers.servingjob import pods
from convoy_controllers.trainingjob.validity import MAX_COMMAND
from convoy_controllers.workers.pod import OWN_VOLUMES
from convoy_controllers.workers.refusal import Finding
from convoy_controllers.workers.security import refused_root
from convoy_crds.servingjob import ServingJob
from convoy_crds.terms import AUTH_PATH, MODEL_PATH, MOUNT_PATH

_RESERVED_VOLUMES = OWN_VOLUMES | pods.OWN_VOLUMES
_RESERVED_PATHS = frozenset(
    form for path in (MOUNT_PATH, MODEL_PATH, AUTH_PATH) for form in (path, path.removeprefix("/var"))
)
"""Mount paths of Convoy's own volumes. In most images, /var/run is a link to /run."""
_PROBES = ("httpGet", "tcpSocket", "grpc")


def findings(job: ServingJob) -> Iterator[Finding]:
    """Yield the errors of the job's templates."""
    yield from _long_commands(job)
    yield from _forbidden_root(job)
    yield from _clashes(job)
    yield from _unreached(job)


def _long_commands(job: ServingJob) -> Iterator[Finding]:
    for number, role in enumerate(job.spec.roles):
        containers = role.template.spec.containers if role.template else []
        words = [*(containers[0].command or ()), *(containers[0].args or ())] if containers else []
        size = len(json.dumps(words, ensure_ascii=False).encode())
        if size > MAX_COMMAND:
            why = f"{size} bytes with its arguments, more than {MAX_COMMAND} bytes; put data into a file"
            yield Finding(f"spec.roles[{number}].template.spec.containers[0].command", why)


def _forbidden_root(job: ServingJob) -> Iterator[Finding]:
    for number, role in enumerate(job.spec.roles):
        for field, why in refused_root(role.template.spec.to_dict() if role.template else {}):
            yield Finding(f"spec.roles[{number}].template.spec.{field}", why)


def _clashes(job: ServingJob) -> Iterator[Finding]:
    for number, role in enumerate(job.spec.roles):
        spec = role.template.spec if role.template else None
        where = f"spec.roles[{number}].template.spec"
        for index, volume in enumerate((spec.volumes if spec else None) or ()):
            if volume.name in _RESERVED_VOLUMES:
                why = f"{volume.name!r} is reserved for Convoy; choose another name"
                yield Finding(f"{where}.volumes[{index}].name", why)
        mounts = spec.containers[0].volume_mounts if spec and spec.containers else None
        for index, mount in enumerate(mounts or ()):
            path = posixpath.normpath(mount.mount_path)
            if path in _RESERVED_PATHS:
                why = f"{path} is reserved for Convoy; mount the volume elsewhere"
                yield Finding(f"{where}.containers[0].volumeMounts[{index}].mountPath", why)


def _unreached(job: ServingJob) -> Iterator[Finding]:
    """Yield a program that listens on another port than the Service's: it would be ready, and every request
    would be refused. It declares its ports, and its readiness probe names one of them.
    """
    port = job.spec.service.port
    for number, role in enumerate(job.spec.roles):
        if role.engine is not None or role.name != job.spec.serving_role or role.template is None:
            continue
        containers = role.template.spec.to_dict().get("containers") or [{}]
        declared = _declared(containers[0])
        probed = _probed(containers[0].get("readinessProbe") or {}, declared)
        if probed in declared.values() and port not in declared.values():
            why = (
                f"requests would go to port {port}, but the container declares and probes port {probed}; set "
                f"spec.service.port: {probed}, or list containerPort {port} if the program listens there too"
            )
            yield Finding(f"spec.roles[{number}].template.spec.containers[0].ports", why)


def _declared(container: Mapping[str, Any]) -> dict[str, int]:
    """Return the container's ports, by name or position. The API server checks entries of another form."""
    given = container.get("ports")
    entries = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    numbers = ((str(one.get("name") or index), one.get("containerPort")) for index, one in enumerate(entries))
    return {name: number for name, number in numbers if isinstance(number, int)}


def _probed(probe: Mapping[str, Any], declared: Mapping[str, int]) -> int | None:
    """Return the port that a probe asks; None if it asks no declared port."""
    for kind in _PROBES:
        if isinstance(action := probe.get(kind), dict):
            port = action.get("port")
            return port if isinstance(port, int) else declared.get(str(port))
    return None
