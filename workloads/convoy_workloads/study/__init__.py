"""Studies of training methods: the same seeds for all arms, paired gains, and tests of equivalence. The
statistics are those of Experiments (`convoy_workloads.experiments`).
"""
