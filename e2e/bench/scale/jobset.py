"""The baseline: JobSet's controller on the same rig, installed from JobSet's own chart.

The controller runs as a plain process, like Convoy's operator, and serves the webhooks that admit every pod
of a JobSet. The controller manager creates the pods, so its rate limit is set as well.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.rig.accounts import account_config
from e2e.bench.rig.api import each
from e2e.bench.rig.jobs import JOBSETS, Shape, job_set
from e2e.bench.rig.plane import JOBSET_USER, MANAGER_USERS, UNLIMITED
from e2e.bench.rig.rig import Rig
from e2e.bench.rig.rollout import Rollout, rollout
from e2e.cluster import binaries, files, versions
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.cluster.run import run, stream

MODULE, VERSION = "sigs.k8s.io/jobset", "v0.12.0"
NAMESPACE = "jobset-system"
_NAME = "jobset"
_WEBHOOK_PORT, _HEALTH_PORT = 9443, 9440
_NOT_INSTALLED = {"Deployment", "Service", "Secret"}
_TIMEOUT_SECONDS = 150.0
_SETTLE_SECONDS = 3.0
_GO = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=mod"}


@dataclass(frozen=True)
class Limits:
    """Command-line flags that set the rate limits of JobSet's controller and of the controller manager."""

    title: str
    controller: tuple[str, ...]
    manager: tuple[str, ...]


_MATCHED = ("--kube-api-qps=100", "--kube-api-burst=200")
LIMITS = (
    Limits("uncapped", UNLIMITED, UNLIMITED),
    Limits("100 requests/s", _MATCHED, _MATCHED),
    Limits("default rates", (), ()),
)


class JobSet:
    """JobSet's controller on the rig."""

    def __init__(self, rig: Rig, progress: Progress) -> None:
        self._rig = rig
        self._plane = rig.plane
        self._progress = progress
        self._program = Path()
        self._config = Path()

    async def install(self) -> None:
        """Build the controller and install its CRDs, rights and webhooks. Does not start the controller."""
        self._program = await asyncio.to_thread(build, self._progress)
        await asyncio.to_thread(self._apply)
        self._config = await account_config(self._plane, self._rig.api, JOBSET_USER)

    def _apply(self) -> None:
        plane = self._plane
        pair = plane.control.authority().issue(_NAME, _NAME, addresses=[plane.host], client=False)
        folder = plane.cluster.folder / "config" / "jobset"
        for name, source in (("tls.crt", pair.cert), ("tls.key", pair.key)):
            files.write(folder / name, source.read_bytes(), mode=0o600)
        configuration = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": plane.host, "port": _WEBHOOK_PORT, "certDir": str(folder)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"{plane.host}:{_HEALTH_PORT}"},
        }
        files.write(folder / "config.yaml", yaml.safe_dump(configuration))
        plane.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        plane.apply([self._adapted(one) for one in self._chart() if one["kind"] not in _NOT_INSTALLED])

    def _chart(self) -> list[dict[str, Any]]:
        helm = str(self._plane.cluster.binaries / "helm")
        flags = [
            f"--namespace={NAMESPACE}",
            f"--kube-version={versions.release().kubernetes}",
            "--include-crds",
        ]
        text = run([helm, "template", _NAME, str(source() / "charts" / "jobset"), *flags], deadline=60)
        return [document for document in yaml.safe_load_all(text) if document]

    def _adapted(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a manifest whose webhooks have the machine's address.

        Without real nodes the API server cannot reach a Service.
        """
        authority = self._plane.control.authority()
        for webhook in document.get("webhooks", ()):
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://{self._plane.host}:{_WEBHOOK_PORT}{path}",
                "caBundle": base64.b64encode(authority.pair.cert.read_bytes()).decode(),
            }
        return document

    async def start(self, limits: Limits) -> None:
        """Start the controller with these rate limits and wait until it is ready."""
        await asyncio.to_thread(self._plane.start_manager, *limits.manager)
        config = self._plane.cluster.folder / "config" / "jobset" / "config.yaml"
        flags = [f"--config={config}", "--zap-log-level=error", *limits.controller]
        self._plane.programs.start(_NAME, [self._program, *flags], {"KUBECONFIG": str(self._config)})
        deadline = time.monotonic() + 180
        while not await asyncio.to_thread(self._ready):
            self._plane.programs.check(_NAME)
            if time.monotonic() > deadline:
                raise ClusterError("JobSet's controller is not ready after 180 s")
            await asyncio.sleep(0.2)
        # If the controller manager was restarted, wait until its caches are full.
        await asyncio.sleep(5.0)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://{self._plane.host}:{_HEALTH_PORT}/readyz", timeout=2
            ) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        """Stop the controller and remove the controller manager's rate limit."""
        self._plane.programs.stop(_NAME)
        self._plane.start_manager(*UNLIMITED)

    async def measure(self, limits: Limits, shape: Shape, figures: Figures) -> None:
        """Measure one rollout in the same way as for Convoy, from the audit log."""
        rig = self._rig
        await self.start(limits)
        try:
            await rig.wait_quiet()
            rig.log.restart()
            await each(shape.names, lambda name: rig.api.create(JOBSETS, job_set(name, shape.workers)))
            await rig.holds_in_time(lambda: self._rollout(shape).up is not None, _TIMEOUT_SECONDS, _NAME)
            await asyncio.sleep(_SETTLE_SECONDS)
            found = self._rollout(shape)
            for what, value, unit in (
                ("last pod created", found.created, "seconds"),
                ("last pod bound", found.bound, "seconds"),
                ("last pod up", found.up, "seconds"),
                ("objects written", found.writes_per_pod, "per pod"),
            ):
                figures.add(Metric(f"JobSet {shape}, {limits.title}: {what}", unit), value)
        finally:
            await asyncio.to_thread(self.stop)
            await rig.clear()

    def _rollout(self, shape: Shape) -> Rollout:
        return rollout(self._rig.entries, shape, "jobsets", [JOBSET_USER, *MANAGER_USERS])


def build(progress: Progress) -> Path:
    """Return the path of the controller. Build it from its Go module unless it is in the cache.

    `go install` is not used: it requests the list of all versions, which not every module proxy serves.
    """
    final = files.cache_root() / "binaries" / f"{_NAME}-{VERSION}"
    # A folder is complete once it exists, so do not wait for the lock, which a build holds for minutes.
    if final.exists():
        return final / _NAME
    lock = files.cache_root() / "binaries" / ".lock"
    with files.locked(lock, deadline=3600, what="the programs of the cluster"):
        if not final.exists():
            with (
                files.building(final) as folder,
                tempfile.TemporaryDirectory() as module,
                progress.long(f"building {MODULE} {VERSION} from Go modules"),
            ):
                _build(folder / _NAME, Path(module))
    return final / _NAME


def _build(target: Path, module: Path) -> None:
    go, log = str(binaries.go()), files.cache_root() / "binaries" / "build.log"
    options = {"cwd": module, "env": {**os.environ, **_GO}}
    for arguments, deadline in (
        (["mod", "init", "convoy.dev/baseline"], 60),
        (["mod", "edit", f"-require={MODULE}@{VERSION}"], 60),
        (["build", "-trimpath", "-ldflags=-s -w", "-o", str(target), MODULE], 3000),
    ):
        stream([go, *arguments], deadline=deadline, log=log, **options)


def source() -> Path:
    """Download JobSet's Go module, which contains its chart, and return the module's folder."""
    found = run(
        [str(binaries.go()), "mod", "download", "-json", f"{MODULE}@{VERSION}"], deadline=300, env=_GO
    )
    return Path(json.loads(found)["Dir"])
