"""The part of Convoy that a program in a pod imports. It needs only the standard library; torch, if used,
is the program's own.
"""

from convoy_workloads.runtime.errors import DataError, Interrupted, ParamsError, PeerLost
from convoy_workloads.runtime.job import Job
from convoy_workloads.runtime.joining import join
from convoy_workloads.runtime.node_notice import Notice
from convoy_workloads.runtime.node_notice import read as notice
from convoy_workloads.runtime.replica_state import ReplicaState, SavedState
from convoy_workloads.runtime.restored import Restored
from convoy_workloads.runtime.result import ResultError

__all__ = [
    "DataError",
    "Interrupted",
    "Job",
    "Notice",
    "ParamsError",
    "PeerLost",
    "ReplicaState",
    "Restored",
    "ResultError",
    "SavedState",
    "join",
    "notice",
]
