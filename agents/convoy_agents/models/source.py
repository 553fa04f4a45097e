"""A model as the hub names it, and the state of its delivery to one pod."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import Protocol

from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Inventory


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A generation that a TrainingJob has saved to a store (hub.proto ModelSource)."""

    namespace: str
    job_uid: str
    store: str
    incarnation: int
    """Incarnation of the generation; 0 for the newest one that has saved the step."""
    step: int

    @property
    def key(self) -> str:
        """Return the name of the model's folder on this node. Records of generations never change, so one
        name always stands for the same files.
        """
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:32]

    def to_wire(self) -> hub_pb2.ModelSource:
        """Return the message for the hub."""
        return hub_pb2.ModelSource(
            namespace=self.namespace,
            job_uid=self.job_uid,
            store=self.store,
            incarnation=self.incarnation,
            step=self.step,
        )


def from_wire(message: hub_pb2.ModelSource) -> ModelSource:
    """Convert the hub's message."""
    return ModelSource(message.namespace, message.job_uid, message.store, message.incarnation, message.step)


class Store(Protocol):
    """The part of a store that belongs to one job."""

    def inventory(self) -> Inventory:
        """Return all records, branches and manifests."""
        ...


def pinned_generations(store: Store, pinned: Sequence[ModelSource]) -> set[Generation]:
    """Return the generations of a store that models name. Raises StoreError if the store fails."""
    found = {Generation(one.incarnation, one.step) for one in pinned if one.incarnation}
    steps = {one.step for one in pinned if not one.incarnation}
    if steps:
        found |= {one for one in store.inventory().records if one.step in steps}
    return found


class Failure(StrEnum):
    """The cause of a failed delivery (hub.proto ModelReport.Failure)."""

    NONE = "NONE"
    NOT_FOUND = "NOT_FOUND"
    DIGEST_MISMATCH = "DIGEST_MISMATCH"
    STORE_UNREACHABLE = "STORE_UNREACHABLE"
    NOT_STORED = "NOT_STORED"
    IN_JOURNAL = "IN_JOURNAL"


@dataclass(frozen=True, slots=True)
class ModelState:
    """The state of a delivery to one pod."""

    source: ModelSource
    ready: bool = False
    """True if all files are in the pod's volume."""
    failure: Failure = Failure.NONE
    """Cause of the failure; NONE while the agent loads the model, and after that."""
    message: str = ""
    progress_ms: int = 0
    """Unix milliseconds of the newest progress of the download; 0 before the first."""


class ModelError(Exception):
    """A delivery failed. The message names the place and the cause."""

    def __init__(self, failure: Failure, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.failure = failure
        self.transient = transient
        """True if an early retry may succeed, so that one failure is not reported yet."""
