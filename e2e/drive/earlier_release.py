"""Builds the chart and the images of an earlier commit of this repository."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.cluster import files, loading
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import CommandError
from e2e.cluster.oci import Store
from e2e.cluster.run import run
from e2e.setup.torch_source import wheel_folders

COMMIT = "e0ec2b8a920e8d925afbb5e7398bca8ab05df6c6"
"""A commit from whose release users can upgrade: its wire messages and fields of status have the names of
this checkout. Until the first release, a commit may change names; then choose a later commit here.
"""
TAG = "earlier"
IMAGES = ("operator", "agent", "workloads")
BUILD_SECONDS = 900.0


@dataclass(frozen=True)
class Release:
    """A chart, and the tag of its images. The images are loaded on every node."""

    chart: Path
    tag: str


def earlier_release(cluster: Cluster, names: Sequence[str] = IMAGES) -> Release:
    """Return chart and images of COMMIT, and load these images on every node. Skip the test if the clone is
    too shallow to contain COMMIT.
    """
    checkout = _checkout()
    wheels = " ".join(map(str, wheel_folders()))
    with cluster.progress.long(f"building the images of {COMMIT[:7]}"):
        command = [sys.executable, "-m", "e2e.cluster", "images", "--no-load", "--tag", TAG, *names]
        run(command, deadline=BUILD_SECONDS, cwd=checkout, env={"CONVOY_WHEELS": wheels})
    store = Store(checkout=checkout)
    images = [store.get(f"convoy/{name}:{TAG}") for name in names]
    loading.update([node for node in cluster.nodes if node.alive], store, images)
    return Release(checkout / "charts" / "convoy", TAG)


def _checkout() -> Path:
    """Return a folder with the files of COMMIT. The folder's path is constant because it identifies the
    images.
    """
    git = ["git", "-C", str(files.CHECKOUT)]
    try:
        run([*git, "cat-file", "-e", f"{COMMIT}^{{commit}}"])
    except CommandError:
        pytest.skip(f"this clone does not contain {COMMIT[:7]}; run: git fetch --unshallow")
    final = files.CHECKOUT / "build" / f"checkout-{COMMIT[:7]}"
    with files.building(final) as folder:
        archive = folder / "archive.tar"
        run([*git, "archive", "--output", archive, COMMIT])
        run(["tar", "--extract", "--file", archive, "--directory", folder])
        archive.unlink()
    return final
