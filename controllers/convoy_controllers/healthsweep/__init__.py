"""Health sweeps: the tests that each node must run, their order, and the verdicts that follow from the
results.
"""
