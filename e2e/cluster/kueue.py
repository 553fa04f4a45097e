"""Builds Kueue from Go modules. Tests of queues run it as a process beside their API server."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import binaries, files
from e2e.cluster.progress import Progress
from e2e.cluster.run import run

MODULE = Path(__file__).with_name("kueue")
PACKAGE = "sigs.k8s.io/kueue"
PROGRAM = "kueue"
_CRDS, _WEBHOOKS = "config/components/crd/bases", "config/components/webhook/manifests.yaml"


def folder() -> Path:
    """Return the folder of the program, its CRDs and its webhooks. It may not exist yet."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    return files.cache_root() / "binaries" / f"kueue-{digest.hexdigest()[:10]}"


def ensure(progress: Progress) -> Path:
    """Build the program if this version of it is missing, which takes minutes once. Return its folder."""
    final = folder()
    if not final.exists():
        lock = final.with_name(".kueue.lock")
        with (
            files.locked(lock, deadline=3600, what="Kueue"),
            files.building(final) as temporary,
            progress.long("building Kueue from Go modules (minutes, once)"),
        ):
            binaries.build(MODULE, temporary / PROGRAM, f"{PACKAGE}/cmd/kueue")
            source = _source()
            (temporary / "crds").mkdir()
            for path in sorted((source / _CRDS).glob("*.yaml")):
                shutil.copyfile(path, temporary / "crds" / path.name)
            shutil.copyfile(source / _WEBHOOKS, temporary / "webhooks.yaml")
    os.utime(final)
    return final


def crds() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of the built version."""
    return [yaml.safe_load(path.read_text()) for path in sorted((folder() / "crds").glob("*.yaml"))]


def webhooks() -> list[dict[str, Any]]:
    """Return the configurations of the built version's webhooks."""
    return [one for one in yaml.safe_load_all((folder() / "webhooks.yaml").read_text()) if one]


def _source() -> Path:
    """Return the folder of Kueue's module in the cache of Go modules."""
    command = [str(binaries.go()), "list", "-m", "-f", "{{.Dir}}", PACKAGE]
    return Path(run(command, cwd=MODULE, deadline=300).strip())
