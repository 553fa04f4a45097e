"""Which state of a training is kept, where, and which is restored. Pure; the agents act on it."""
