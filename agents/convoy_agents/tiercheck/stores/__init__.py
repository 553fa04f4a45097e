"""The remote tier: checkpoints in a store, where they survive the loss of all nodes."""
