"""The remote tier: checkpoints in a place that outlives the cluster's memory."""
