"""Random tests of the compute kernels, with and without sanitizers."""
