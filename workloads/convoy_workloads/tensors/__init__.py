"""Whole tensors: assembled from the shards of a generation, and in files of other formats."""
