"""The straggler guard on the node: step timings of ranks, the node's hardware identity, and health sweeps."""
