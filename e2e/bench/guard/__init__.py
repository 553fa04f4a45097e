"""The guard: replays of public traces, faults put into them, synthetic jobs, bad fleets and storms; others'
rules beside it.
"""
