"""Synthetic workloads: traces of data-parallel, tensor-parallel and pipelined training."""
