"""Simulation of a job on faulty hardware with the whole guard: detector, node states, sweeps and repairs."""
