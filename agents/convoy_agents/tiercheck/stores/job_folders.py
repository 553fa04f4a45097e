"""The jobs whose checkpoints a store holds."""

from __future__ import annotations

from typing import NamedTuple

from convoy_agents.tiercheck.stores.blobs import Blobs
from convoy_agents.tiercheck.stores.part import FOLDERS, NAME


class JobFolder(NamedTuple):
    """The folder of one job."""

    namespace: str
    uid: str


def job_folders(blobs: Blobs) -> list[JobFolder]:
    """Return all folders that look like a job's, sorted by name. StoreError."""
    return [
        JobFolder(namespace, uid)
        for namespace in sorted(filter(NAME.fullmatch, blobs.folders("")))
        for uid in sorted(filter(NAME.fullmatch, blobs.folders(namespace)))
        if not blobs.folders(f"{namespace}/{uid}").isdisjoint(FOLDERS)
    ]
