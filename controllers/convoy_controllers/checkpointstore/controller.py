"""The controller of CheckpointStores: it decides whether jobs can commit checkpoints to a store."""

from __future__ import annotations

from convoy_controllers.checkpointstore.observed import Observed
from convoy_controllers.checkpointstore.plan import plan
from convoy_controllers.controller import Controller
from convoy_controllers.keys import Key
from convoy_controllers.reader import Reader
from convoy_crds.checkpointstore import KIND


def observe(reader: Reader, key: Key) -> Observed | None:
    """Return the store with its probe result; None until the operator has read the store's Secret."""
    store = reader.get(KIND, key.name)
    return reader.hub.store(store) if store is not None else None


CONTROLLER = Controller(
    KIND,
    summary="Decides whether jobs can commit checkpoints to a store and, if not, what to do.",
    observe=observe,
    plan=plan,
)
