"""Whose checkpoints a store has."""

from __future__ import annotations

from typing import NamedTuple

from convoy_agents.tiercheck.stores.blobs import Blobs
from convoy_agents.tiercheck.stores.part import FOLDERS, NAME


class Home(NamedTuple):
    """A job's folder."""

    namespace: str
    uid: str


def homes(blobs: Blobs) -> list[Home]:
    """All that look like a job's, by name. StoreError."""
    return [
        Home(namespace, uid)
        for namespace in sorted(filter(NAME.fullmatch, blobs.folders("")))
        for uid in sorted(filter(NAME.fullmatch, blobs.folders(namespace)))
        if not blobs.folders(f"{namespace}/{uid}").isdisjoint(FOLDERS)
    ]
