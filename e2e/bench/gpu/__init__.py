"""Measures the code that uses GPUs, on a machine with one NVIDIA GPU."""
