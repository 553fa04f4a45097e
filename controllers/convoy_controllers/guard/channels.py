"""Names of the detector's channels, of the quantities that it compares with the past, and of places."""

from __future__ import annotations

from enum import StrEnum


class Channel(StrEnum):
    """One monitored signal. It has one residual per window and unit; a unit is a rank, job, communicator or
    place.
    """

    PEERS = "peers"
    """Compute time of a rank, compared with the other ranks of its stage and class of hardware."""
    CELLS = "cells"
    """Compute time of a rank, compared with the other stages' times for the same micro-batches."""
    TOKENS = "tokens"
    """Compute time of a rank, compared with its peers after the effect of the tokens is removed."""
    OWN_PAST = "own past"
    """Compute time of a rank with one or two peers, compared with its own past, its peers and its replica."""
    FEW_PEERS = "few peers"
    """Compute time of a rank with one or two peers, compared with them and with the other stages."""
    DATA = "data"
    """Input wait of a rank, compared with all other ranks."""
    HOST = "host"
    """Host time of a rank, compared with all other ranks."""
    GROUPS = "groups"
    """Transfer time of a communicator, compared with similar communicators."""
    GROUPS_PAST = "groups past"
    """Transfer time of a communicator, compared with its own past."""
    JOB_COMPUTE = "job compute"
    """Compute time of the job's median rank, compared with the past."""
    JOB_DATA = "job data"
    """Input wait of the job's median rank, as a share of a step."""
    JOB_HOST = "job host"
    """Mean host time of the job's ranks, compared with the past."""
    JOB_PAUSES = "job pauses"
    """Host pauses of outlier ranks, summed over the ranks and compared with the past."""
    JOB_TRANSFER = "job transfer"
    """Shortest time that any rank of the job spends in collectives, compared with the past."""
    JOB_WALL = "job wall"
    """Duration of a step, compared with the past."""
    RACKS = "racks"
    """Compute time of a rack, compared with its own past and with the other racks."""
    CLASSES = "classes"
    """Compute time of a class of hardware, compared with its own past."""
    REPLICAS = "replicas"
    """Compute time of a replica's fastest rank, compared with the other replicas."""


class Level(StrEnum):
    """A quantity that is compared with its own mean over the first windows."""

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
    """One node. If the cause is slow communication, the node's network links to other nodes are meant."""
    INSIDE = "inside"
    """The network links inside a node."""
    LINK = "link"
    """The network link between two nodes."""
    GROUP = "group"
    """All nodes of a communicator, if the slow node among them is unknown."""
    RACK = "rack"
    CLASS = "class"
    """A class of hardware."""
    REPLICA = "replica"
    STAGES = "stages"
    """The job's stages, compared with one another."""
    REPLICAS = "replicas"
    """The job's replicas, compared with one another."""
    JOB = "job"
