"""A job on simulated hardware under the whole guard: steps, detector, life cycle, sweeps, repairs."""
