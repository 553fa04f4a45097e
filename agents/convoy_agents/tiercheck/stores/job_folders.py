"""Finds the jobs that have checkpoints in a store."""

from __future__ import annotations

from typing import NamedTuple

from convoy_agents.tiercheck.stores.blobs import Blobs
from convoy_agents.tiercheck.stores.part import FOLDERS, NAME


class JobFolder(NamedTuple):
    """The folder of one job in a store: <namespace>/<uid>."""

    namespace: str
    uid: str


def job_folders(blobs: Blobs) -> list[JobFolder]:
    """Return the folders <namespace>/<uid> that contain at least one of FOLDERS, sorted by name. Raises
    StoreError if the store fails.
    """
    return [
        JobFolder(namespace, uid)
        for namespace in sorted(filter(NAME.fullmatch, blobs.folders("")))
        for uid in sorted(filter(NAME.fullmatch, blobs.folders(namespace)))
        if not blobs.folders(f"{namespace}/{uid}").isdisjoint(FOLDERS)
    ]
