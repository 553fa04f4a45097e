"""The code of the probes. Only child processes run it."""
