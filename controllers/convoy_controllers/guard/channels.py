"""The names of the detector's channels, of what it compares with the past, and of places."""

from __future__ import annotations

from enum import StrEnum


class Channel(StrEnum):
    """One watched signal: a residual per unit (rank, job, communicator or place) and window."""

    PEERS = "peers"
    """Compute of a rank against the other ranks of its stage and class of hardware."""
    CELLS = "cells"
    """Compute of a rank against the other stages' times for the same micro-batches."""
    TOKENS = "tokens"
    """Compute of a rank against its peers, without what tokens explain."""
    DATA = "data"
    """Input of a rank against all others."""
    HOST = "host"
    """Host time of a rank against all others."""
    GROUPS = "groups"
    """Transfer of a communicator against those alike."""
    GROUPS_PAST = "groups past"
    """Transfer of a communicator against its own past."""
    JOB_COMPUTE = "job compute"
    """Compute of the job's median rank against its past."""
    JOB_DATA = "job data"
    """Input of the job's median rank, as share of a step."""
    JOB_HOST = "job host"
    """Mean host time of the job's ranks against its past."""
    JOB_PAUSES = "job pauses"
    """Pauses of ranks that stand out, against the past."""
    JOB_TRANSFER = "job transfer"
    """The shortest wait in collectives against its past."""
    JOB_WALL = "job wall"
    """Seconds of a step against the past."""
    RACKS = "racks"
    """Compute of a rack against the other racks, beyond the past."""
    CLASSES = "classes"
    """Compute of a class of hardware against its past."""
    REPLICAS = "replicas"
    """Compute of a replica's quickest rank against the other replicas."""


class Level(StrEnum):
    """One value whose first windows are kept, to compare later ones with."""

    COMPUTE = "compute"
    GROUPS = "groups"
    JOB_HOST = "job host"
    JOB_PAUSES = "job pauses"
    JOB_TRANSFER = "job transfer"
    JOB_WALL = "job wall"


class Division(StrEnum):
    """One way to divide the ranks of a job."""

    RACKS = "racks"
    CLASSES = "classes"
    REPLICAS = "replicas"
    NODES = "nodes"


class FindingPlace(StrEnum):
    """The kind of place that a finding names."""

    RANK = "rank"
    NODE = "node"
    """A node; of the network, its way out."""
    INSIDE = "inside"
    """The links inside a node."""
    LINK = "link"
    """The link between two nodes."""
    GROUP = "group"
    """Nodes of a communicator: it cannot be told which."""
    RACK = "rack"
    CLASS = "class"
    """A class of hardware."""
    REPLICA = "replica"
    STAGES = "stages"
    """Stages against one another."""
    REPLICAS = "replicas"
    """Replicas against one another."""
    JOB = "job"
