"""Checks that the disk has room for a cluster. If not, deletes caches that nobody uses and that can be made
again.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

from e2e.cluster import files, templates
from e2e.cluster.errors import ClusterError
from e2e.cluster.node_config import EVICTION_PERCENT
from e2e.cluster.oci import Image, Store
from e2e.cluster.state import all_states, templates_in_use

MARGIN = 3_000_000_000
"""Free bytes that a cluster needs besides its images and the kubelets' eviction threshold. The agents keep
1 GiB free beside models (e2e/install.py). The rest is for etcd, logs, checkpoints and the files of pods.
"""


@dataclass(frozen=True)
class Disk:
    """Sizes of a disk in bytes."""

    total: int
    free: int


class Step(Enum):
    """A step before the creation of a cluster. The values are what the user reads about the step."""

    CREATE = "create the cluster"
    DELETE_OTHERS = "deleting unused image templates and unused layers"
    DELETE_ALL = "deleting also the template that shares most layers with these images"
    REFUSE = "refuse to create the cluster"


def needed(lacking: int, disk: int) -> int:
    """Return the free bytes that a cluster needs on a disk of `disk` bytes if `lacking` bytes of its images
    are not unpacked yet.

    A container store has each layer twice: as a blob and as unpacked files. Below the eviction threshold of
    the kubelets, no pod runs.
    """
    return 2 * lacking + disk * EVICTION_PERCENT // 100 + MARGIN


def next_step(lacking: int, disk: Disk, tried: Collection[Step]) -> Step:
    """Return what to do if `lacking` bytes must be unpacked and the steps in `tried` have been made.

    A template that lacks nothing is kept: the cluster would need as many bytes more as it frees.
    """
    if disk.free >= needed(lacking, disk.total):
        return Step.CREATE
    steps = [Step.DELETE_OTHERS, *([Step.DELETE_ALL] if lacking else [])]
    return next((step for step in steps if step not in tried), Step.REFUSE)


def ensure(
    store: Store, images: Collection[Image], lacking: Callable[[], int], report: Callable[[str], None]
) -> None:
    """Make room for a cluster with these images. `lacking` returns how many bytes of them must be unpacked.

    Deletes unused caches if necessary. Raises ClusterError if the room does not suffice.
    """
    folder, tried = files.cache_root(), list[Step]()
    while True:
        # The free bytes are those that programs without root's rights may use. Kubelets count them too.
        total, _, free = shutil.disk_usage(folder)
        bytes_lacking = lacking()
        need = needed(bytes_lacking, total)
        step = next_step(bytes_lacking, Disk(total, free), tried)
        if step is Step.CREATE:
            return
        if step is Step.REFUSE:
            sizes = f"{need / 1e9:.1f} GB in {folder}, {free / 1e9:.1f} GB are free"
            raise ClusterError(f"the cluster needs {sizes}; {remedy()}")
        report(f"{free / 1e9:.1f} of {need / 1e9:.1f} GB are free: {step.value}")
        tried.append(step)
        if step is Step.DELETE_OTHERS:
            with store.lock():
                store.create()
                store.prune()
        templates.delete_unused(templates_in_use, images if step is Step.DELETE_OTHERS else ())


def remedy() -> str:
    """Return what a user can delete to get free space."""
    root = files.cache_root()
    return (
        f"delete {_clusters()}the folders wheelhouses and buildah in {root}, which the next build of images"
        " makes again, or other files on this disk"
    )


def _clusters() -> str:
    try:
        found = [f"`down --name {state.name}` in {state.checkout}" for state in all_states()]
    except (ClusterError, OSError):
        return ""
    return f"the clusters that you do not need ({', '.join(found)}), " if found else ""


def explain(error: ClusterError | OSError) -> str:
    """Return the error's message. If the disk is full, the message also says what to delete."""
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    if not full and "no space left on device" not in str(error).lower():
        return str(error)
    text = remedy()
    return str(error) if text in str(error) else f"{error}\nThe disk is full: {text}"
