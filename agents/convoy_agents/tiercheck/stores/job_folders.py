"""Whose checkpoints a store has."""

from __future__ import annotations

from typing import NamedTuple

from convoy_agents.tiercheck.stores.blobs import Blobs
from convoy_agents.tiercheck.stores.part import FOLDERS, NAME


class JobFolder(NamedTuple):
    """A job's folder."""

    namespace: str
    uid: str


def job_folders(blobs: Blobs) -> list[JobFolder]:
    """All that look like a job's, by name. StoreError."""
    return [
        JobFolder(namespace, uid)
        for namespace in sorted(filter(NAME.fullmatch, blobs.folders("")))
        for uid in sorted(filter(NAME.fullmatch, blobs.folders(namespace)))
        if not blobs.folders(f"{namespace}/{uid}").isdisjoint(FOLDERS)
    ]
