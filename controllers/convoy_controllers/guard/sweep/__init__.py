"""Rules of health sweeps: which nodes and pairs to test, and the verdicts on them. Pure: no clock, no I/O."""
