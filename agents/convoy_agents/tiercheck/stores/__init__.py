"""The remote tier: checkpoints in a store that outlives the cluster's memory."""
