"""The workload layer: a rank's nodes, their issue order, and the times at which they run."""
