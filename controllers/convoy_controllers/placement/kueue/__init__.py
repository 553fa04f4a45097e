"""Kueue: the protocol of a controller that owns Workload objects (kueue.x-k8s.io/v1beta2).

A Workload asks a queue for the quota of a job. Kueue reserves and takes back the quota. Convoy creates the
Workload, starts pods when Kueue has admitted it, ends them when Kueue evicts it, and clears the reservation
after the last pod. All modules here are pure.
"""
