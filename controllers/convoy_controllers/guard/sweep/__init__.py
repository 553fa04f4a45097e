"""Rules of health sweeps: the choice of nodes and pairs to test, and the verdicts on them. Pure: no clock,
no I/O.
"""
