"""Names of the detector's channels, of the values it compares with the past, and of places."""

from __future__ import annotations

from enum import StrEnum


class Channel(StrEnum):
    """One monitored signal: a residual per unit (rank, job, communicator or place) and window."""

    PEERS = "peers"
    """Compute of a rank against the other ranks of its stage and class of hardware."""
    CELLS = "cells"
    """Compute of a rank against the other stages' times for the same micro-batches."""
    TOKENS = "tokens"
    """Compute of a rank against its peers, with the effect of tokens removed."""
    DATA = "data"
    """Wait of a rank for input against all other ranks."""
    HOST = "host"
    """Host time of a rank against all other ranks."""
    GROUPS = "groups"
    """Transfer time of a communicator against similar ones."""
    GROUPS_PAST = "groups past"
    """Transfer time of a communicator against its own past."""
    JOB_COMPUTE = "job compute"
    """Compute of the job's median rank against its past."""
    JOB_DATA = "job data"
    """Wait for input of the job's median rank, as a share of a step."""
    JOB_HOST = "job host"
    """Mean host time of the job's ranks against its past."""
    JOB_PAUSES = "job pauses"
    """Host pauses of outlier ranks, summed, against the job's past."""
    JOB_TRANSFER = "job transfer"
    """The shortest wait in collectives against the job's past."""
    JOB_WALL = "job wall"
    """Seconds of a step against the job's past."""
    RACKS = "racks"
    """Compute of a rack against its past and the other racks."""
    CLASSES = "classes"
    """Compute of a class of hardware against its past."""
    REPLICAS = "replicas"
    """Compute of a replica's fastest rank against the other replicas."""


class Level(StrEnum):
    """A quantity whose mean over the first windows is kept, to compare later windows with."""

    COMPUTE = "compute"
    GROUPS = "groups"
    JOB_HOST = "job host"
    JOB_PAUSES = "job pauses"
    JOB_TRANSFER = "job transfer"
    JOB_WALL = "job wall"


class Division(StrEnum):
    """A way to divide the ranks of a job."""

    RACKS = "racks"
    CLASSES = "classes"
    REPLICAS = "replicas"
    NODES = "nodes"


class FindingPlace(StrEnum):
    """The kind of place that a finding names."""

    RANK = "rank"
    NODE = "node"
    """A node; for communication, its network link to the outside."""
    INSIDE = "inside"
    """The links inside a node."""
    LINK = "link"
    """The link between two nodes."""
    GROUP = "group"
    """All nodes of a communicator: the slow one among them is not known."""
    RACK = "rack"
    CLASS = "class"
    """A class of hardware."""
    REPLICA = "replica"
    STAGES = "stages"
    """Stages compared with one another."""
    REPLICAS = "replicas"
    """Replicas compared with one another."""
    JOB = "job"
