"""The states that replicas of ServingJobs save to the memory of nodes: one writer, no ranks, no consensus."""
