"""A TrainingJob as processes of this machine: the same launcher, ranks and protocol, without a cluster."""

from convoy_workloads.local.run import LocalError, run_local

__all__ = ["LocalError", "run_local"]
