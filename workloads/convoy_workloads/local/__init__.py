"""Runs a TrainingJob as processes of this machine. Launcher, ranks and protocol are the same as in a
cluster.
"""

from convoy_workloads.local.run import LocalError, run_local

__all__ = ["LocalError", "run_local"]
