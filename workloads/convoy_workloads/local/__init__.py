"""Runs a TrainingJob or a ServingJob as processes of this machine. Launcher, ranks and protocol are the same
as in a cluster.
"""

from convoy_workloads.local.errors import LocalError
from convoy_workloads.local.run import LocalEnd, run_local
from convoy_workloads.local.serve import serve_local

__all__ = ["LocalEnd", "LocalError", "run_local", "serve_local"]
